// Package safetensors reads and writes the safetensors format and the folders of a Hugging Face checkpoint: one file,
// or shards with an index.
//
// A file is an unsigned 64-bit header length, the header (JSON: name → dtype, shape, byte range), and the data, whose
// byte ranges must cover it from end to end without gap or overlap. A header that claims anything else is refused.
package safetensors

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"unicode/utf8"

	"quern/internal/binread"
	"quern/tensor"
)

// maxHeader is the reference implementation's limit on the header, in bytes.
const maxHeader = 100_000_000

// The ways in which a file can be wrong. Errors from Read and Open wrap one of them.
var (
	ErrHeaderTooSmall = errors.New("the file is too small to hold a header")
	ErrHeaderTooLarge = errors.New("the header is larger than the format allows")
	ErrHeaderLength   = errors.New("the header is longer than the file")
	ErrHeaderJSON     = errors.New("the header is not the JSON that the format asks for")
	ErrDuplicate      = errors.New("a name appears twice")
	ErrDType          = errors.New("unknown dtype")
	ErrShape          = errors.New("impossible shape")
	ErrSize           = errors.New("the byte range does not fit dtype and shape")
	ErrOffset         = errors.New("the byte ranges of the tensors overlap or leave a gap")
	ErrIncomplete     = errors.New("the data does not end where the file ends; a download may have been cut short")
)

// names maps the format's dtypes, in the order by which the reference sorts tensors in a file (largest last).
var names = []struct {
	name  string
	dtype tensor.DType
}{
	{"BOOL", tensor.Bool}, {"U8", tensor.U8}, {"I8", tensor.I8}, {"F8_E5M2", tensor.F8_E5M2}, {"F8_E4M3", tensor.F8_E4M3},
	{"F8_E8M0", tensor.F8_E8M0}, {"I16", tensor.I16}, {"U16", tensor.U16}, {"F16", tensor.F16}, {"BF16", tensor.BF16},
	{"I32", tensor.I32}, {"U32", tensor.U32}, {"F32", tensor.F32}, {"C64", tensor.C64}, {"F64", tensor.F64},
	{"I64", tensor.I64}, {"U64", tensor.U64},
}

// File is an open safetensors file. It may be used by several goroutines.
type File struct {
	Path     string            // "" when read from something that is not a file
	Metadata map[string]string // the header's __metadata__
	Tensors  []tensor.Stored   // in the order of their data

	byName map[string]int
	closer io.Closer
}

// Open opens a file and reads its header. Close it after use.
func Open(path string) (*File, error) {
	r, err := binread.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Read(r, r.Size())
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	f.Path, f.closer = path, r
	return f, nil
}

// Close closes the file; its tensors can no longer be read.
func (f *File) Close() error {
	if f.closer == nil {
		return nil
	}
	return f.closer.Close()
}

// Lookup returns the tensor of that name, nil if there is none.
func (f *File) Lookup(name string) *tensor.Stored {
	if i, ok := f.byName[name]; ok {
		return &f.Tensors[i]
	}
	return nil
}

// Read reads the header of a file of the given size. The result reads tensor data from r.
func Read(r io.ReaderAt, size int64) (*File, error) {
	header, err := readHeader(r, size)
	if err != nil {
		return nil, err
	}
	f, ranges, err := parseHeader(header)
	if err != nil {
		return nil, err
	}
	dataStart := 8 + int64(len(header))
	if err := f.place(ranges, r, dataStart, size-dataStart); err != nil {
		return nil, err
	}
	return f, nil
}

func readHeader(r io.ReaderAt, size int64) ([]byte, error) {
	in := binread.NewReader(r, size)
	if in.Left() < 8 {
		return nil, fmt.Errorf("%w: %d bytes", ErrHeaderTooSmall, size)
	}
	n := in.U64()
	switch {
	case in.Err() != nil:
		return nil, in.Err()
	case n > maxHeader:
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrHeaderTooLarge, n, maxHeader)
	case int64(n) > in.Left():
		return nil, fmt.Errorf("%w: %d bytes, the file has %d", ErrHeaderLength, n, size)
	}
	header := in.Bytes(n, maxHeader)
	if in.Err() != nil {
		return nil, in.Err()
	}
	if !utf8.Valid(header) {
		return nil, fmt.Errorf("%w: not UTF-8", ErrHeaderJSON)
	}
	if len(header) == 0 || header[0] != '{' {
		return nil, fmt.Errorf("%w: it does not start with {", ErrHeaderJSON)
	}
	return header, nil
}

// byteRange is where a tensor's data begins and ends, counted from the start of the data.
type byteRange struct{ begin, end int64 }

// parseHeader reads the tensors in header order, with one range for each.
func parseHeader(header []byte) (*File, []byteRange, error) {
	f := &File{byName: map[string]int{}}
	var ranges []byteRange
	dec := json.NewDecoder(bytes.NewReader(header))
	if _, err := dec.Token(); err != nil { // the opening brace
		return nil, nil, fmt.Errorf("%w: %v", ErrHeaderJSON, err)
	}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %v", ErrHeaderJSON, err)
		}
		name := key.(string) // the decoder lets nothing else be a key
		if name == "__metadata__" {
			if f.Metadata != nil {
				return nil, nil, fmt.Errorf("%w: __metadata__", ErrDuplicate)
			}
			if err := dec.Decode(&f.Metadata); err != nil {
				return nil, nil, fmt.Errorf("%w: __metadata__: %v", ErrHeaderJSON, err)
			}
			continue
		}
		if _, twice := f.byName[name]; twice {
			return nil, nil, fmt.Errorf("%w: %q", ErrDuplicate, name)
		}
		fields, err := readObject(dec)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		spec, at, err := parseTensor(fields)
		if err != nil {
			return nil, nil, fmt.Errorf("tensor %q: %w", name, err)
		}
		spec.Name = name
		f.byName[name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, tensor.Stored{Spec: spec})
		ranges = append(ranges, at)
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, nil, fmt.Errorf("%w: %v", ErrHeaderJSON, err)
	}
	if rest := bytes.TrimLeft(header[dec.InputOffset():], " \t\r\n"); len(rest) > 0 {
		return nil, nil, fmt.Errorf("%w: something follows the closing brace", ErrHeaderJSON)
	}
	return f, ranges, nil
}

// readObject reads an object whose keys must differ, which encoding/json alone does not ask for.
func readObject(dec *json.Decoder) (map[string]json.RawMessage, error) {
	if open, err := dec.Token(); err != nil || open != json.Delim('{') {
		return nil, fmt.Errorf("%w: not an object (%v)", ErrHeaderJSON, err)
	}
	fields := map[string]json.RawMessage{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, fmt.Errorf("%w: %v", ErrHeaderJSON, err)
		}
		name := key.(string) // the decoder lets nothing else be a key
		if fields[name] != nil {
			return nil, fmt.Errorf("%w: field %q", ErrDuplicate, name)
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, fmt.Errorf("%w: %s: %v", ErrHeaderJSON, name, err)
		}
		fields[name] = value
	}
	if _, err := dec.Token(); err != nil { // the closing brace
		return nil, fmt.Errorf("%w: %v", ErrHeaderJSON, err)
	}
	return fields, nil
}

func parseTensor(fields map[string]json.RawMessage) (spec tensor.Spec, at byteRange, err error) {
	var dtype string
	var shape, offsets []int64
	for _, field := range []struct {
		name string
		into any
	}{{"dtype", &dtype}, {"shape", &shape}, {"data_offsets", &offsets}} {
		raw, ok := fields[field.name]
		if !ok || string(raw) == "null" {
			return spec, at, fmt.Errorf("%w: no %s", ErrHeaderJSON, field.name)
		}
		if err := json.Unmarshal(raw, field.into); err != nil {
			return spec, at, fmt.Errorf("%w: %s: %v", ErrHeaderJSON, field.name, err)
		}
	}
	if spec.DType, err = dtypeOf(dtype); err != nil {
		return spec, at, err
	}
	spec.Shape = shape
	size, err := spec.DType.Bytes(spec.Shape)
	if err != nil {
		return spec, at, fmt.Errorf("%w: %v", ErrShape, err)
	}
	if len(offsets) != 2 || offsets[0] < 0 || offsets[1] < offsets[0] {
		return spec, at, fmt.Errorf("%w: data_offsets %v", ErrOffset, offsets)
	}
	at = byteRange{offsets[0], offsets[1]}
	if at.end-at.begin != size {
		return spec, at, fmt.Errorf("%w: %v %v takes %d bytes, the range %v has %d",
			ErrSize, spec.DType, spec.Shape, size, offsets, at.end-at.begin)
	}
	return spec, at, nil
}

func dtypeOf(name string) (tensor.DType, error) {
	for _, n := range names {
		if n.name == name {
			return n.dtype, nil
		}
	}
	return tensor.Invalid, fmt.Errorf("%w: %q", ErrDType, name)
}

// place sorts the tensors by their data, checks that the ranges cover it, and connects them to r.
func (f *File) place(ranges []byteRange, r io.ReaderAt, dataStart, dataSize int64) error {
	order := make([]int, len(ranges))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if ranges[a].begin != ranges[b].begin {
			return cmp.Compare(ranges[a].begin, ranges[b].begin)
		}
		return cmp.Compare(ranges[a].end, ranges[b].end) // empty tensors first
	})
	sorted := make([]tensor.Stored, 0, len(order))
	end := int64(0)
	for _, i := range order {
		t, at := f.Tensors[i], ranges[i]
		if at.begin != end {
			return fmt.Errorf("tensor %q: %w: it begins at %d, the one before ends at %d", t.Name, ErrOffset, at.begin, end)
		}
		if at.end > dataSize {
			return fmt.Errorf("tensor %q: %w: it ends at %d, there are %d bytes of data", t.Name, ErrIncomplete, at.end, dataSize)
		}
		end = at.end
		t.Data = io.NewSectionReader(r, dataStart+at.begin, at.end-at.begin)
		f.byName[t.Name] = len(sorted)
		sorted = append(sorted, t)
	}
	if end != dataSize {
		return fmt.Errorf("%w: the tensors end at %d, there are %d bytes of data", ErrIncomplete, end, dataSize)
	}
	f.Tensors = sorted
	return nil
}
