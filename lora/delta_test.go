package lora

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

// exactFMA is x·y + z with arbitrary precision, rounded once.
func exactFMA(x, y, z float32) float32 {
	p := new(big.Float).SetPrec(600).SetFloat64(float64(x))
	p.Mul(p, new(big.Float).SetPrec(600).SetFloat64(float64(y)))
	p.Add(p, new(big.Float).SetPrec(600).SetFloat64(float64(z)))
	f, _ := p.Float32()
	return f
}

// TestFMA32 holds the portable fused multiply-add against exact arithmetic, where double rounding goes wrong too:
// sums in the middle between two float32 but for a far smaller term, and subnormal results.
func TestFMA32(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	check := func(x, y, z float32) {
		t.Helper()
		if got, want := fma32(x, y, z), exactFMA(x, y, z); got != want {
			t.Fatalf("fma32(%b, %b, %b) = %b, want %b", x, y, z, got, want)
		}
	}
	for range 200_000 {
		check(randomFloat(rng, 10), randomFloat(rng, 10), randomFloat(rng, 20))
	}
	for range 100_000 {
		check(randomFloat(rng, 70), randomFloat(rng, 70), randomFloat(rng, 126))
	}
	for i := range 1000 { // 1 + 2^-24 is a middle; the product's last bits decide
		z := 1 + float32(i)*0x1p-23
		check(1+0x1p-23, 0x1p-24, z)
		check(-(1 + 0x1p-23), 0x1p-24, z)
		check(1-0x1p-24, 0x1p-24, z)
		check(0x1p-60, 0x1p-60, z)
		check(1+0x1p-23, 0x1p-150+0, float32(i)*0x1p-149)
	}
}

// randomFloat has a random sign, mantissa and exponent within ±span.
func randomFloat(rng *rand.Rand, span int) float32 {
	f := math.Ldexp(1+rng.Float64(), rng.IntN(2*span+1)-span)
	if rng.IntN(2) == 0 {
		f = -f
	}
	return float32(f)
}

// TestDeltaPortable checks that the assembly and the portable code give the same bits, for shapes around the blocks.
func TestDeltaPortable(t *testing.T) {
	if !hasAVX2 {
		t.Skip("this processor has no AVX2; the portable code is what the other tests run")
	}
	rng := rand.New(rand.NewPCG(3, 4))
	for _, shape := range [][3]int{{1, 1, 1}, {4, 16, 8}, {5, 17, 3}, {6, 64, 16}, {33, 80, 64}} {
		rows, cols, rank := shape[0], shape[1], shape[2]
		f := newFactors(randomFloats(rng, rows*rank), randomFloats(rng, rank*cols), rows, cols, rank, 1.7)
		fast, slow := make([]float32, rowGroup*f.width()), make([]float32, rowGroup*f.width())
		for row := 0; row < rows; row += rowGroup {
			f.compute(fast, row)
			f.computePortably(slow, f.b[row*rank:])
			for i := range fast {
				if math.Float32bits(fast[i]) != math.Float32bits(slow[i]) {
					t.Fatalf("%v row %d element %d: %b with AVX2, %b without", shape, row, i, fast[i], slow[i])
				}
			}
		}
	}
}

func TestAddPortable(t *testing.T) {
	if !hasAVX2 {
		t.Skip("this processor has no AVX2; the portable code is what the other tests run")
	}
	rng := rand.New(rand.NewPCG(5, 6))
	const n = 1<<16 + 5
	for _, dtype := range []tensor.DType{tensor.F32, tensor.F16, tensor.BF16} {
		size := dtype.BlockBytes()
		base, delta := make([]byte, n*size), make([]float32, n)
		for i := range delta {
			storeFloat(base[i*size:], randomFloat(rng, 16), dtype)
			delta[i] = randomFloat(rng, 24)
		}
		fast, slow := make([]byte, n*size), make([]byte, n*size)
		got, want := addDelta(fast, base, delta, dtype), addPortably(slow, base, delta, dtype)
		if string(fast) != string(slow) {
			t.Errorf("%v: the bytes differ", dtype)
		}
		if got.Changed != want.Changed || math.Abs(got.Relative()/want.Relative()-1) > 1e-3 {
			t.Errorf("%v: statistics %+v with AVX2, %+v without", dtype, got, want)
		}
	}
}

func randomFloats(rng *rand.Rand, n int) []float32 {
	out := make([]float32, n)
	for i := range out {
		out[i] = float32(rng.NormFloat64())
	}
	return out
}

func BenchmarkDelta(b *testing.B) {
	rng := rand.New(rand.NewPCG(7, 8))
	const rows, cols, rank = 896, 4864, 16
	f := newFactors(randomFloats(rng, rows*rank), randomFloats(rng, rank*cols), rows, cols, rank, 2)
	base, out := make([]byte, rows*cols*2), make([]byte, rows*cols*2)
	dst := make([]float32, rowGroup*f.width())
	b.SetBytes(rows * cols * 2)
	for b.Loop() {
		for row := 0; row < rows; row += rowGroup {
			f.compute(dst, row)
			for i := range rowGroup {
				addDelta(out[(row+i)*cols*2:], base[(row+i)*cols*2:], dst[i*f.width():][:cols], tensor.BF16)
			}
		}
	}
}
