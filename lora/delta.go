package lora

import (
	"math"

	"quern/tensor"
)

// PEFT computes a delta as (B @ A) · scale in float32, where the product is accumulated over the rank in ascending
// order with fused multiply-add, and scale is one float32 multiplication; base + delta is then rounded once to the
// base's type. The result here is the same to the last bit, with AVX2 and without.

// factors is a delta in the form in which it is computed: rows of out, columns of in.
type factors struct {
	rows, cols, rank int
	scale            float32
	b                []float32 // [rows, rank], padded by three rows so that four can always be read
	panels           []float32 // A as [cols/16 rounded up, rank, 16], zeros beyond cols
}

const (
	panelWidth = 16 // columns that are computed together
	rowGroup   = 4  // rows that are computed together
)

// newFactors takes b [rows, rank] and a [rank, cols].
func newFactors(b, a []float32, rows, cols, rank int, scale float32) *factors {
	n := (cols + panelWidth - 1) / panelWidth
	f := &factors{rows: rows, cols: cols, rank: rank, scale: scale,
		b: append(b[:rows*rank:rows*rank], make([]float32, (rowGroup-1)*rank)...), panels: make([]float32, n*rank*panelWidth)}
	for k := range rank {
		for p := range n {
			copy(f.panels[(p*rank+k)*panelWidth:][:panelWidth], a[k*cols+p*panelWidth:k*cols+min((p+1)*panelWidth, cols)])
		}
	}
	return f
}

// width is the length of a computed row: cols, rounded up.
func (f *factors) width() int { return (f.cols + panelWidth - 1) / panelWidth * panelWidth }

// compute writes rows row to row+3 of the delta to dst [4, width]. Rows beyond the last are zeros.
func (f *factors) compute(dst []float32, row int) {
	b := f.b[row*f.rank:]
	if hasAVX2 {
		width := f.width()
		_ = dst[rowGroup*width-1]
		deltaRowsAVX2(&dst[0], width*4, &b[0], f.rank, &f.panels[0], width/panelWidth, f.scale)
		return
	}
	f.computePortably(dst, b)
}

func (f *factors) computePortably(dst, b []float32) {
	width := f.width()
	for i := range rowGroup {
		row := b[i*f.rank : (i+1)*f.rank]
		for p := range width / panelWidth {
			out := dst[i*width+p*panelWidth:][:panelWidth]
			clear(out)
			for k, factor := range row {
				for j, a := range f.panels[(p*f.rank+k)*panelWidth:][:panelWidth] {
					out[j] = fma32(factor, a, out[j])
				}
			}
			for j := range out {
				out[j] *= f.scale
			}
		}
	}
}

// fma32 returns x·y + z, rounded once to float32.
//
// The product of two float32 is exact in float64. Where rounding the float64 sum to float32 could round for the second
// time the wrong way, that is, where it lies in the middle between two float32, the sum is first rounded to odd.
func fma32(x, y, z float32) float32 {
	product, c := float64(x)*float64(y), float64(z)
	sum := product + c
	bits := math.Float64bits(sum)
	exponent := bits >> 52 & 0x7ff
	if bits&0x1fffffff != 0x10000000 && exponent > 1023-126 { // a normal float32, not the middle between two
		return float32(sum)
	}
	// Knuth's two-sum: the sum's rounding error.
	back := sum - product
	rest := (product - (sum - back)) + (c - back)
	if bits&1 == 0 && (rest > 0 || rest < 0) {
		if rest > 0 == (sum > 0) {
			bits++
		} else {
			bits--
		}
		sum = math.Float64frombits(bits)
	}
	return float32(sum)
}

// changeStats counts what adding a delta did to a tensor.
type changeStats struct {
	Changed int64   // elements whose stored value differs
	Sum2    float64 // of the squared differences of stored values
	Base2   float64 // of the squared old values
}

func (s *changeStats) add(o changeStats) {
	s.Changed += o.Changed
	s.Sum2 += o.Sum2
	s.Base2 += o.Base2
}

// Relative is the Frobenius norm of the change over that of the base.
func (s changeStats) Relative() float64 {
	if s.Base2 == 0 {
		return 0
	}
	return math.Sqrt(s.Sum2 / s.Base2)
}

// laneStats is changeStats in eight lanes, as the assembly keeps it; same counts the elements that did not change.
type laneStats struct {
	sum2, base2 [8]float32
	same        [8]int32
}

func (l *laneStats) total(n int) changeStats {
	s := changeStats{Changed: int64(n)}
	for i := range 8 {
		s.Sum2 += float64(l.sum2[i])
		s.Base2 += float64(l.base2[i])
		s.Changed -= int64(l.same[i])
	}
	return s
}

// addDelta writes base + delta, rounded once to the type, to dst. dst and base hold len(delta) elements of type t,
// which is F32, F16 or BF16.
func addDelta(dst, base []byte, delta []float32, t tensor.DType) changeStats {
	n := len(delta) &^ 7
	var s changeStats
	if !hasAVX2 {
		n = 0
	}
	if n > 0 {
		var lanes laneStats
		switch t {
		case tensor.BF16:
			addBF16AVX2(&dst[0], &base[0], &delta[0], n, &lanes)
		case tensor.F16:
			addF16AVX2(&dst[0], &base[0], &delta[0], n, &lanes)
		case tensor.F32:
			addF32AVX2(&dst[0], &base[0], &delta[0], n, &lanes)
		}
		s = lanes.total(n)
	}
	size := t.BlockBytes()
	s.add(addPortably(dst[n*size:], base[n*size:], delta[n:], t))
	return s
}

func addPortably(dst, base []byte, delta []float32, t tensor.DType) changeStats {
	var s changeStats
	size := t.BlockBytes()
	for i, d := range delta {
		was := loadFloat(base[i*size:], t)
		storeFloat(dst[i*size:], float32(was+d), t)
		s.count(was, loadFloat(dst[i*size:], t))
	}
	return s
}

func (s *changeStats) count(was, is float32) {
	diff := float64(is) - float64(was)
	s.Sum2 += diff * diff
	s.Base2 += float64(was) * float64(was)
	if math.Float32bits(was) != math.Float32bits(is) {
		s.Changed++
	}
}

func loadFloat(b []byte, t tensor.DType) float32 {
	switch t {
	case tensor.BF16:
		return tensor.BF16ToF32(uint16(b[0]) | uint16(b[1])<<8)
	case tensor.F16:
		return tensor.F16ToF32(uint16(b[0]) | uint16(b[1])<<8)
	default:
		return math.Float32frombits(uint32(b[0]) | uint32(b[1])<<8 | uint32(b[2])<<16 | uint32(b[3])<<24)
	}
}

func storeFloat(b []byte, f float32, t tensor.DType) {
	switch t {
	case tensor.BF16:
		h := tensor.F32ToBF16(f)
		b[0], b[1] = byte(h), byte(h>>8)
	case tensor.F16:
		h := tensor.F32ToF16(f)
		b[0], b[1] = byte(h), byte(h>>8)
	default:
		u := math.Float32bits(f)
		b[0], b[1], b[2], b[3] = byte(u), byte(u>>8), byte(u>>16), byte(u>>24)
	}
}
