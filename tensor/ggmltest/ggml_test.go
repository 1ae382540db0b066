package ggmltest

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

// numbers lists ggml's types that can be looked up by name in package tensor.
func numbers(t *testing.T) map[int]tensor.DType {
	found := map[int]tensor.DType{}
	for n := range int(NumTypes) {
		name, elems, size := Type(n)
		if elems == 0 {
			continue // removed from ggml
		}
		dtype, err := tensor.ParseDType(name)
		if err != nil {
			t.Errorf("ggml type %d: %v", n, err)
			continue
		}
		if dtype.BlockLen() != elems || dtype.BlockBytes() != size {
			t.Errorf("%v: blocks of %d elements in %d bytes, ggml has %d in %d", dtype, dtype.BlockLen(), dtype.BlockBytes(), elems, size)
		}
		found[n] = dtype
	}
	return found
}

func TestSizesAreGgmls(t *testing.T) {
	if n := len(numbers(t)); n < 30 {
		t.Fatalf("only %d types compared", n)
	}
}

func TestDecodeIsGgmls(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for n, dtype := range numbers(t) {
		if !dtype.CanDecode() || dtype == tensor.F32 || dtype == tensor.F64 {
			continue // ggml has no conversion from these
		}
		const blocks = 4000
		src := make([]byte, blocks*dtype.BlockBytes())
		for i := range src {
			src[i] = byte(rng.Uint32())
		}
		want := make([]float32, blocks*dtype.BlockLen())
		got := make([]float32, len(want))
		Decode(n, want, src)
		if err := tensor.Decode(got, src, dtype); err != nil {
			t.Fatal(err)
		}
		bad := 0
		for i := range got {
			same := math.Float32bits(got[i]) == math.Float32bits(want[i])
			bothNaN := got[i] != got[i] && want[i] != want[i] // scales of random bits; which NaN is not specified
			if !same && !bothNaN {
				if bad++; bad <= 3 {
					t.Errorf("%v element %d: %v (%08x), ggml %v (%08x)", dtype, i, got[i], math.Float32bits(got[i]), want[i], math.Float32bits(want[i]))
				}
			}
		}
		t.Logf("%v: %d of %d elements differ", dtype, bad, len(got))
	}
}

func TestEncodeIsGgmls(t *testing.T) {
	rows := testRows()
	for n, dtype := range numbers(t) {
		if !dtype.CanEncode() {
			continue
		}
		for kind, row := range rows {
			size, _ := dtype.RowBytes(int64(len(row)))
			want, got := make([]byte, size), make([]byte, size)
			Encode(n, want, row)
			if err := tensor.Encode(got, row, dtype); err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, want) {
				i := 0
				for got[i] == want[i] {
					i++
				}
				b := i / dtype.BlockBytes()
				t.Errorf("%v, %s: block %d differs:\n  have %x\n  ggml %x", dtype, kind, b,
					got[b*dtype.BlockBytes():][:dtype.BlockBytes()], want[b*dtype.BlockBytes():][:dtype.BlockBytes()])
			}
		}
	}
}

// testRows returns rows of ordinary weights and of extremes.
func testRows() map[string][]float32 {
	rng := rand.New(rand.NewPCG(3, 4))
	rows := map[string][]float32{}
	fill := func(kind string, n int, f func(i int) float32) {
		row := make([]float32, n)
		for i := range row {
			row[i] = f(i)
		}
		rows[kind] = row
	}
	fill("normal", 1<<18, func(int) float32 { return float32(rng.NormFloat64() * 0.02) })
	fill("uniform", 1<<14, func(int) float32 { return rng.Float32()*2 - 1 })
	fill("positive", 1<<12, func(int) float32 { return rng.Float32() + 3 })
	fill("zero", 256, func(int) float32 { return 0 })
	fill("negative zero", 256, func(int) float32 { return float32(math.Copysign(0, -1)) })
	fill("constant", 256, func(int) float32 { return -0.375 })
	fill("halves", 1<<12, func(int) float32 { return float32(rng.IntN(255)-127) / 2 }) // many ties
	fill("integers", 1<<12, func(int) float32 { return float32(rng.IntN(33) - 16) })
	fill("one outlier", 1<<12, func(i int) float32 {
		if i%32 == 5 {
			return 1000
		}
		return rng.Float32() * 1e-3
	})
	fill("half subnormal scale", 1<<12, func(int) float32 { return float32(rng.NormFloat64() * 1e-6) })
	fill("large", 1<<12, func(int) float32 { return float32(rng.NormFloat64() * 1e5) })
	fill("huge", 1<<12, func(int) float32 { return float32(rng.NormFloat64() * 1e30) })
	fill("subnormal", 1<<12, func(int) float32 { return math.Float32frombits(rng.Uint32() & 0x807fffff) })
	fill("tiny", 1<<12, func(int) float32 { return float32(rng.NormFloat64() * 1e-37) })
	fill("any exponent", 1<<14, func(int) float32 {
		return float32(math.Ldexp(rng.NormFloat64(), rng.IntN(120)-60))
	})
	return rows
}

// TestHalfConversions compares all float32 exponents with a spread of mantissas, and every half.
func TestHalfConversions(t *testing.T) {
	var src []float32
	for exp := range uint32(512) {
		for _, frac := range []uint32{0, 1, 0xfff, 0x1000, 0x1001, 0x1fff, 0x2000, 0x3000, 0x7fff, 0x8000, 0x8001, 0xffff, 0x18000, 0x3fffff, 0x400000, 0x7fefff, 0x7ff000, 0x7fffff, 0x123456} {
			src = append(src, math.Float32frombits(exp<<23|frac))
		}
	}
	for n, dtype := range numbers(t) {
		if dtype != tensor.F16 && dtype != tensor.BF16 {
			continue
		}
		want, got := make([]byte, 2*len(src)), make([]byte, 2*len(src))
		Encode(n, want, src)
		if err := tensor.Encode(got, src, dtype); err != nil {
			t.Fatal(err)
		}
		for i := range src {
			g, w := binary.LittleEndian.Uint16(got[2*i:]), binary.LittleEndian.Uint16(want[2*i:])
			if g != w {
				t.Errorf("%v of %v (%08x): %04x, ggml %04x", dtype, src[i], math.Float32bits(src[i]), g, w)
			}
		}
		all := make([]byte, 2<<16)
		for i := range 1 << 16 {
			binary.LittleEndian.PutUint16(all[2*i:], uint16(i))
		}
		a, b := make([]float32, 1<<16), make([]float32, 1<<16)
		Decode(n, b, all)
		if err := tensor.Decode(a, all, dtype); err != nil {
			t.Fatal(err)
		}
		for i := range a {
			if x, y := math.Float32bits(a[i]), math.Float32bits(b[i]); x != y {
				t.Errorf("%v %04x: %08x, ggml %08x", dtype, i, x, y)
			}
		}
	}
}
