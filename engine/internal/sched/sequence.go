package sched

import "fmt"

// sequence is what the memory holds under one id. It is in one of three states: empty, at work for a job (a lane), or
// held: kept for requests that begin with the same tokens.
type sequence struct {
	id     SeqID
	tokens []Token // in memory, at positions 0 … len-1; a lane's are a part of its job's tokens
	last   *run    // the cells they take
	job    *job    // at work for it, or nil
	usedAt uint64  // the scheduler's clock at the last use
	ran    *Stream // what last ended in it, while it is held
	kept   bool    // a prefix put aside for several requests: these copy it, none goes on in it
}

func (q *sequence) held() bool  { return q.job == nil && len(q.tokens) > 0 }
func (q *sequence) empty() bool { return q.job == nil && len(q.tokens) == 0 }

// memory is the backend's memory together with what the scheduler knows of it. Its methods change both or neither; that
// they still agree is checked wherever a sequence is copied or cut. An error here means that they do not, which is a
// fault of ours or of the backend: nothing in memory can be trusted then.
type memory struct {
	backend Backend
	caps    Caps
	seqs    []sequence // by id
	cells   cells
}

func newMemory(b Backend) *memory {
	caps := b.Caps()
	m := &memory{
		backend: b,
		caps:    caps,
		seqs:    make([]sequence, caps.MaxSeqs),
		cells:   cells{total: caps.CtxTokens, shared: caps.Unified},
	}
	for i := range m.seqs {
		m.seqs[i].id = SeqID(i)
	}
	return m
}

// grow notes that q's next tokens, up to all[:n], have been read.
func (m *memory) grow(q *sequence, all []Token, n int) {
	q.last = m.cells.grow(q.last, n-len(q.tokens))
	q.tokens = all[:n]
}

// fork makes dst, which is empty, a copy of src.
func (m *memory) fork(dst, src *sequence) error {
	if err := m.backend.CopySeq(dst.id, src.id); err != nil {
		return fmt.Errorf("copy sequence %d to %d: %w", src.id, dst.id, err)
	}
	dst.tokens = src.tokens[:len(src.tokens):len(src.tokens)]
	dst.last = m.cells.fork(src.last, len(src.tokens))
	return m.check(dst)
}

// trim cuts q to its first n tokens. False: the memory cannot, and q is as it was.
func (m *memory) trim(q *sequence, n int) (bool, error) {
	if n == len(q.tokens) {
		return true, nil
	}
	if !m.backend.RemoveSeq(q.id, n) {
		return false, m.check(q)
	}
	q.last = m.cells.trim(q.last, len(q.tokens)-n)
	q.tokens = q.tokens[:n]
	return true, m.check(q)
}

// clear empties q.
func (m *memory) clear(q *sequence) error {
	if !m.backend.RemoveSeq(q.id, 0) {
		return fmt.Errorf("sequence %d cannot be emptied", q.id)
	}
	m.cells.release(q.last)
	q.tokens, q.last, q.kept, q.ran = nil, nil, false, nil
	return m.check(q)
}

func (m *memory) check(q *sequence) error {
	if n := m.backend.SeqLen(q.id); n != len(q.tokens) {
		return fmt.Errorf("sequence %d holds %d tokens in memory, %d were put there", q.id, n, len(q.tokens))
	}
	return nil
}
