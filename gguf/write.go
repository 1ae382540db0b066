package gguf

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"math/bits"
	"reflect"

	"quern/tensor"
)

// Layout is the plan of a file: which tensor's data goes where. With it the data may be written in any order, by any
// number of goroutines, into a file of Size bytes whose gaps are zero. The same input always gives the same bytes.
type Layout struct {
	Tensors []tensor.Spec // in the order given
	Offsets []int64       // where each one's data begins, from the start of the file
	Size    int64         // of the whole file, padding included, in bytes

	header []byte // everything before the data section, padded
}

// NewLayout plans a version 3 file with this metadata and these tensors. The alignment is that of the metadata, else
// 32 bytes.
func NewLayout(meta Metadata, specs []tensor.Spec) (*Layout, error) {
	l := &Layout{Tensors: specs}
	alignment := int64(defaultAlignment)
	if v, ok := meta.Get(alignmentKey); ok {
		a, isUint32 := v.(uint32)
		if !isUint32 || bits.OnesCount32(a) != 1 || a > maxAlignment {
			return nil, fmt.Errorf("metadata %q: %w: %v", alignmentKey, ErrAlignment, v)
		}
		alignment = int64(a)
	}
	var b bytes.Buffer
	put(&b, uint32(0x46554747), uint32(3), uint64(len(specs)), uint64(len(meta)))
	if err := appendMetadata(&b, meta); err != nil {
		return nil, err
	}
	next := int64(0)
	seen := map[string]bool{}
	for _, t := range specs {
		if seen[t.Name] {
			return nil, fmt.Errorf("tensor: %w: %q", ErrDuplicate, t.Name)
		}
		seen[t.Name] = true
		if err := appendTensor(&b, t, next); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, err)
		}
		n, err := t.DType.Bytes(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %q: %w: %w", t.Name, ErrShape, err)
		}
		if n > 1<<62-next {
			return nil, fmt.Errorf("tensor %q: %w", t.Name, tensor.ErrOverflow)
		}
		l.Offsets = append(l.Offsets, next)
		next = pad(next+n, alignment)
	}
	b.Write(make([]byte, pad(int64(b.Len()), alignment)-int64(b.Len())))
	l.header = b.Bytes()
	for i := range l.Offsets {
		l.Offsets[i] += int64(len(l.header))
	}
	l.Size = next + int64(len(l.header))
	return l, nil
}

// WriteHeader writes what comes before the data.
func (l *Layout) WriteHeader(w io.WriterAt) error {
	_, err := w.WriteAt(l.header, 0)
	return err
}

// Write writes a whole small file: data[name] holds each tensor's bytes.
func Write(w io.Writer, meta Metadata, specs []tensor.Spec, data map[string][]byte) error {
	l, err := NewLayout(meta, specs)
	if err != nil {
		return err
	}
	if _, err := w.Write(l.header); err != nil {
		return err
	}
	for i, t := range l.Tensors {
		if n, _ := t.DType.Bytes(t.Shape); int64(len(data[t.Name])) != n {
			return fmt.Errorf("tensor %q: %v %v takes %d bytes, got %d", t.Name, t.DType, t.Shape, n, len(data[t.Name]))
		}
		end := l.Size
		if i+1 < len(l.Offsets) {
			end = l.Offsets[i+1]
		}
		padding := make([]byte, end-l.Offsets[i]-int64(len(data[t.Name])))
		if _, err := w.Write(data[t.Name]); err != nil {
			return err
		}
		if _, err := w.Write(padding); err != nil {
			return err
		}
	}
	return nil
}

func appendMetadata(b *bytes.Buffer, meta Metadata) error {
	seen := map[string]bool{}
	for _, kv := range meta {
		switch {
		case kv.Key == "" || len(kv.Key) > maxKeyLen:
			return fmt.Errorf("metadata %q: %w: 1 to %d bytes are allowed", kv.Key, ErrKey, maxKeyLen)
		case seen[kv.Key]:
			return fmt.Errorf("metadata: %w: %q", ErrDuplicate, kv.Key)
		}
		seen[kv.Key] = true
		t, isArray, ok := typeOf(kv.Value)
		if !ok {
			return fmt.Errorf("metadata %q: %w: the format has no type for %T", kv.Key, ErrValue, kv.Value)
		}
		putString(b, kv.Key)
		if isArray {
			put(b, uint32(typeArray))
		}
		put(b, uint32(t))
		putValue(b, kv.Value)
	}
	return nil
}

func putValue(b *bytes.Buffer, v any) {
	switch v := v.(type) {
	case string:
		putString(b, v)
	case []string:
		put(b, uint64(len(v)))
		for _, s := range v {
			putString(b, s)
		}
	default:
		if _, isArray, _ := typeOf(v); isArray {
			put(b, uint64(reflect.ValueOf(v).Len()))
		}
		put(b, v)
	}
}

func appendTensor(b *bytes.Buffer, t tensor.Spec, offset int64) error {
	number, ok := ggmlNumbers[t.DType]
	switch {
	case !ok:
		return fmt.Errorf("%w: %v cannot be stored in GGUF", ErrType, t.DType)
	case t.Name == "" || len(t.Name) > maxName:
		return fmt.Errorf("%w: 1 to %d bytes are allowed", ErrName, maxName)
	case len(t.Shape) > maxDims:
		return fmt.Errorf("%w: %v has more than %d dimensions", ErrShape, t.Shape, maxDims)
	}
	putString(b, t.Name)
	put(b, uint32(len(t.Shape)))
	for i := len(t.Shape) - 1; i >= 0; i-- {
		if t.Shape[i] <= 0 {
			return fmt.Errorf("%w: %v", ErrShape, t.Shape)
		}
		put(b, uint64(t.Shape[i]))
	}
	put(b, number, uint64(offset))
	return nil
}

func putString(b *bytes.Buffer, s string) {
	put(b, uint64(len(s)))
	b.WriteString(s)
}

// put appends fixed-size values, little-endian.
func put(b *bytes.Buffer, values ...any) {
	for _, v := range values {
		out, err := binary.Append(b.AvailableBuffer(), binary.LittleEndian, v)
		if err != nil {
			panic(err) // a type without a fixed size: a mistake in this file
		}
		b.Write(out)
	}
}
