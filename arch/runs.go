package arch

import "fmt"

// Run is a stretch of consecutive indices.
type Run struct{ From, Len int64 }

// Runs says, for an axis of a GGUF tensor, where each index comes from in the checkpoint: the indices of all runs, one
// after another. Nil means that nothing is reordered. The runs of one tensor may also select a part of the source.
type Runs []Run

// Len returns how many indices there are.
func (r Runs) Len() int64 {
	n := int64(0)
	for _, run := range r {
		n += run.Len
	}
	return n
}

// Inverse returns the runs from the checkpoint's order back to it: what GGUF index each checkpoint index has.
// The receiver must be a permutation.
func (r Runs) Inverse() Runs {
	if r == nil {
		return nil
	}
	to := make([]int64, r.Len()) // to[checkpoint index] = GGUF index
	at := int64(0)
	for _, run := range r {
		for i := range run.Len {
			to[run.From+i] = at + i
		}
		at += run.Len
	}
	var inv Runs
	for _, i := range to {
		if last := len(inv) - 1; last >= 0 && inv[last].From+inv[last].Len == i {
			inv[last].Len++
		} else {
			inv = append(inv, Run{i, 1})
		}
	}
	return inv
}

// GatherRows reorders rows of rowLen values each: row i of dst is the row of src that r names for i. With nil runs it
// copies.
func (r Runs) GatherRows(dst, src []float32, rowLen int64) error {
	if r == nil {
		if len(dst) != len(src) {
			return fmt.Errorf("gather rows: %d values into %d", len(src), len(dst))
		}
		copy(dst, src)
		return nil
	}
	if int64(len(dst)) != r.Len()*rowLen {
		return fmt.Errorf("gather rows: %d values into %d rows of %d", len(dst), r.Len(), rowLen)
	}
	for _, run := range r {
		if (run.From+run.Len)*rowLen > int64(len(src)) {
			return fmt.Errorf("gather rows: rows %d to %d of %d values", run.From, run.From+run.Len, len(src))
		}
		n := copy(dst, src[run.From*rowLen:(run.From+run.Len)*rowLen])
		dst = dst[n:]
	}
	return nil
}

// GatherCols reorders the columns of a matrix with rows of rowLen values in place of dst's own: column i of dst is the
// column of src that r names for i. dst and src must not overlap. With nil runs it copies.
func (r Runs) GatherCols(dst, src []float32, rowLen int64) error {
	if r == nil {
		return r.GatherRows(dst, src, rowLen)
	}
	if len(dst) != len(src) || r.Len() != rowLen || int64(len(src))%rowLen != 0 {
		return fmt.Errorf("gather columns: %d values into %d, rows of %d, %d columns named", len(src), len(dst), rowLen, r.Len())
	}
	for len(src) > 0 {
		if err := r.GatherRows(dst[:rowLen], src[:rowLen], 1); err != nil {
			return err
		}
		dst, src = dst[rowLen:], src[rowLen:]
	}
	return nil
}

// tiledHeads returns the order in which GGUF stores value heads. The checkpoint groups them by key head (k0v0 k0v1 …
// k1v0 k1v1 …); ggml broadcasts key heads by tiling, so it wants k0v0 k1v0 … k0v1 k1v1 …. Each head is width indices
// wide; before indices in front stay where they are. Nil when there is one value head for each key head.
func tiledHeads(c *Config, width, before int64) Runs {
	perKey := c.ValueHeads / c.KeyHeads
	if perKey == 1 {
		return nil
	}
	var r Runs
	if before > 0 {
		r = append(r, Run{0, before})
	}
	for v := range perKey {
		for k := range c.KeyHeads {
			r = append(r, Run{before + (k*perKey+v)*width, width})
		}
	}
	return r
}
