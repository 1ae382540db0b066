package tensor

import (
	"math/rand/v2"
	"testing"
)

// BenchmarkCodecs measures one core, in bytes of float32 a second.
func BenchmarkCodecs(b *testing.B) {
	values := make([]float32, 1<<16)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range values {
		values[i] = float32(rng.NormFloat64() * 0.02)
	}
	for t := Invalid + 1; t < numDTypes; t++ {
		size, err := t.RowBytes(int64(len(values)))
		if err != nil {
			b.Fatal(err)
		}
		data := make([]byte, size)
		if t.CanEncode() {
			b.Run("encode/"+t.String(), func(b *testing.B) {
				b.SetBytes(4 * int64(len(values)))
				for b.Loop() {
					if err := Encode(data, values, t); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
		if t.CanDecode() {
			b.Run("decode/"+t.String(), func(b *testing.B) {
				b.SetBytes(4 * int64(len(values)))
				for b.Loop() {
					if err := Decode(values, data, t); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
