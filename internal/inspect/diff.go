package inspect

import (
	"context"
	"errors"
	"fmt"
	"math"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"

	"quern/arch"
	"quern/gguf"
	"quern/tensor"
)

// Diff says how two models differ: the JSON of `quern inspect --diff`.
type Diff struct {
	A       string `json:"a"`
	B       string `json:"b"`
	Equal   bool   `json:"equal"`   // all tensors are in both and hold the same values
	Layout  string `json:"layout"`  // "stored", or "gguf" where a checkpoint was brought into GGUF's layout
	Same    int    `json:"same"`    // tensors with the same values
	Changed int    `json:"changed"` // tensors with other values

	OnlyA    []string       `json:"only_a,omitempty"`
	OnlyB    []string       `json:"only_b,omitempty"`
	Tensors  []TensorDiff   `json:"tensors"` // by name
	Metadata []MetadataDiff `json:"metadata,omitempty"`
}

// TensorDiff compares the values of one tensor, B minus A.
type TensorDiff struct {
	Name    string       `json:"name"`
	TypeA   string       `json:"type_a"`
	TypeB   string       `json:"type_b"`
	Shape   tensor.Shape `json:"shape"`
	Equal   bool         `json:"equal"`
	Differ  int64        `json:"differ"` // elements that are not the same
	Of      int64        `json:"of"`
	Max     float64      `json:"max"`               // of the absolute differences
	Mean    float64      `json:"mean"`              // of the absolute differences, over all elements
	Problem string       `json:"problem,omitempty"` // why it could not be compared
}

// MetadataDiff is an entry that the two do not share.
type MetadataDiff struct {
	Key string `json:"key"`
	A   any    `json:"a"` // null: not there
	B   any    `json:"b"`
}

// side is one side of the comparison of a tensor.
type side struct {
	spec    tensor.Spec
	table   *arch.Tensor
	sources []*tensor.Stored
}

// Compare compares two subjects value by value. A checkpoint and a GGUF are compared in GGUF's layout.
func Compare(ctx context.Context, a, b *Subject) (*Diff, error) {
	if a.Adapter != nil || b.Adapter != nil {
		return nil, errors.New("adapters cannot be compared this way; see quern lora inspect")
	}
	d := &Diff{A: a.Path, B: b.Path, Layout: "stored", Tensors: []TensorDiff{}}
	left, right := a.stored(), b.stored()
	if isGGUF(a.Kind) != isGGUF(b.Kind) {
		d.Layout = "gguf"
		var err error
		if left, err = a.inGGUF(); err == nil {
			right, err = b.inGGUF()
		}
		if err != nil {
			return nil, err
		}
	}
	if isGGUF(a.Kind) && isGGUF(b.Kind) {
		d.Metadata = compareMetadata(a.Meta, b.Meta)
	}
	var names []string
	for name := range left {
		if _, ok := right[name]; ok {
			names = append(names, name)
		} else {
			d.OnlyA = append(d.OnlyA, name)
		}
	}
	for name := range right {
		if _, ok := left[name]; !ok {
			d.OnlyB = append(d.OnlyB, name)
		}
	}
	for _, list := range [][]string{names, d.OnlyA, d.OnlyB} {
		slices.Sort(list)
	}
	if err := d.compareAll(ctx, names, left, right); err != nil {
		return nil, err
	}
	d.Equal = d.Changed == 0 && len(d.OnlyA) == 0 && len(d.OnlyB) == 0
	return d, nil
}

func isGGUF(k Kind) bool { return k == KindGGUF || k == KindGGUFAdapter }

// stored returns the tensors as they are, by name; of checkpoints by the name of the text-only class where they have
// one, so that both spellings of a multimodal model can be compared.
func (s *Subject) stored() map[string]side {
	all := map[string]side{}
	for i := range s.Tensors {
		t := &s.Tensors[i]
		name := t.Name
		if canonical, ok := arch.Canonical(name); ok && s.Kind == KindCheckpoint {
			name = canonical
		}
		all[name] = plain(t)
	}
	return all
}

func plain(t *tensor.Stored) side {
	shape := t.Shape
	if len(shape) < 2 && t.DType.Quantized() { // its blocks can only be read as a row
		n, _ := shape.Elements()
		shape = tensor.Shape{1, n}
	}
	return side{t.Spec, &arch.Tensor{GGUF: t.Name, Shape: shape, SourceShape: shape}, []*tensor.Stored{t}}
}

// inGGUF returns the tensors of the text model in GGUF's layout, by GGUF name.
func (s *Subject) inGGUF() (map[string]side, error) {
	all := map[string]side{}
	switch {
	case isGGUF(s.Kind):
		return s.stored(), nil
	case s.hf == nil:
		return nil, fmt.Errorf("%s cannot be compared with a GGUF: %s", s.Path, strings.Join(append(s.Problems, "it is no checkpoint folder"), "; "))
	}
	for i := range s.hf.Tensors {
		t := &s.hf.Tensors[i]
		if sources := s.hf.Stored(t); sources != nil {
			all[t.GGUF] = side{tensor.Spec{Name: t.GGUF, DType: sources[0].DType, Shape: t.Shape}, t, sources}
		}
	}
	return all, nil
}

func (d *Diff) compareAll(ctx context.Context, names []string, left, right map[string]side) error {
	d.Tensors = make([]TensorDiff, len(names))
	errs := make([]error, len(names))
	next := make(chan int)
	var workers sync.WaitGroup
	for range min(runtime.GOMAXPROCS(0), len(names)) {
		workers.Go(func() {
			for i := range next {
				d.Tensors[i], errs[i] = compareTensor(ctx, names[i], left[names[i]], right[names[i]])
			}
		})
	}
	for i := range names {
		next <- i
	}
	close(next)
	workers.Wait()
	for i := range names {
		if errs[i] != nil {
			return errs[i]
		}
		if d.Tensors[i].Equal {
			d.Same++
		} else {
			d.Changed++
		}
	}
	return nil
}

func compareTensor(ctx context.Context, name string, a, b side) (TensorDiff, error) {
	d := TensorDiff{Name: name, TypeA: a.spec.DType.String(), TypeB: b.spec.DType.String(), Shape: append(tensor.Shape{}, a.spec.Shape...)}
	switch {
	case !a.spec.Shape.Equal(b.spec.Shape):
		d.Problem = fmt.Sprintf("the shapes differ: %v and %v", a.spec.Shape, b.spec.Shape)
		return d, nil
	case !a.spec.DType.CanDecode() || !b.spec.DType.CanDecode():
		if a.spec.DType != b.spec.DType {
			d.Problem = "values of this type cannot be read"
			return d, nil
		}
		return d, d.compareBytes(a, b)
	}
	rows, rowLen := a.table.NumRows(), a.table.RowLen()
	if rowLen != b.table.RowLen() {
		d.Problem = "a quantised vector cannot be compared with another type"
		return d, nil
	}
	perChunk := max(1, (1<<18)/max(1, rowLen))
	var ra, rb arch.Reader
	x, y := make([]float32, min(perChunk, rows)*rowLen), make([]float32, min(perChunk, rows)*rowLen)
	sum := 0.0
	for from := int64(0); from < rows; from += perChunk {
		if err := ctx.Err(); err != nil {
			return d, err
		}
		n := min(perChunk, rows-from) * rowLen
		if err := ra.Floats(a.table, a.sources, from, x[:n]); err != nil {
			return d, err
		}
		if err := rb.Floats(b.table, b.sources, from, y[:n]); err != nil {
			return d, err
		}
		d.Of += n
		for i, v := range x[:n] {
			if v == y[i] || v != v && y[i] != y[i] {
				continue
			}
			d.Differ++
			delta := math.Abs(float64(y[i]) - float64(v))
			if !(delta < math.MaxFloat64) { // infinite, or a number on one side only
				delta = math.MaxFloat64
			}
			d.Max = max(d.Max, delta)
			sum += delta
		}
	}
	d.Equal = d.Differ == 0
	if d.Of > 0 {
		d.Mean = min(sum/float64(d.Of), math.MaxFloat64)
	}
	return d, nil
}

// compareBytes compares tensors whose values cannot be read.
func (d *TensorDiff) compareBytes(a, b side) error {
	return a.sources[0].View(func(x []byte) error {
		y, err := b.sources[0].ReadAll()
		if err != nil {
			return err
		}
		if d.Equal = slices.Equal(x, y); !d.Equal {
			d.Problem = "the stored bytes differ; values of this type cannot be read"
		}
		return nil
	})
}

func compareMetadata(a, b gguf.Metadata) []MetadataDiff {
	var diffs []MetadataDiff
	for _, kv := range a {
		other, ok := b.Get(kv.Key)
		switch {
		case !ok:
			diffs = append(diffs, MetadataDiff{kv.Key, entry(kv).Value, nil})
		case !reflect.DeepEqual(kv.Value, other):
			diffs = append(diffs, MetadataDiff{kv.Key, entry(kv).Value, entry(gguf.KV{Key: kv.Key, Value: other}).Value})
		}
	}
	for _, kv := range b {
		if _, ok := a.Get(kv.Key); !ok {
			diffs = append(diffs, MetadataDiff{kv.Key, nil, entry(kv).Value})
		}
	}
	return diffs
}
