package lora

import (
	"fmt"
	"io"
	"math"

	"quern/arch"
	"quern/tensor"
)

// layout is how a tensor lies in its file, compared with the checkpoint's layout, in which edits and fingerprints see
// every tensor. It is the zero value for checkpoints; GGUF has other orders and values in places (arch.Tensor).
type layout struct {
	rowAt []int64   // where in the file each row is; nil means in order
	cols  arch.Runs // which column of the checkpoint each column of the file is; nil means in order
	op    arch.Op
}

// newLayout takes the table's row for a tensor. A vector is one row here, so its order is one of columns.
func newLayout(t *arch.Tensor) layout {
	l := layout{cols: t.Cols, op: t.Op}
	if len(t.Shape) < 2 {
		l.cols = t.Rows
		return l
	}
	for _, run := range t.Rows.Inverse() {
		for i := range run.Len {
			l.rowAt = append(l.rowAt, run.From+i)
		}
	}
	return l
}

// plain tells whether rows hold the same bytes in both layouts.
func (l *layout) plain() bool { return l.cols == nil && l.op == arch.Keep }

// decode turns rows of the file into values in the checkpoint's layout.
func (l *layout) decode(x []float32, data []byte, t tensor.DType, width int64) error {
	if l.cols == nil {
		if err := tensor.Decode(x, data, t); err != nil {
			return err
		}
	} else {
		stored := make([]float32, len(x))
		if err := tensor.Decode(stored, data, t); err != nil {
			return err
		}
		if err := l.cols.Inverse().GatherCols(x, stored, width); err != nil {
			return err
		}
	}
	if l.op == arch.AddOne {
		for i := range x {
			x[i]--
		}
	}
	if l.op == arch.NegExp {
		for i, v := range x {
			x[i] = float32(math.Log(-float64(v)))
		}
	}
	return nil
}

// encode is the way back. x is not changed.
func (l *layout) encode(data []byte, x []float32, t tensor.DType, width int64) error {
	if l.plain() {
		return tensor.Encode(data, x, t)
	}
	stored := make([]float32, len(x))
	if err := l.cols.GatherCols(stored, x, width); err != nil {
		return err
	}
	switch l.op {
	case arch.AddOne:
		for i := range stored {
			stored[i]++
		}
	case arch.NegExp:
		for i, v := range stored {
			stored[i] = float32(-math.Exp(float64(v)))
		}
	}
	return tensor.Encode(data, stored, t)
}

// eachStretch calls f for the stretches of the file that hold rows first to first+n: file is the row in the file, at
// the row's place among the n, and length how many follow each other.
func (l *layout) eachStretch(first, n int64, f func(file, at, length int64) error) error {
	if l.rowAt == nil {
		return f(first, 0, n)
	}
	for at := int64(0); at < n; {
		file, length := l.rowAt[first+at], int64(1)
		for at+length < n && l.rowAt[first+at+length] == file+length {
			length++
		}
		if err := f(file, at, length); err != nil {
			return err
		}
		at += length
	}
	return nil
}

// readRows reads rows first to first+n of a tensor; data holds n rows of rowBytes.
func (l *layout) readRows(r io.ReaderAt, data []byte, first, n, rowBytes int64) error {
	return l.eachStretch(first, n, func(file, at, length int64) error {
		got, err := r.ReadAt(data[at*rowBytes:(at+length)*rowBytes], file*rowBytes)
		if int64(got) == length*rowBytes {
			return nil
		}
		return fmt.Errorf("read %d bytes of %d: %w", got, length*rowBytes, err)
	})
}

// writeRows writes rows to their places in a tensor that begins at start.
func (l *layout) writeRows(w io.WriterAt, data []byte, first, n, rowBytes, start int64) error {
	return l.eachStretch(first, n, func(file, at, length int64) error {
		_, err := w.WriteAt(data[at*rowBytes:(at+length)*rowBytes], start+file*rowBytes)
		return err
	})
}
