// Package gguf reads and writes GGUF, llama.cpp's file format for models.
//
// A file is a header (magic "GGUF", version, counts), metadata (key, type, value), tensor descriptions (name,
// dimensions, type, offset), padding to the alignment, and the data section. Offsets count bytes from the start of the
// data section; each tensor's data is padded to the alignment. Dimensions in the file are fastest-varying first; this
// package reverses them, so that a Shape is slowest-varying first like everywhere else.
//
// The reader is as strict as llama.cpp's own and stricter where that one would trust the file: what it accepts can be
// handed to llama.cpp.
package gguf

import (
	"errors"
	"fmt"
	"io"
	"math/bits"

	"quern/internal/binread"
	"quern/tensor"
)

// The ways in which a file can be wrong. Errors from Read and Open wrap one of them, or binread.ErrTruncated.
var (
	ErrMagic     = errors.New("not a GGUF file: it does not begin with the letters GGUF")
	ErrVersion   = errors.New("unsupported GGUF version")
	ErrCount     = errors.New("impossible number of entries")
	ErrKey       = errors.New("bad metadata key")
	ErrValue     = errors.New("bad metadata value")
	ErrAlignment = errors.New("the alignment is not a power of two")
	ErrName      = errors.New("bad tensor name")
	ErrDuplicate = errors.New("a name appears twice")
	ErrShape     = errors.New("impossible shape")
	ErrType      = errors.New("unknown tensor type")
	ErrOffset    = errors.New("a tensor's data is not where the format puts it")
	ErrBounds    = errors.New("a tensor's data goes beyond the end of the file; a download may have been cut short")
	ErrSplit     = errors.New("the parts of a split model do not fit together")
)

// Limits beyond what the file's size implies. No model comes near them; llama.cpp's checks for duplicates take time
// with the square of the counts.
const (
	maxTensors = 1 << 17
	maxKeys    = 1 << 14
	maxKeyLen  = 1<<16 - 1 // the format's own
	maxString  = 1 << 26
	maxName    = 63 // ggml.h: GGML_MAX_NAME with the final zero byte
	maxDims    = 4  // ggml.h: GGML_MAX_DIMS

	maxAlignment     = 1 << 20
	defaultAlignment = 32
	alignmentKey     = "general.alignment"
)

// File is an open GGUF file, or all parts of a split one. It may be used by several goroutines.
type File struct {
	Path      string // "" when read from something that is not a file; the first part of a split model
	Parts     []string
	Version   uint32
	Alignment int64 // in bytes
	Meta      Metadata
	Tensors   []tensor.Stored // in file order

	byName  map[string]int
	closers []io.Closer
}

// Lookup returns the tensor of that name, nil if there is none.
func (f *File) Lookup(name string) *tensor.Stored {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Architecture returns the model's general.architecture, "" without one.
func (f *File) Architecture() string {
	arch, _ := f.Meta.Text("general.architecture")
	return arch
}

// Close closes the file; its tensors can no longer be read.
func (f *File) Close() error {
	var errs []error
	for _, c := range f.closers {
		errs = append(errs, c.Close())
	}
	f.closers = nil
	return errors.Join(errs...)
}

// Read reads the header of one file of the given size. The result reads tensor data from r.
func Read(r io.ReaderAt, size int64) (*File, error) {
	in := binread.NewReader(r, size)
	f := &File{byName: map[string]int{}}
	numTensors, numKeys, err := f.readCounts(in)
	if err != nil {
		return nil, err
	}
	if err := f.readMetadata(in, numKeys); err != nil {
		return nil, err
	}
	offsets, err := f.readTensors(in, numTensors)
	if err != nil {
		return nil, err
	}
	return f, f.place(r, size, pad(in.Offset(), f.Alignment), offsets)
}

func (f *File) readCounts(in *binread.Reader) (tensors, keys uint64, err error) {
	if magic := in.U32(); in.Err() != nil || magic != 0x46554747 {
		return 0, 0, ErrMagic
	}
	f.Version = in.U32()
	tensors, keys = in.U64(), in.U64()
	switch {
	case in.Err() != nil:
		return 0, 0, in.Err()
	case f.Version&0xffff == 0:
		return 0, 0, fmt.Errorf("%w: %#x; this looks like a file for big-endian machines", ErrVersion, f.Version)
	case f.Version != 2 && f.Version != 3:
		return 0, 0, fmt.Errorf("%w: %d; versions 2 and 3 can be read", ErrVersion, f.Version)
	case tensors > maxTensors || int64(tensors) > in.Left()/24: // the least that a description takes
		return 0, 0, fmt.Errorf("%w: %d tensors in %d bytes", ErrCount, tensors, in.Left())
	case keys > maxKeys || int64(keys) > in.Left()/13:
		return 0, 0, fmt.Errorf("%w: %d metadata entries in %d bytes", ErrCount, keys, in.Left())
	}
	return tensors, keys, nil
}

func (f *File) readMetadata(in *binread.Reader, n uint64) error {
	seen := make(map[string]bool, n)
	for i := range n {
		key := string(in.Bytes(in.U64(), maxKeyLen))
		if in.Err() != nil {
			return fmt.Errorf("metadata entry %d: %w: %w", i, ErrKey, in.Err())
		}
		switch {
		case key == "":
			return fmt.Errorf("metadata entry %d: %w: it is empty", i, ErrKey)
		case seen[key]:
			return fmt.Errorf("metadata: %w: %q", ErrDuplicate, key)
		}
		seen[key] = true
		value, err := readValue(in)
		if err != nil {
			return fmt.Errorf("metadata %q: %w", key, err)
		}
		f.Meta = append(f.Meta, KV{key, value})
	}
	f.Alignment = defaultAlignment
	if v, ok := f.Meta.Get(alignmentKey); ok {
		a, isUint32 := v.(uint32)
		if !isUint32 || bits.OnesCount32(a) != 1 || a > maxAlignment {
			return fmt.Errorf("metadata %q: %w: %v", alignmentKey, ErrAlignment, v)
		}
		f.Alignment = int64(a)
	}
	return nil
}

func readValue(in *binread.Reader) (any, error) {
	t := valueType(in.U32())
	isArray := t == typeArray
	n := uint64(1)
	if isArray {
		t, n = valueType(in.U32()), in.U64()
	}
	if in.Err() != nil {
		return nil, in.Err()
	}
	var value any
	switch t {
	case typeUint8:
		value = readValues(in, n, 1, isArray, in.U8)
	case typeInt8:
		value = readValues(in, n, 1, isArray, func() int8 { return int8(in.U8()) })
	case typeUint16:
		value = readValues(in, n, 2, isArray, in.U16)
	case typeInt16:
		value = readValues(in, n, 2, isArray, func() int16 { return int16(in.U16()) })
	case typeUint32:
		value = readValues(in, n, 4, isArray, in.U32)
	case typeInt32:
		value = readValues(in, n, 4, isArray, func() int32 { return int32(in.U32()) })
	case typeFloat32:
		value = readValues(in, n, 4, isArray, in.F32)
	case typeBool:
		value = readValues(in, n, 1, isArray, func() bool { return in.U8() != 0 })
	case typeString:
		value = readText(in, n, isArray)
	case typeUint64:
		value = readValues(in, n, 8, isArray, in.U64)
	case typeInt64:
		value = readValues(in, n, 8, isArray, func() int64 { return int64(in.U64()) })
	case typeFloat64:
		value = readValues(in, n, 8, isArray, in.F64)
	default:
		in.Fail(fmt.Errorf("%w: %v is not a type that a value or an array element can have", ErrValue, t))
	}
	return value, in.Err()
}

// readValues reads one value, or an array of n that take at least size bytes each. The slice grows as values come, so
// that a lying count costs no more memory than the file has bytes.
func readValues[T any](in *binread.Reader, n uint64, size int64, isArray bool, read func() T) any {
	if !isArray {
		return read()
	}
	if !fits(in, n, size) {
		return nil
	}
	values := make([]T, 0, min(n, 1<<16))
	for range n {
		v := read()
		if in.Err() != nil {
			return nil
		}
		values = append(values, v)
	}
	return values
}

// fits says whether the input can hold n elements of at least size bytes each.
func fits(in *binread.Reader, n uint64, size int64) bool {
	if n > uint64(in.Left()/size) {
		in.Fail(fmt.Errorf("%w: an array of %d elements in %d bytes", binread.ErrTruncated, n, in.Left()))
		return false
	}
	return true
}

// readText reads one string, or an array of n. The strings of an array are parts of one, since a vocabulary has
// hundreds of thousands.
func readText(in *binread.Reader, n uint64, isArray bool) any {
	if !isArray {
		return string(in.Bytes(in.U64(), maxString))
	}
	if !fits(in, n, 8) {
		return nil
	}
	all, ends := make([]byte, 0, 8*n), make([]int, 0, n) // there are 8·n bytes at least, for their lengths
	for range n {
		if all = in.Append(all, in.U64(), maxString); in.Err() != nil {
			return nil
		}
		ends = append(ends, len(all))
	}
	text, from, values := string(all), 0, make([]string, 0, n)
	for _, end := range ends {
		values = append(values, text[from:end])
		from = end
	}
	return values
}

// readTensors reads the descriptions and returns the offset that each one claims.
func (f *File) readTensors(in *binread.Reader, n uint64) ([]uint64, error) {
	offsets := make([]uint64, 0, n)
	for i := range n {
		name := string(in.Bytes(in.U64(), maxName))
		if in.Err() != nil {
			return nil, fmt.Errorf("tensor %d: %w: %w", i, ErrName, in.Err())
		}
		if name == "" {
			return nil, fmt.Errorf("tensor %d: %w: it is empty", i, ErrName)
		}
		if _, twice := f.byName[name]; twice {
			return nil, fmt.Errorf("tensor %d: %w: %q", i, ErrDuplicate, name)
		}
		t := tensor.Stored{Spec: tensor.Spec{Name: name}}
		var err error
		if t.Shape, err = readShape(in); err != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		number, offset := in.U32(), in.U64()
		if in.Err() != nil {
			return nil, fmt.Errorf("tensor %q: %w", name, in.Err())
		}
		var known bool
		if t.DType, known = ggmlTypes[number]; !known {
			return nil, fmt.Errorf("tensor %q: %w: number %d", name, ErrType, number)
		}
		f.byName[name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
		offsets = append(offsets, offset)
	}
	return offsets, nil
}

func readShape(in *binread.Reader) (tensor.Shape, error) {
	n := in.U32()
	if n > maxDims {
		return nil, fmt.Errorf("%w: %d dimensions, at most %d", ErrShape, n, maxDims)
	}
	shape := make(tensor.Shape, n)
	for i := range shape {
		d := in.U64()
		if in.Err() == nil && (d == 0 || d>>62 != 0) {
			return nil, fmt.Errorf("%w: dimension %d of the file is %d", ErrShape, i, d)
		}
		shape[len(shape)-1-i] = int64(d)
	}
	return shape, in.Err()
}

// place checks that each tensor's data stands right behind the one before and inside the file, as llama.cpp demands,
// and connects the tensors to r.
func (f *File) place(r io.ReaderAt, size, dataStart int64, offsets []uint64) error {
	next := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n, err := t.DType.Bytes(t.Shape)
		if err != nil {
			return fmt.Errorf("tensor %q: %w: %w", t.Name, ErrShape, err)
		}
		if offsets[i] != uint64(next) {
			return fmt.Errorf("tensor %q: %w: offset %d, expected %d", t.Name, ErrOffset, offsets[i], next)
		}
		if n > size-dataStart-next {
			return fmt.Errorf("tensor %q: %w: it needs %d bytes from %d, the file has %d", t.Name, ErrBounds, n, dataStart+next, size)
		}
		t.Data = io.NewSectionReader(r, dataStart+next, n)
		next = pad(next+n, f.Alignment)
	}
	return nil
}

// pad rounds up to the next multiple of the alignment, a power of two.
func pad(n, alignment int64) int64 { return (n + alignment - 1) &^ (alignment - 1) }
