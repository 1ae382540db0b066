package lora

import (
	"bytes"
	"context"
	"fmt"
	"math"
	"slices"
	"sync"

	"quern/tensor"
)

// Fit says how well a merged model agrees with a base and its adapters, from the weights alone. Its JSON is part of
// the output of `quern lora verify --json`.
type Fit struct {
	Base      string   `json:"base"`
	Verdict   Verdict  `json:"verdict"`
	Why       string   `json:"why"`
	Exact     int      `json:"exact"`   // tensors that are what the merge gives, to the last bit
	Rounded   int      `json:"rounded"` // that are it but for rounding, as tools that round twice make them
	Unfitting []Misfit `json:"unfitting,omitempty"`
}

// Verdict is the answer to "is M = B + Δ?".
type Verdict string

const (
	Merged    Verdict = "merged"     // M = B + Δ
	Unmerged  Verdict = "unmerged"   // M = B: the adapters are not in it
	OtherBase Verdict = "other base" // neither
)

// Misfit is a tensor of the merged model that is not what the merge gives.
type Misfit struct {
	Name   string `json:"name"`
	Target bool   `json:"target"`           // that an adapter changes
	Reason string `json:"reason,omitempty"` // empty: its values differ
	// Distance is ‖M − (B + Δ)‖ / ‖B + Δ‖; IsBase tells whether the tensor is the base's, unchanged.
	Distance float64 `json:"distance"`
	IsBase   bool    `json:"is_base"`
}

// Verify compares a merged model with what the Plan makes of its base. Types and containers may differ: a checkpoint's
// merge may be looked for in a GGUF.
func (p *Plan) Verify(ctx context.Context, merged *Base) (*Fit, error) {
	fit := &Fit{Base: p.Base.Path}
	var jobs []*job
	var checks []*comparison
	for _, t := range p.expected() {
		c, misfit := p.compare(t, merged)
		if misfit != nil {
			fit.Unfitting = append(fit.Unfitting, *misfit)
			continue
		}
		if c != nil {
			jobs, checks = append(jobs, c.job), append(checks, c)
		}
	}
	if err := run(ctx, jobs, nil); err != nil {
		return nil, err
	}
	fit.judge(checks)
	return fit, nil
}

// expectedTensor is a tensor that the merged model should have.
type expectedTensor struct {
	key    string
	source *Weight
	edits  []stagedEdit
}

func (p *Plan) expected() []expectedTensor {
	var list []expectedTensor
	for _, w := range p.Base.Weights {
		e := expectedTensor{key: w.Key, source: w}
		if t := p.targets[w]; t != nil {
			e.edits = t.edits
		}
		list = append(list, e)
	}
	if p.head != nil {
		list = append(list, expectedTensor{headKey, p.head.source, p.head.edits})
	}
	return list
}

// compare makes the comparison of one tensor. It returns neither where there is nothing to compare: a vision tower or
// layers for multi-token prediction that the merged model leaves out.
func (p *Plan) compare(t expectedTensor, merged *Base) (*comparison, *Misfit) {
	found, err := merged.lookup(t.key)
	switch {
	case err != nil:
		return nil, &Misfit{Name: t.key, Target: len(t.edits) > 0, Reason: err.Error()}
	case found == nil && t.source.part != partText && !merged.has(t.source.part):
		return nil, nil
	case found == nil && t.key == headKey && merged.tied():
		return nil, &Misfit{Name: t.key, Target: true, IsBase: true, Reason: "the merged model still shares it with the embedding"}
	case found == nil:
		return nil, &Misfit{Name: t.key, Target: len(t.edits) > 0, Reason: "the merged model has no such tensor"}
	case found.rows != t.source.rows || found.width != t.source.width:
		return nil, &Misfit{Name: found.Name, Target: len(t.edits) > 0, Reason: fmt.Sprintf("it is %v, the base's is %v", found.Shape, t.source.Shape)}
	case !found.DType.CanDecode() || !t.source.DType.CanDecode():
		return nil, &Misfit{Name: found.Name, Target: len(t.edits) > 0, Reason: fmt.Sprintf("it cannot be compared: %v against %v", found.DType, t.source.DType)}
	}
	// A checkpoint is merged in its own type and then stored in another; a GGUF in the type that it is stored in.
	spec := tensor.Spec{Name: found.Name, DType: t.source.DType, Shape: t.source.Shape}
	if p.Base.IsGGUF() && found.DType.CanEncode() {
		spec.DType = found.DType
	}
	if !spec.DType.CanEncode() {
		spec.DType = tensor.F32
	}
	c := &comparison{found: found, target: len(t.edits) > 0}
	c.job = newJob(t.source, spec, t.edits, false, len(p.Stages))
	c.job.emit = c.block
	return c, nil
}

func (b *Base) has(p part) bool {
	return slices.ContainsFunc(b.Weights, func(w *Weight) bool { return w.part == p })
}

// comparison holds a tensor of the merged model against what it should be.
type comparison struct {
	job    *job
	found  *Weight
	target bool

	mu        sync.Mutex
	different int64   // values that differ
	beyond    int64   // values that differ by more than rounding
	fromBase  int64   // values that differ from the base's
	error2    float64 // Σ (M − (B + Δ))²
	norm2     float64 // Σ (B + Δ)²
}

// block compares some rows. The values of both sides are in the checkpoint's layout.
func (c *comparison) block(rows []byte, first, n int64) error {
	want := make([]float32, n*c.job.w.width)
	if err := c.job.w.decode(want, rows, c.job.spec.DType, c.job.w.width); err != nil {
		return err
	}
	size, err := c.found.DType.RowBytes(c.found.width)
	if err != nil {
		return err
	}
	stored := make([]byte, n*size)
	if err := c.found.readRows(c.found.Data, stored, first, n, size); err != nil {
		return err
	}
	have := make([]float32, len(want))
	if err := c.found.decode(have, stored, c.found.DType, c.found.width); err != nil {
		return err
	}
	base, err := c.baseValues(first, n)
	if err != nil {
		return err
	}
	if (c.found.DType != c.job.spec.DType || !c.found.plain()) && c.found.DType.CanEncode() { // stored in another form after the merge
		again := make([]byte, len(stored))
		for _, x := range [][]float32{want, base} {
			if err := c.found.encode(again, x, c.found.DType, c.found.width); err != nil {
				return err
			}
			if bytes.Equal(again, stored) && &x[0] == &want[0] {
				copy(want, have)
			} else if err := c.found.decode(x, again, c.found.DType, c.found.width); err != nil {
				return err
			}
		}
	}
	c.count(have, want, base)
	return nil
}

func (c *comparison) baseValues(first, n int64) ([]float32, error) {
	w := c.job.w
	size, err := w.DType.RowBytes(w.width)
	if err != nil {
		return nil, err
	}
	data, x := make([]byte, n*size), make([]float32, n*w.width)
	if err := w.readRows(w.Data, data, first, n, size); err != nil {
		return nil, err
	}
	return x, w.decode(x, data, w.DType, w.width)
}

// count adds a block's values. Two roundings to a type differ by a unit in the last place of the larger of base and
// result at most.
func (c *comparison) count(have, want, base []float32) {
	unit := max(unitOf(c.found.DType), unitOf(c.job.spec.DType))
	var different, beyond, fromBase int64
	var error2, norm2 float64
	for i, w := range want {
		d := math.Abs(float64(have[i]) - float64(w))
		if d != 0 {
			different++
			if d > unit*math.Max(math.Abs(float64(w)), math.Abs(float64(base[i]))) {
				beyond++
			}
		}
		if have[i] != base[i] {
			fromBase++
		}
		error2 += d * d
		norm2 += float64(w) * float64(w)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.different += different
	c.beyond += beyond
	c.fromBase += fromBase
	c.error2 += error2
	c.norm2 += norm2
}

// unitOf is the largest distance between neighbouring values of a type, relative to them.
func unitOf(t tensor.DType) float64 {
	switch t {
	case tensor.F32:
		return 0x1p-20 // some sums are in another order than PEFT's
	case tensor.F16:
		return 0x1p-10
	case tensor.BF16:
		return 0x1p-7
	default:
		return 0x1p-3
	}
}

// fits tells whether the tensor is what the merge gives: exactly, or with most values exact and the rest a rounding
// away. A tool that rounds twice changes about a fifth of bf16 values; a base that was trained further, nearly all.
func (c *comparison) fits() (exact, rounded bool) {
	n := c.job.w.rows * c.job.w.width
	return c.different == 0, c.beyond == 0 && c.different*10 <= n*4
}

func (f *Fit) judge(checks []*comparison) {
	targets, unchanged := 0, 0
	for _, c := range checks {
		if c.target {
			targets++
			if c.fromBase == 0 {
				unchanged++
			}
		}
		exact, rounded := c.fits()
		switch {
		case exact:
			f.Exact++
		case rounded:
			f.Rounded++
		default:
			m := Misfit{Name: c.found.Name, Target: c.target, IsBase: c.fromBase == 0}
			if c.norm2 > 0 {
				m.Distance = math.Sqrt(c.error2 / c.norm2)
			}
			f.Unfitting = append(f.Unfitting, m)
		}
	}
	others := slices.ContainsFunc(f.Unfitting, func(m Misfit) bool { return !m.IsBase })
	switch {
	case len(f.Unfitting) == 0:
		f.Verdict = Merged
		f.Why = fmt.Sprintf("all %d tensors are what the merge gives%s", f.Exact+f.Rounded, roundedNote(f.Rounded))
	case !others && unchanged == targets:
		f.Verdict = Unmerged
		f.Why = fmt.Sprintf("all %d target tensors are the base's own: the adapters are not in it", targets)
	case !others:
		f.Verdict = OtherBase
		f.Why = fmt.Sprintf("%d of %d target tensors are the base's own: only a part of the changes is in it", unchanged, targets)
	default:
		f.Verdict = OtherBase
		f.Why = fmt.Sprintf("%d of %d tensors are not what the merge gives", len(f.Unfitting), len(f.Unfitting)+f.Exact+f.Rounded)
	}
}

func roundedNote(n int) string {
	if n == 0 {
		return ", to the last bit"
	}
	return fmt.Sprintf(", %d of them but for rounding", n)
}
