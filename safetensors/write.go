package safetensors

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"quern/tensor"
)

// Layout is the plan of a file: which tensor goes where. With it the data may be written in any order, by any number
// of goroutines. The same tensors and metadata always give the same bytes, and those that the reference library writes.
type Layout struct {
	Tensors []tensor.Spec // in file order: by dtype, the largest first, then by name
	Offsets []int64       // where each one's data begins, from the start of the file
	Size    int64         // of the whole file, in bytes

	header []byte // with its length in front
}

// NewLayout plans a file with these tensors.
func NewLayout(specs []tensor.Spec, metadata map[string]string) (*Layout, error) {
	l := &Layout{Tensors: slices.Clone(specs)}
	if err := l.sort(); err != nil {
		return nil, err
	}
	var header bytes.Buffer
	header.Write(make([]byte, 8)) // the length, when it is known
	header.WriteByte('{')
	if metadata != nil {
		header.WriteString(`"__metadata__":`)
		if err := appendJSON(&header, metadata); err != nil {
			return nil, err
		}
	}
	seen := map[string]bool{}
	end := int64(0)
	for _, t := range l.Tensors {
		size, err := t.DType.Bytes(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if end+size < end {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, tensor.ErrOverflow)
		}
		if header.Len() > 9 {
			header.WriteByte(',')
		}
		if err := appendEntry(&header, t, end, end+size); err != nil {
			return nil, err
		}
		if seen[t.Name] {
			return nil, fmt.Errorf("%w: %q", ErrDuplicate, t.Name)
		}
		seen[t.Name] = true
		l.Offsets = append(l.Offsets, end)
		end += size
	}
	header.WriteByte('}')
	for header.Len()%8 != 0 { // so that the data is aligned
		header.WriteByte(' ')
	}
	l.header = header.Bytes()
	if len(l.header)-8 > maxHeader {
		return nil, fmt.Errorf("%w: %d bytes", ErrHeaderTooLarge, len(l.header)-8)
	}
	binary.LittleEndian.PutUint64(l.header, uint64(len(l.header)-8))
	for i := range l.Offsets {
		l.Offsets[i] += int64(len(l.header))
	}
	l.Size = end + int64(len(l.header))
	return l, nil
}

// WriteHeader writes what comes before the data.
func (l *Layout) WriteHeader(w io.WriterAt) error {
	_, err := w.WriteAt(l.header, 0)
	return err
}

// Write writes a whole small file: data[name] holds each tensor's bytes.
func Write(w io.Writer, specs []tensor.Spec, metadata map[string]string, data map[string][]byte) error {
	l, err := NewLayout(specs, metadata)
	if err != nil {
		return err
	}
	if _, err := w.Write(l.header); err != nil {
		return err
	}
	for _, t := range l.Tensors {
		if size, _ := t.DType.Bytes(t.Shape); int64(len(data[t.Name])) != size {
			return fmt.Errorf("tensor %s: %w: %v %v takes %d bytes, got %d", t.Name, ErrSize, t.DType, t.Shape, size, len(data[t.Name]))
		}
		if _, err := w.Write(data[t.Name]); err != nil {
			return err
		}
	}
	return nil
}

func (l *Layout) sort() error {
	rank := func(t tensor.Spec) int {
		return slices.IndexFunc(names, func(n struct {
			name  string
			dtype tensor.DType
		}) bool {
			return n.dtype == t.DType
		})
	}
	for _, t := range l.Tensors {
		if rank(t) < 0 {
			return fmt.Errorf("tensor %s: %w: %v cannot be stored in safetensors", t.Name, ErrDType, t.DType)
		}
	}
	slices.SortFunc(l.Tensors, func(a, b tensor.Spec) int {
		return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(a.Name, b.Name))
	})
	return nil
}

func appendEntry(header *bytes.Buffer, t tensor.Spec, begin, end int64) error {
	if err := appendJSON(header, t.Name); err != nil {
		return err
	}
	shape := t.Shape
	if shape == nil {
		shape = tensor.Shape{} // [] and not null
	}
	header.WriteByte(':')
	return appendJSON(header, struct {
		DType   string       `json:"dtype"`
		Shape   tensor.Shape `json:"shape"`
		Offsets [2]int64     `json:"data_offsets"`
	}{t.DType.String(), shape, [2]int64{begin, end}})
}

// appendJSON writes v compactly, letters as they are, map keys sorted.
func appendJSON(b *bytes.Buffer, v any) error {
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return err
	}
	b.Truncate(b.Len() - 1) // Encode adds a newline
	return nil
}
