package tensor

import (
	"fmt"
	"io"
)

// Spec names a tensor and says how it is stored.
type Spec struct {
	Name  string
	DType DType
	Shape Shape
}

// Stored is a tensor inside an open file: its bytes are read when asked for. It is valid until the file is closed.
type Stored struct {
	Spec
	// Data covers exactly the tensor's bytes. Use its ReadAt, which several goroutines may call; Read and Seek share
	// one position.
	Data *io.SectionReader
}

// Bytes returns the size of the stored data.
func (s *Stored) Bytes() int64 { return s.Data.Size() }

// ReadAll returns a copy of the stored data.
func (s *Stored) ReadAll() ([]byte, error) {
	data := make([]byte, s.Data.Size())
	if n, err := s.Data.ReadAt(data, 0); n < len(data) {
		return nil, fmt.Errorf("read tensor %s: %w", s.Name, err)
	}
	return data, nil
}

// ReadFloats returns all elements as float32, in stored order.
func (s *Stored) ReadFloats() ([]float32, error) {
	n, err := s.Shape.Elements()
	if err != nil {
		return nil, fmt.Errorf("tensor %s: %w", s.Name, err)
	}
	data, err := s.ReadAll()
	if err != nil {
		return nil, err
	}
	out := make([]float32, n)
	if err := Decode(out, data, s.DType); err != nil {
		return nil, fmt.Errorf("tensor %s: %w", s.Name, err)
	}
	return out, nil
}

// View calls f with the stored data without copying it where the file can be mapped into memory, else with a copy.
// f must not keep or change the slice, nor hand it to another goroutine: should the file shrink meanwhile, the fault
// becomes an error of View only on the goroutine that called it.
func (s *Stored) View(f func([]byte) error) error {
	outer, off, n := s.Data.Outer()
	if m, ok := outer.(interface {
		View(off, n int64, f func([]byte) error) error
	}); ok {
		return m.View(off, n, f)
	}
	data, err := s.ReadAll()
	if err != nil {
		return err
	}
	return f(data)
}
