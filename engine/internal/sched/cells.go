package sched

// cells counts the room of a memory whose sequences share what they have in common.
//
// With unified memory a token takes one cell however many forks hold it, so the room in use is not the sum of the
// lengths. A chain of runs says who shares what: a sequence is its last run and all runs before that one.
//
//	prefix 900 ──┬── lane 1: 40
//	             └── run 60 ──┬── lane 2: 7
//	                          └── held copy
type cells struct {
	total  int
	used   int
	shared bool // forks share cells; otherwise each copy takes its own
	mark   int  // of the last count by reach
}

// run is a stretch of cells with the same owners.
type run struct {
	before *run
	cells  int
	refs   int // sequences that end here, and runs that follow
	mark   int
}

func (c *cells) free() int { return c.total - c.used }

// grow adds n cells to the end of the sequence that ends in last, and returns its new last run.
func (c *cells) grow(last *run, n int) *run {
	if last == nil || last.refs > 1 {
		last = &run{before: last, refs: 1} // the reference that the sequence had is the new run's now
	}
	last.cells += n
	c.used += n
	return last
}

// fork gives the last run of a copy of a sequence of n cells that ends in last.
func (c *cells) fork(last *run, n int) *run {
	if !c.shared {
		return c.grow(nil, n)
	}
	last.refs++
	return last
}

// trim takes the last n cells from the sequence that ends in last, and returns its new last run, nil for none. Cells
// that others hold too stay in use.
func (c *cells) trim(last *run, n int) *run {
	for n > 0 {
		switch {
		case n >= last.cells: // all of this run
			n -= last.cells
			last = c.drop(last)
		case last.refs == 1:
			last.cells -= n
			c.used -= n
			return last
		default: // the others keep the run: split it, and end at the first part
			first := &run{before: last.before, cells: last.cells - n, refs: 2}
			last.before, last.cells = first, n
			last.refs--
			return first
		}
	}
	return last
}

// drop ends one reference to last and returns the run before it, to which the caller then holds the reference.
func (c *cells) drop(last *run) *run {
	before := last.before
	if last.refs--; last.refs > 0 {
		if before != nil {
			before.refs++
		}
		return before
	}
	c.used -= last.cells
	return before
}

// release frees a whole sequence.
func (c *cells) release(last *run) {
	for last != nil {
		if last.refs--; last.refs > 0 {
			return
		}
		c.used -= last.cells
		last = last.before
	}
}

// reach is the number of cells that a set of sequences holds: start a count with newCount, then add up reach for each.
func (c *cells) newCount() { c.mark++ }

func (c *cells) reach(last *run) int {
	n := 0
	for ; last != nil && last.mark != c.mark; last = last.before {
		last.mark = c.mark
		n += last.cells
	}
	return n
}

// exclusive is the number of cells that release(last) would free.
func exclusive(last *run) int {
	n := 0
	for ; last != nil && last.refs == 1; last = last.before {
		n += last.cells
	}
	return n
}
