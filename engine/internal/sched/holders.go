package sched

import "slices"

// holders are the held sequences: prefixes put aside, and conversations whose last turn has ended. They are found by
// what they hold, and given up in the order of their last use.
type holders struct {
	tree radix[*sequence]
	n    int
}

func (h *holders) add(q *sequence) {
	h.tree.insert(q.tokens, q)
	h.n++
}

func (h *holders) remove(q *sequence) {
	h.tree.remove(q.tokens, q)
	h.n--
}

// match is what memory has of a prompt: the first n tokens of seq. The zero match: nothing.
type match struct {
	seq *sequence
	n   int
}

// whole says that the prompt begins with all that the sequence holds, so that nothing has to be cut.
func (m match) whole() bool { return m.seq != nil && m.n == len(m.seq.tokens) }

// longest finds what to start a prompt from. With an attention-only memory any common prefix will do, since a copy can
// be cut to it. A recurrent state is good at its very end only: there a sequence counts when the prompt begins with all
// of it, or when no more than the last trimTail tokens must go.
func (h *holders) longest(prompt []Token, caps Caps) match {
	var best match
	shared, end := h.tree.walk(prompt, func(n *radixNode[*sequence]) {
		if len(n.values) > 0 {
			best = match{preferred(n.values), n.depth}
		}
	})
	if shared == best.n {
		return best
	}
	if caps.TrimAny {
		q, _ := end.any()
		return match{q, shared}
	}
	if q, ok := end.any(); ok && len(q.tokens)-shared <= caps.TrimTail && !q.kept {
		return match{q, shared}
	}
	return best
}

// preferred chooses among sequences that hold the same: a conversation can go on in place, a kept prefix must be copied.
func preferred(same []*sequence) *sequence {
	for _, q := range same {
		if !q.kept {
			return q
		}
	}
	return same[0]
}

// leastRecentlyUsed returns the held sequence to give up next, sparing one; nil when there is none. With forRoom only
// those count whose cells are not all shared with others.
func (m *memory) leastRecentlyUsed(spare *sequence, forRoom bool) *sequence {
	var oldest *sequence
	for i := range m.seqs {
		q := &m.seqs[i]
		if !q.held() || q == spare || forRoom && exclusive(q.last) == 0 {
			continue
		}
		if oldest == nil || q.usedAt < oldest.usedAt {
			oldest = q
		}
	}
	return oldest
}

// firstEmpty returns the empty sequence with the lowest id, for a lane, and lastEmpty that with the highest, for what is
// put aside: so the lanes stay close together. Nil when there is none.
func (m *memory) firstEmpty() *sequence {
	for i := range m.seqs {
		if q := &m.seqs[i]; q.empty() {
			return q
		}
	}
	return nil
}

func (m *memory) lastEmpty() *sequence {
	for i := range slices.Backward(m.seqs) {
		if q := &m.seqs[i]; q.empty() {
			return q
		}
	}
	return nil
}
