package synth

import (
	"bytes"
	"context"
	"io"
	"math"
	"math/rand/v2"
	"strings"

	"quern/arch"
	"quern/tensor"
)

// constant says which tensors are not random: norms scale by one, biases add nothing, and the decay of linear attention
// is moderate. With them activations stay finite through any number of layers. Values are those of a checkpoint.
func constant(t *arch.Tensor) (value float32, ok bool) {
	name := t.Sources[0]
	switch {
	case strings.Contains(name, "norm"):
		if t.Op == arch.AddOne {
			return 0, true
		}
		return 1, true
	case strings.HasSuffix(name, "bias"), t.Op == arch.NegExp:
		return 0, true
	}
	return 0, false
}

// applied is a checkpoint's value as GGUF stores it.
func applied(op arch.Op, x float32) float32 {
	switch op {
	case arch.AddOne:
		return x + 1
	case arch.NegExp:
		return -float32(math.Exp(float64(x)))
	}
	return x
}

// poolValues is how many random values there are of each type. Tensors are filled with stretches from anywhere in the
// pool: quick to write at any size, and no two rows the same.
const (
	poolValues    = 1 << 20
	stretchValues = 1 << 14 // a multiple of every block length
)

// fill writes the tensors' data.
func fill(ctx context.Context, w io.WriterAt, specs []tensor.Spec, offsets []int64, constants map[string]float32) error {
	r := rand.New(rand.NewPCG(1, 2)) // the same file every time
	pools := map[tensor.DType][]byte{}
	for i, spec := range specs {
		if err := ctx.Err(); err != nil {
			return err
		}
		size, err := spec.DType.Bytes(spec.Shape)
		if err != nil {
			return err
		}
		if value, ok := constants[spec.Name]; ok {
			err = writeConstant(w, offsets[i], size, spec.DType, value)
		} else {
			if pools[spec.DType] == nil {
				if pools[spec.DType], err = newPool(r, spec.DType); err != nil {
					return err
				}
			}
			err = writeRandom(ctx, w, offsets[i], size, pools[spec.DType], spec.DType, r)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// newPool draws from the distribution with which such models are initialised.
func newPool(r *rand.Rand, t tensor.DType) ([]byte, error) {
	values := make([]float32, poolValues)
	for i := range values {
		values[i] = float32(r.NormFloat64() * 0.02)
	}
	pool := make([]byte, poolValues/t.BlockLen()*t.BlockBytes())
	return pool, tensor.Encode(pool, values, t)
}

func writeConstant(w io.WriterAt, at, size int64, t tensor.DType, value float32) error {
	one := make([]byte, t.BlockBytes())
	if err := tensor.Encode(one, []float32{value}, t); err != nil {
		return err
	}
	_, err := w.WriteAt(bytes.Repeat(one, int(size)/len(one)), at)
	return err
}

func writeRandom(ctx context.Context, w io.WriterAt, at, size int64, pool []byte, t tensor.DType, r *rand.Rand) error {
	stretch := stretchValues / t.BlockLen() * t.BlockBytes()
	piece := make([]byte, 0, 256*stretch)
	for size > 0 {
		piece = piece[:0]
		for len(piece) < cap(piece) && int64(len(piece)) < size {
			blocks := (len(pool) - stretch) / t.BlockBytes()
			from := r.IntN(blocks+1) * t.BlockBytes()
			n := min(int64(stretch), size-int64(len(piece)))
			piece = append(piece, pool[from:from+int(n)]...)
		}
		if _, err := w.WriteAt(piece, at); err != nil {
			return err
		}
		at, size = at+int64(len(piece)), size-int64(len(piece))
		if err := ctx.Err(); err != nil {
			return err
		}
	}
	return nil
}
