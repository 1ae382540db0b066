package kernel

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"quern/tensor"
)

func TestMain(m *testing.M) {
	Register()
	m.Run()
}

// randomWeights makes rows of Q8_0 with all numbers that a byte can hold, and scales of different sizes.
func randomWeights(r *rand.Rand, rows, k int) []byte {
	w := make([]byte, rows*k/BlockSize*BlockBytes)
	for at := 0; at < len(w); at += BlockBytes {
		binary.LittleEndian.PutUint16(w[at:], uint16(0x1000+r.IntN(0x1800))) // positive, normal, at most 2^-5
		for i := range BlockSize {
			w[at+2+i] = byte(r.Uint32())
		}
	}
	return w
}

func randomColumns(r *rand.Rand, columns, k int) []float32 {
	x := make([]float32, columns*k)
	for i := range x {
		x[i] = float32(r.NormFloat64())
	}
	return x
}

// reference computes w·x in double precision, the activations rounded to Q8_0 (ggml-quants.c, quantize_row_q8_0_ref), and
// the sum of the sizes of what is added up, which rounding errors are measured by.
func reference(w []byte, x []float32, k int) (product, size []float64) {
	rowBytes := k / BlockSize * BlockBytes
	for ; len(x) > 0; x = x[k:] {
		q, scales := roundQ8(x[:k])
		for row := w; len(row) > 0; row = row[rowBytes:] {
			var sum, abs float64
			for b := range k / BlockSize {
				block := row[b*BlockBytes:]
				scale := float64(tensor.F16ToF32(binary.LittleEndian.Uint16(block))) * scales[b]
				for i := range BlockSize {
					term := float64(int8(block[2+i])) * float64(q[b*BlockSize+i]) * scale
					sum, abs = sum+term, abs+math.Abs(term)
				}
			}
			product, size = append(product, sum), append(size, abs)
		}
	}
	return product, size
}

func roundQ8(x []float32) (q []int8, scales []float64) {
	for ; len(x) > 0; x = x[BlockSize:] {
		var largest float32
		for _, v := range x[:BlockSize] {
			largest = max(largest, float32(math.Abs(float64(v))))
		}
		inverse := float32(0)
		if largest != 0 {
			inverse = 127 / largest
		}
		for _, v := range x[:BlockSize] {
			q = append(q, int8(math.RoundToEven(float64(v*inverse))))
		}
		scales = append(scales, float64(tensor.F16ToF32(tensor.F32ToF16(largest/127))))
	}
	return q, scales
}

func TestMulMatIsTheProduct(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	worst := 0.0
	for _, k := range []int{32, 64, 96, 896, 4864} {
		for _, rows := range []int{1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 257} {
			for _, columns := range []int{1, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16, 64, 200} {
				if rows*columns*k > 1e6 {
					continue
				}
				w, x := randomWeights(r, rows, k), randomColumns(r, columns, k)
				want, size := reference(w, x, k)
				for _, threads := range threadCounts(rows, columns) {
					got, err := MulMat(w, x, k, threads)
					if err != nil {
						t.Fatal(err)
					}
					for i := range got {
						off := math.Abs(float64(got[i])-want[i]) / size[i]
						worst = max(worst, off)
						// k/32 additions in single precision, each off by at most 2^-24 of what is added up.
						if limit := float64(k/BlockSize+2) * 0x1p-24; !(off <= limit) {
							t.Fatalf("k %d, %d rows, %d columns, %d threads: row %d, column %d is %v, want %v",
								k, rows, columns, threads, i%rows, i/rows, got[i], want[i])
						}
					}
				}
			}
		}
	}
	t.Logf("kernel: %v; worst difference %.2g of the sum of sizes", Supported(), worst)
}

// What a column gives does not depend on the columns beside it, nor on the number of threads.
func TestMulMatDoesNotDependOnTheBatch(t *testing.T) {
	if !Supported() {
		t.Skip("ggml's own product depends on the number of columns, and this processor has no kernel of ours")
	}
	r := rand.New(rand.NewPCG(3, 4))
	const k, rows, columns = 896, 100, 64
	w, x := randomWeights(r, rows, k), randomColumns(r, columns, k)
	all, err := MulMat(w, x, k, 1)
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n <= columns; n += 3 {
		some, err := MulMat(w, x[(columns-n)*k:], k, 3)
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range some {
			if want := all[(columns-n)*rows+i]; v != want {
				t.Fatalf("%d columns: row %d of column %d is %v, among %d columns %v", n, i%rows, i/rows, v, columns, want)
			}
		}
	}
}

// threadCounts are one, two, and now and then more than there are processors: their waiting for one another is slow.
func threadCounts(rows, columns int) []int {
	if rows == 100 && columns%4 == 0 {
		return []int{1, 2, 5}
	}
	return []int{1, 2}
}

func TestMulMatRefusesOddSizes(t *testing.T) {
	for _, k := range []int{0, -32, 16, 40} {
		if _, err := MulMat(make([]byte, 34), make([]float32, 40), k, 1); err == nil {
			t.Errorf("k %d was taken", k)
		}
	}
}

// attentionCase makes random queries, keys and values, and a mask under which token t of a stream sees what sees says.
func attentionCase(r *rand.Rand, n AttentionSizes, sees func(stream, token, cell int) bool) (q []float32, k, v, mask []uint16) {
	q = randomColumns(r, n.Streams*n.Tokens*n.Heads, n.Key)
	half := func(n int) []uint16 {
		x := make([]uint16, n)
		for i := range x {
			x[i] = uint16(r.IntN(2))<<15 | uint16(0x2000+r.IntN(0x1f00)) // both signs, 2^-7 to 2
		}
		return x
	}
	k, v = half(n.Streams*n.Cells*n.Groups*n.Key), half(n.Streams*n.Cells*n.Groups*n.Value)
	mask = make([]uint16, n.Streams*n.Tokens*n.Cells)
	for s := range n.Streams {
		for t := range n.Tokens {
			for c := range n.Cells {
				if !sees(s, t, c) {
					mask[(s*n.Tokens+t)*n.Cells+c] = 0xfc00 // -infinity
				}
			}
		}
	}
	return q, k, v, mask
}

// attend computes attention in double precision. A token that sees nothing gets zeros.
func attend(n AttentionSizes, q []float32, k, v, mask []uint16, scale float32) []float64 {
	out := make([]float64, n.Streams*n.Tokens*n.Heads*n.Value)
	at := func(x []uint16, i int) float64 { return float64(tensor.F16ToF32(x[i])) }
	for row := range n.Streams * n.Tokens * n.Heads {
		token, group := row/n.Heads, row%n.Heads/(n.Heads/n.Groups)
		weights, total, largest := make([]float64, n.Cells), 0.0, math.Inf(-1)
		key := func(c int) int { return (token/n.Tokens*n.Cells+c)*n.Groups + group }
		for c := range n.Cells {
			weights[c] = math.Inf(-1)
			if mask[token*n.Cells+c] == 0 {
				weights[c] = 0
				for d := range n.Key {
					weights[c] += float64(q[row*n.Key+d]) * at(k, key(c)*n.Key+d) * float64(scale)
				}
				largest = max(largest, weights[c])
			}
		}
		for c := range n.Cells {
			if weights[c] = math.Exp(weights[c] - largest); !(weights[c] > 0) {
				continue
			}
			total += weights[c]
			for d := range n.Value {
				out[row*n.Value+d] += weights[c] * at(v, key(c)*n.Value+d)
			}
		}
		for d := range n.Value {
			if total > 0 {
				out[row*n.Value+d] /= total
			}
		}
	}
	return out
}

func TestAttentionIsAttention(t *testing.T) {
	causal := func(_, token, cell int) bool { return cell <= token*3+1 }
	lanes := func(_, token, cell int) bool { return cell < 20 || cell/16%8 == token%8 } // a shared prefix, then parts of its own
	nothing := func(_, token, cell int) bool { return token%3 != 0 && cell%2 == 0 }     // some tokens see no cell at all
	r := rand.New(rand.NewPCG(7, 8))
	worst := 0.0
	for _, n := range []AttentionSizes{
		{Key: 64, Value: 64, Cells: 256, Tokens: 1, Heads: 14, Groups: 2, Streams: 1},
		{Key: 64, Value: 64, Cells: 256, Tokens: 16, Heads: 14, Groups: 2, Streams: 1},
		{Key: 64, Value: 64, Cells: 512, Tokens: 131, Heads: 14, Groups: 2, Streams: 1},
		{Key: 128, Value: 128, Cells: 256, Tokens: 9, Heads: 16, Groups: 2, Streams: 1},
		{Key: 256, Value: 256, Cells: 256, Tokens: 17, Heads: 8, Groups: 2, Streams: 1},
		{Key: 16, Value: 16, Cells: 256, Tokens: 5, Heads: 4, Groups: 4, Streams: 1},
		{Key: 32, Value: 80, Cells: 32, Tokens: 3, Heads: 6, Groups: 1, Streams: 1},
		{Key: 64, Value: 64, Cells: 256, Tokens: 4, Heads: 71, Groups: 1, Streams: 1},
		{Key: 64, Value: 64, Cells: 256, Tokens: 7, Heads: 4, Groups: 2, Streams: 3},
	} {
		for name, sees := range map[string]func(int, int, int) bool{"causal": causal, "lanes": lanes, "nothing": nothing} {
			q, k, v, mask := attentionCase(r, n, sees)
			scale := float32(1 / math.Sqrt(float64(n.Key)))
			want := attend(n, q, k, v, mask, scale)
			for _, threads := range []int{1, 2, 16} {
				got, err := Attention(n, q, k, v, mask, scale, threads)
				if err != nil {
					t.Fatal(err)
				}
				for i := range got {
					off := math.Abs(float64(got[i]) - want[i])
					worst = max(worst, off)
					limit := 2e-6 // single precision, values below 2
					if !Supported() {
						limit = 1e-2 // ggml adds up in half precision
					}
					if !(off <= limit) {
						t.Fatalf("%+v, %s, %d threads: number %d is %v, want %v", n, name, threads, i, got[i], want[i])
					}
				}
			}
		}
	}
	t.Logf("kernels: %v; worst difference %.2g", Supported(), worst)
}

func TestAttentionRefusesOddSizes(t *testing.T) {
	if _, err := Attention(AttentionSizes{Key: 64, Value: 64, Cells: 33, Tokens: 1, Heads: 1, Groups: 1, Streams: 1}, nil, nil, nil, nil, 1, 1); err == nil {
		t.Error("33 cells were taken")
	}
}

func BenchmarkMulMat(b *testing.B) {
	r := rand.New(rand.NewPCG(5, 6))
	const k, rows = 2048, 2048
	w := randomWeights(r, rows, k)
	for _, columns := range []int{1, 4, 16, 128, 512} {
		x := randomColumns(r, columns, k)
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			for b.Loop() {
				if _, err := MulMat(w, x, k, 1); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(k*rows*columns)*float64(b.N)/b.Elapsed().Seconds()/1e9, "GMAC/s")
		})
	}
}

func BenchmarkAttention(b *testing.B) {
	r := rand.New(rand.NewPCG(9, 10))
	for _, tokens := range []int{1, 16, 128} {
		n := AttentionSizes{Key: 64, Value: 64, Cells: 8192, Tokens: tokens, Heads: 14, Groups: 2, Streams: 1}
		q, k, v, mask := attentionCase(r, n, func(_, token, cell int) bool { return cell/512 == token%16 })
		b.Run(fmt.Sprint(tokens), func(b *testing.B) {
			for b.Loop() {
				if _, err := Attention(n, q, k, v, mask, 0.125, 1); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
