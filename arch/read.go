package arch

import (
	"fmt"
	"math"

	"quern/tensor"
)

// Check compares the stored sources, in the order of t.Sources, with what the table expects of them.
func (t *Tensor) Check(sources []*tensor.Stored) error {
	if len(sources) != len(t.Sources) {
		return fmt.Errorf("tensor %s: %d sources, want %d", t.GGUF, len(sources), len(t.Sources))
	}
	for _, s := range sources {
		if !s.Shape.Equal(t.SourceShape) {
			return fmt.Errorf("tensor %s has shape %v; by config.json it should be %v%s", s.Name, s.Shape, t.SourceShape, shapeHint(s.Shape, t.SourceShape))
		}
		if !s.DType.CanDecode() {
			return fmt.Errorf("tensor %s is stored as %v, which is not supported; save the model in bf16, f16 or f32", s.Name, s.DType)
		}
	}
	return nil
}

// shapeHint explains the shapes that MLX gives to convolutions.
func shapeHint(have, want tensor.Shape) string {
	if len(have) == 3 && len(want) == 3 && have[0] == want[0] && have[1] == want[2] && have[2] == want[1] {
		return ": its last two axes are swapped, as in checkpoints made by MLX, whose norms are shifted too; convert the original checkpoint"
	}
	return ""
}

// Reader reads rows of a tensor in GGUF's layout out of a checkpoint. It keeps buffers between calls and is for one
// goroutine; any number of Readers may read the same tensor.
type Reader struct {
	raw []byte
	row []float32
}

// Floats fills dst with rows from, from+1, … of t in GGUF's layout: len(dst) must be a whole number of rows. sources
// are the stored tensors named by t.Sources, which must have passed Check.
func (r *Reader) Floats(t *Tensor, sources []*tensor.Stored, from int64, dst []float32) error {
	rowLen := t.RowLen()
	if int64(len(dst))%rowLen != 0 {
		return fmt.Errorf("tensor %s: %d values are not whole rows of %d", t.GGUF, len(dst), rowLen)
	}
	out := dst
	err := r.each(t, sources, from, int64(len(dst))/rowLen, func(raw []byte, dtype tensor.DType, rows int64) error {
		n := rows * rowLen
		err := tensor.Decode(out[:n], raw, dtype)
		out = out[n:]
		return err
	})
	if err != nil {
		return fmt.Errorf("tensor %s: %w", t.GGUF, err)
	}
	if t.Cols != nil {
		r.reorderCols(t, dst)
	}
	t.Op.apply(dst)
	return nil
}

// Bytes fills dst with rows from, from+1, … of t as they are stored. Only for a tensor without Cols and Op whose
// sources all have the type that is wanted.
func (r *Reader) Bytes(t *Tensor, sources []*tensor.Stored, from int64, dst []byte) error {
	rowBytes, err := sources[0].DType.RowBytes(t.RowLen())
	if err != nil {
		return err
	}
	return r.each(t, sources, from, int64(len(dst))/rowBytes, func(raw []byte, _ tensor.DType, _ int64) error {
		dst = dst[copy(dst, raw):]
		return nil
	})
}

// each calls f with the stored bytes of n rows of t, in GGUF's order, in as few pieces as they lie in.
func (r *Reader) each(t *Tensor, sources []*tensor.Stored, from, n int64, f func(raw []byte, dtype tensor.DType, rows int64) error) error {
	perSource := rows(t.SourceShape, t.RowLen())
	runs := t.Rows
	if runs == nil {
		runs = Runs{{0, perSource * int64(len(sources))}}
	}
	for _, run := range runs {
		if from >= run.Len { // the run lies before what is asked for
			from -= run.Len
			continue
		}
		at, left := run.From+from, min(run.Len-from, n)
		from, n = 0, n-left
		for left > 0 { // a run may go on in the next source
			i := at / perSource
			rows := min(left, perSource-at%perSource)
			if err := r.stored(sources[i], t.RowLen(), at%perSource, rows, f); err != nil {
				return err
			}
			at, left = at+rows, left-rows
		}
		if n == 0 {
			return nil
		}
	}
	if n > 0 {
		return fmt.Errorf("%d rows beyond the end", n)
	}
	return nil
}

func (r *Reader) stored(s *tensor.Stored, rowLen, from, rows int64, f func([]byte, tensor.DType, int64) error) error {
	rowBytes, err := s.DType.RowBytes(rowLen)
	if err != nil {
		return err
	}
	if int64(cap(r.raw)) < rows*rowBytes {
		r.raw = make([]byte, rows*rowBytes)
	}
	raw := r.raw[:rows*rowBytes]
	if n, err := s.Data.ReadAt(raw, from*rowBytes); n < len(raw) {
		return fmt.Errorf("read %s: %w", s.Name, err)
	}
	return f(raw, s.DType, rows)
}

func (r *Reader) reorderCols(t *Tensor, dst []float32) {
	rowLen := int(t.RowLen())
	if len(r.row) < rowLen {
		r.row = make([]float32, rowLen)
	}
	for ; len(dst) > 0; dst = dst[rowLen:] {
		row := r.row[:rowLen]
		copy(row, dst)
		out := dst
		for _, run := range t.Cols {
			out = out[copy(out, row[run.From:run.From+run.Len]):]
		}
	}
}

// apply carries values from the checkpoint's form into GGUF's, in float32.
func (op Op) apply(x []float32) {
	switch op {
	case AddOne:
		for i, v := range x {
			x[i] = v + 1
		}
	case NegExp:
		for i, v := range x {
			x[i] = float32(-math.Exp(float64(v)))
		}
	}
}
