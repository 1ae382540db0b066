package lora

import (
	"fmt"
	"math"
	"slices"

	"quern/tensor"
)

// edit is one change of one base tensor by one adapter. Edits see a tensor in the checkpoint's layout, as rows of
// float32; the type that it is stored in concerns them only where PEFT rounds to it.
type edit interface {
	// load reads the adapter's part. stored is the type that the result is rounded to.
	load(stored tensor.DType) (loadedEdit, error)
}

// loadedEdit can be applied by several goroutines, to different rows.
type loadedEdit interface {
	// apply changes the rows from first on that x holds.
	apply(x []float32, first int)
}

// lowRank adds scale · B · A (roles lora_A and lora_B), or its transpose to an embedding (lora_embedding_A and _B).
type lowRank struct {
	module *Module
	scale  float64
	// roundDelta: PEFT rounds the delta to the base's type before it adds, for embeddings and after MiCA.
	roundDelta bool
}

func (e *lowRank) load(stored tensor.DType) (loadedEdit, error) {
	f, err := e.factors()
	if err != nil {
		return nil, err
	}
	l := &loadedLowRank{factors: f, round: tensor.F32}
	if e.roundDelta {
		l.round = stored
	}
	return l, nil
}

func (e *lowRank) factors() (*factors, error) {
	roleOfA, roleOfB := e.module.factorRoles()
	a, err := e.module.tensors[roleOfA].ReadFloats()
	if err != nil {
		return nil, err
	}
	b, err := e.module.tensors[roleOfB].ReadFloats()
	if err != nil {
		return nil, err
	}
	rank := e.module.Rank
	rows, cols := len(b)/rank, len(a)/rank
	if roleOfA == roleEmbedA {
		a, b = transpose(b, rows, rank), transpose(a, rank, cols)
		rows, cols = cols, rows
	}
	return newFactors(b, a, rows, cols, rank, float32(e.scale)), nil
}

// transpose turns [rows, cols] into [cols, rows].
func transpose(x []float32, rows, cols int) []float32 {
	out := make([]float32, len(x))
	for i := range rows {
		for j := range cols {
			out[j*rows+i] = x[i*cols+j]
		}
	}
	return out
}

type loadedLowRank struct {
	*factors
	round tensor.DType // F16 or BF16: the delta is rounded to it
}

func (l *loadedLowRank) apply(x []float32, first int) {
	l.eachRow(make([]float32, rowGroup*l.width()), len(x)/l.cols, first, func(i int, delta []float32) {
		row := x[i*l.cols : (i+1)*l.cols]
		for j, d := range delta {
			row[j] += d
		}
	})
}

// eachRow computes the delta of n rows from first on. scratch is for rowGroup rows of the padded width.
func (l *loadedLowRank) eachRow(scratch []float32, n, first int, f func(i int, delta []float32)) {
	width := l.width()
	for at := 0; at < n; at += rowGroup {
		l.compute(scratch, first+at)
		for i := range min(rowGroup, n-at) {
			delta := scratch[i*width : i*width+l.cols]
			if l.round == tensor.F16 || l.round == tensor.BF16 {
				roundTo(delta, l.round)
			}
			f(at+i, delta)
		}
	}
}

// roundTo rounds each value to what F16 or BF16 can hold; other types leave them as they are.
func roundTo(x []float32, t tensor.DType) {
	for i, v := range x {
		x[i] = rounded(v, t)
	}
}

func rounded(v float32, t tensor.DType) float32 {
	switch t {
	case tensor.BF16:
		return tensor.BF16ToF32(tensor.F32ToBF16(v))
	case tensor.F16:
		return tensor.F16ToF32(tensor.F32ToF16(v))
	}
	return v
}

// dora is DoRA of a linear layer: each row of base + delta is given the trained magnitude.
type dora struct{ lowRank }

func (e *dora) load(stored tensor.DType) (loadedEdit, error) {
	inner, err := e.lowRank.load(stored)
	if err != nil {
		return nil, err
	}
	magnitude, err := e.module.tensors[roleMagnitude].ReadFloats()
	return &loadedDora{inner, magnitude}, err
}

type loadedDora struct {
	delta     loadedEdit
	magnitude []float32
}

func (l *loadedDora) apply(x []float32, first int) {
	cols := l.delta.(*loadedLowRank).cols
	l.delta.apply(x, first)
	for i := range len(x) / cols {
		row := x[i*cols : (i+1)*cols]
		factor := l.magnitude[first+i] / norm(row)
		for j := range row {
			row[j] *= factor
		}
	}
}

// norm is the Euclidean norm in float32, summed in the order of PyTorch's linalg.norm along rows on processors with
// AVX2, without fused multiply-add: eight partial sums, then these one after another, then what is left over.
func norm(x []float32) float32 {
	const lanes = 8
	var parts [lanes]float32
	whole := len(x) / lanes * lanes
	for i, v := range x[:whole] {
		parts[i%lanes] += float32(v * v)
	}
	sum := parts[0]
	for _, p := range parts[1:] {
		sum += p
	}
	for _, v := range x[whole:] {
		sum += float32(v * v)
	}
	return float32(math.Sqrt(float64(sum)))
}

// doraEmbedding is DoRA of an embedding, whose magnitudes belong to the columns: the norms need all rows. PyTorch sums
// these one row after the other, in float32.
type doraEmbedding struct {
	lowRank
	// columns reads the tensor as the edit finds it, a few rows at a time.
	columns func(stored tensor.DType, visit func(x []float32, first int)) error
}

func (e *doraEmbedding) load(stored tensor.DType) (loadedEdit, error) {
	delta, err := e.lowRank.load(tensor.F32) // PEFT's DoRA does not round the delta
	if err != nil {
		return nil, err
	}
	factor, err := e.module.tensors[roleMagnitude].ReadFloats()
	if err != nil {
		return nil, err
	}
	sums := make([]float32, len(factor))
	err = e.columns(stored, func(x []float32, first int) {
		delta.apply(x, first)
		for i, v := range x {
			sums[i%len(sums)] += float32(v * v)
		}
	})
	for j := range factor {
		factor[j] /= float32(math.Sqrt(float64(sums[j])))
	}
	return &loadedDoraEmbedding{delta, factor}, err
}

type loadedDoraEmbedding struct {
	delta  loadedEdit
	factor []float32 // by column
}

func (l *loadedDoraEmbedding) apply(x []float32, first int) {
	l.delta.apply(x, first)
	for i := range x {
		x[i] *= l.factor[i%len(l.factor)]
	}
}

// replace puts a trained tensor in the place of the base's (modules_to_save, trained biases).
type replace struct{ with *tensor.Stored }

func (e *replace) load(tensor.DType) (loadedEdit, error) { return loadedReplace{e.with}, nil }

type loadedReplace struct{ with *tensor.Stored }

func (l loadedReplace) apply(x []float32, first int) {
	width := int(rowWidth(l.with.Shape))
	size := l.with.DType.BlockBytes()
	data := make([]byte, len(x)*size)
	if _, err := l.with.Data.ReadAt(data, int64(first*width*size)); err != nil {
		fillNaN(x) // the caller refuses what is not finite; the adapter was read whole when it was opened
		return
	}
	for i := range x {
		x[i] = loadFloat(data[i*size:], l.with.DType)
	}
}

func fillNaN(x []float32) {
	for i := range x {
		x[i] = float32(math.NaN())
	}
}

// addBias adds the trained bias of B, scaled, to the base's bias (lora_bias).
type addBias struct {
	bias  *tensor.Stored
	scale float64
}

func (e *addBias) load(tensor.DType) (loadedEdit, error) {
	values, err := e.bias.ReadFloats()
	for i := range values {
		values[i] *= float32(e.scale)
	}
	return loadedVector(values), err
}

type loadedVector []float32

func (l loadedVector) apply(x []float32, _ int) {
	for i := range x {
		x[i] += l[i]
	}
}

// tokenRows replaces the rows of some tokens (trainable_token_indices).
type tokenRows struct {
	rows *tensor.Stored // one for each id
	ids  []int
}

func (e *tokenRows) load(tensor.DType) (loadedEdit, error) {
	rows, err := e.rows.ReadFloats()
	return &loadedTokens{rows, e.ids}, err
}

type loadedTokens struct {
	rows []float32
	ids  []int
}

func (l *loadedTokens) apply(x []float32, first int) {
	width := len(l.rows) / len(l.ids)
	n := len(x) / width
	for i, id := range l.ids {
		if at := id - first; at >= 0 && at < n {
			copy(x[at*width:(at+1)*width], l.rows[i*width:(i+1)*width])
		}
	}
}

// rowWidth is the number of elements of one row as edits see them: a vector is one row, anything else is rows of its
// first dimension.
func rowWidth(s tensor.Shape) int64 {
	if len(s) < 2 {
		n := int64(1)
		for _, d := range s {
			n *= d
		}
		return n
	}
	n := int64(1)
	for _, d := range s[1:] {
		n *= d
	}
	return n
}

// checkTokenIDs checks trainable_token_indices against the size of the vocabulary.
func checkTokenIDs(ids []int, rows int64) error {
	for i, id := range ids {
		if id < 0 || int64(id) >= rows {
			return fmt.Errorf("trainable_token_indices names token %d; the base has %d", id, rows)
		}
		if slices.Contains(ids[:i], id) {
			return fmt.Errorf("trainable_token_indices names token %d twice", id)
		}
	}
	return nil
}
