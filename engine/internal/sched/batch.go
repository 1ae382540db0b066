package sched

import "fmt"

// newBatch makes a Batch for up to rows rows, so that filling it allocates nothing.
func newBatch(rows int) *Batch {
	return &Batch{
		Tokens: make([]Token, 0, rows),
		Pos:    make([]int32, 0, rows),
		Seqs:   make([]SeqID, 0, rows),
		Logits: make([]int8, 0, rows),
	}
}

func (b *Batch) reset() {
	b.Tokens, b.Pos, b.Seqs, b.Logits = b.Tokens[:0], b.Pos[:0], b.Seqs[:0], b.Logits[:0]
}

// add appends the next tokens of a sequence that holds `at` tokens. The last one's logits are wanted or not, the others'
// never are. It returns the row of the last one.
func (b *Batch) add(seq SeqID, at int, tokens []Token, wantLogits bool) (row int) {
	for i, t := range tokens {
		b.Tokens = append(b.Tokens, t)
		b.Pos = append(b.Pos, int32(at+i))
		b.Seqs = append(b.Seqs, seq)
		b.Logits = append(b.Logits, 0)
	}
	row = b.Len() - 1
	if wantLogits {
		b.Logits[row] = 1
	}
	return row
}

// check compares a batch with what the memory holds, row by row: the library does not refuse a wrong position or a row
// too many, it goes on with wrong text or ends the process.
func (m *memory) checkBatch(b *Batch) error {
	if b.Len() == 0 || b.Len() > m.caps.BatchTokens {
		return fmt.Errorf("batch of %d rows, 1 to %d can be read", b.Len(), m.caps.BatchTokens)
	}
	if b.Len() > m.cells.free() {
		return fmt.Errorf("batch of %d rows, but only %d cells are free", b.Len(), m.cells.free())
	}
	logits, next := 0, 0
	for i, id := range b.Seqs {
		if id < 0 || int(id) >= len(m.seqs) {
			return fmt.Errorf("batch row %d: no sequence %d", i, id)
		}
		if i == 0 || id != b.Seqs[i-1] {
			if i > 0 && id < b.Seqs[i-1] {
				return fmt.Errorf("batch row %d: sequence %d after %d", i, id, b.Seqs[i-1])
			}
			next = len(m.seqs[id].tokens)
		}
		if int(b.Pos[i]) != next || next >= m.caps.SeqTokens {
			return fmt.Errorf("batch row %d: position %d of sequence %d, its next is %d of %d", i, b.Pos[i], id, next, m.caps.SeqTokens)
		}
		next++
		logits += int(b.Logits[i])
	}
	if logits > m.caps.MaxLogits {
		return fmt.Errorf("batch wants logits of %d rows, %d can be had", logits, m.caps.MaxLogits)
	}
	return nil
}
