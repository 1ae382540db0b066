package tensor

import (
	"bytes"
	"errors"
	"io"
	"math"
	"slices"
	"strings"
	"testing"
)

func TestSizes(t *testing.T) {
	for _, c := range []struct {
		dtype DType
		shape Shape
		bytes int64
		err   string // part of the error; "" for none
	}{
		{F32, nil, 4, ""},
		{BF16, Shape{3, 5}, 30, ""},
		{F32, Shape{0, 5}, 0, ""},
		{Q8_0, Shape{2, 64}, 136, ""},
		{Q4_K, Shape{3, 512}, 3 * 2 * 144, ""},
		{Q8_0, Shape{64, 2}, 0, "not a multiple of the Q8_0 block of 32"},
		{Q8_0, nil, 0, "not a multiple"},
		{F32, Shape{-1}, 0, "negative dimension"},
		{F32, Shape{math.MaxInt64, 2}, 0, "does not fit"},
		{F32, Shape{1 << 32, 1 << 32}, 0, "does not fit"}, // wraps to 0 in 64 bits
		{F32, Shape{1 << 61}, 0, "does not fit"},          // elements fit, bytes do not
		{Invalid, Shape{1}, 0, "unknown tensor type"},
		{DType(200), Shape{1}, 0, "unknown tensor type"},
	} {
		n, err := c.dtype.Bytes(c.shape)
		if n != c.bytes && c.err == "" || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%v %v: %d, %v; want %d, %q", c.dtype, c.shape, n, err, c.bytes, c.err)
		}
	}
	if _, err := (Shape{1 << 62, 4}).Elements(); !errors.Is(err, ErrOverflow) {
		t.Errorf("overflow: %v", err)
	}
}

func TestShapes(t *testing.T) {
	s := Shape{4, 3, 2}
	if s.RowLen() != 2 || s.String() != "[4, 3, 2]" || !s.Equal(Shape{4, 3, 2}) || s.Equal(Shape{4, 3}) {
		t.Errorf("%v: row length %d", s, s.RowLen())
	}
	if Shape(nil).RowLen() != 1 || Shape(nil).String() != "[]" {
		t.Error("scalar")
	}
}

func TestNames(t *testing.T) {
	for dtype := Invalid + 1; dtype < numDTypes; dtype++ {
		if got, err := ParseDType(strings.ToLower(dtype.String())); err != nil || got != dtype {
			t.Errorf("%v: %v, %v", dtype, got, err)
		}
	}
	for _, name := range []string{"", "Q9_9", "DType(0)"} {
		if got, err := ParseDType(name); err == nil {
			t.Errorf("%q is read as %v", name, got)
		}
	}
}

func TestCodecsRefuse(t *testing.T) {
	if err := Decode(make([]float32, 2), make([]byte, 7), F32); err == nil || !strings.Contains(err.Error(), "take 8 bytes, not 7") {
		t.Errorf("short source: %v", err)
	}
	if err := Decode(make([]float32, 33), make([]byte, 68), Q8_0); err == nil {
		t.Error("part of a block was decoded")
	}
	if err := Encode(make([]byte, 144), make([]float32, 256), Q4_K); err == nil || !strings.Contains(err.Error(), "types that can be written: F32 F16") {
		t.Errorf("K-quant: %v", err)
	}
	if err := Decode(make([]float32, 1), make([]byte, 8), I64); err == nil || !strings.Contains(err.Error(), "not supported") {
		t.Errorf("integers: %v", err)
	}
	if err := Decode(nil, nil, F32); err != nil {
		t.Errorf("nothing: %v", err)
	}
}

// TestRoundTrips: what a format can hold survives, and rounding is to the nearest, ties to even.
func TestRoundTrips(t *testing.T) {
	for _, c := range []struct {
		dtype    DType
		in, want float32
	}{
		{F32, math.SmallestNonzeroFloat32, math.SmallestNonzeroFloat32},
		{F16, 65504, 65504}, {F16, 65519, 65504}, {F16, 65520, float32(math.Inf(1))}, {F16, 2049, 2048}, {F16, 2051, 2052},
		{F16, 0x1p-24, 0x1p-24}, {F16, 0x1p-25, 0}, {F16, 0x1.8p-25, 0x1p-24}, {F16, -0x1p-14, -0x1p-14},
		{BF16, 257, 256}, {BF16, 259, 260}, {BF16, math.MaxFloat32, float32(math.Inf(1))},
	} {
		data := make([]byte, c.dtype.BlockBytes())
		got := make([]float32, 1)
		if err := errors.Join(Encode(data, []float32{c.in}, c.dtype), Decode(got, data, c.dtype)); err != nil || got[0] != c.want {
			t.Errorf("%v of %v: %v, %v; want %v", c.dtype, c.in, got[0], err, c.want)
		}
	}
}

func TestStored(t *testing.T) {
	data := []byte{9, 9, 0, 0, 128, 63, 0, 0, 0, 64}
	s := Stored{Spec{"x", F32, Shape{2}}, io.NewSectionReader(bytes.NewReader(data), 2, 8)}
	if values, err := s.ReadFloats(); err != nil || !slices.Equal(values, []float32{1, 2}) {
		t.Errorf("%v, %v", values, err)
	}
	if err := s.View(func(b []byte) error {
		if !bytes.Equal(b, data[2:]) {
			t.Errorf("view: %v", b)
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
	s.Data = io.NewSectionReader(bytes.NewReader(data), 6, 8) // reaches beyond the end
	if _, err := s.ReadAll(); err == nil {
		t.Error("data beyond the end was read")
	}
}
