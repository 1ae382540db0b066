package lora

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"quern/gguf"
	"quern/internal/atomicfile"
	"quern/tensor"
)

// Export writes the Plan's one adapter as a GGUF adapter, which llama.cpp applies at run time without changing the
// model. Unlike llama.cpp's own script it is right for rsLoRA and for patterns of ranks and alphas, since the factor
// of each module goes into its B, and for Qwen3.5, whose heads GGUF reorders: the rows of B and the columns of A are
// reordered by the table that converts the weights.
//
// What llama.cpp cannot apply at run time is refused: DoRA, trained biases, whole modules, trained tokens, and changes
// of an embedding that is the output head too.
func (p *Plan) Export(ctx context.Context, out string) (*ExportReport, error) {
	if len(p.Stages) != 1 {
		return nil, errors.New("one adapter makes one GGUF adapter")
	}
	x := exporter{Plan: p, adapter: p.Stages[0].Adapter, scale: p.Stages[0].Scale, data: map[string][]byte{}}
	if err := x.check(); err != nil {
		return nil, fmt.Errorf("adapter %s cannot be applied at run time: %w; merge it instead", x.adapter.Path, err)
	}
	x.alpha = x.commonAlpha()
	for _, m := range x.adapter.Modules {
		if !m.isLinear() && !m.isEmbedding() { // a copy of the base's tensor
			continue
		}
		if err := x.addModule(m); err != nil {
			return nil, fmt.Errorf("module %s: %w", m.Path, err)
		}
		if err := ctx.Err(); err != nil {
			return nil, err
		}
	}
	if err := x.write(out); err != nil {
		return nil, err
	}
	return &ExportReport{Out: out, Adapter: x.adapter.Name(), Modules: len(x.specs) / 2, Alpha: x.alpha, Rescaled: x.rescaled}, nil
}

// ExportReport is what Export wrote. Its JSON is the output of `quern lora convert --json`.
type ExportReport struct {
	Out      string  `json:"out"`
	Adapter  string  `json:"adapter"`
	Modules  int     `json:"modules"`
	Alpha    float64 `json:"alpha"`    // adapter.lora.alpha of the file
	Rescaled int     `json:"rescaled"` // modules whose factor differs and is part of their B
}

type exporter struct {
	*Plan
	adapter  *Adapter
	scale    float64
	alpha    float64 // of the file: llama.cpp multiplies each B · A by alpha/rank
	rescaled int
	specs    []tensor.Spec
	data     map[string][]byte
}

// check refuses what a GGUF adapter cannot say.
func (x *exporter) check() error {
	if x.Base.Model == nil {
		return errors.New("the base is of an architecture that is not supported in GGUF")
	}
	if len(x.contradictions) > 0 {
		return fmt.Errorf("it holds a copy of %s of its base, and this base's is another one", strings.Join(x.contradictions[1], ", "))
	}
	c := x.adapter.Config
	for _, m := range x.adapter.Modules {
		switch {
		case m.has(roleMagnitude):
			return errors.New("it is a DoRA, which is not a sum of weights")
		case m.has(roleBBias):
			return fmt.Errorf("it changes the bias of %s (lora_bias)", m.Path)
		case m.has(roleTokens):
			return fmt.Errorf("it replaces tokens of %s", m.Path)
		case m.has(roleBias), m.has(roleBaseBias) && c.Bias != "none":
			return fmt.Errorf("it trained the bias of %s", m.Path)
		case m.has(roleWeight) && c.saves(m.Path):
			return fmt.Errorf("it replaces %s as a whole (modules_to_save)", m.Path)
		}
	}
	if x.head != nil {
		return errors.New("it changes embedding or head, which are one tensor in the base: llama.cpp would change both")
	}
	return nil
}

// commonAlpha is the alpha that fits most modules as they are.
func (x *exporter) commonAlpha() float64 {
	count := map[float64]int{}
	best := 0.0
	for _, m := range x.adapter.Modules {
		if m.Rank > 0 {
			count[x.alphaOf(m)]++
		}
	}
	for _, alpha := range sortedKeys(count) {
		if best == 0 || count[alpha] > count[best] {
			best = alpha
		}
	}
	return best
}

func (x *exporter) alphaOf(m *Module) float64 { return m.Scale * x.scale * float64(m.Rank) }

// addModule adds A and B of a module in GGUF's layout.
func (x *exporter) addModule(m *Module) error {
	w, err := x.Base.lookup(rootless(m.Path) + ".weight")
	if err != nil {
		return err
	}
	if w == nil || w.row == nil || len(w.row.Sources) > 1 {
		return errors.New("llama.cpp has no such weight of its own")
	}
	if w.part != partText {
		return errors.New("it is not part of the language model")
	}
	roleOfA, roleOfB := m.factorRoles()
	a, err := m.tensors[roleOfA].ReadFloats()
	if err != nil {
		return err
	}
	b, err := m.tensors[roleOfB].ReadFloats()
	if err != nil {
		return err
	}
	if factor := float32(x.alphaOf(m) / x.alpha); factor != 1 {
		x.rescaled++
		for i := range b {
			b[i] *= factor
		}
	}
	rank, cols, rows := int64(m.Rank), int64(len(a)/m.Rank), int64(len(b)/m.Rank)
	if m.isEmbedding() { // llama.cpp looks A up by token (llm_graph_context::build_inp_embd)
		x.add(w.row.GGUF+".lora_a", tensor.Shape{cols, rank}, transpose(a, m.Rank, int(cols)))
		x.add(w.row.GGUF+".lora_b", tensor.Shape{rows, rank}, b)
		return nil
	}
	orderedA, orderedB := make([]float32, len(a)), make([]float32, len(b))
	if err := w.row.Cols.GatherCols(orderedA, a, cols); err != nil {
		return err
	}
	if err := w.row.Rows.GatherRows(orderedB, b, rank); err != nil {
		return err
	}
	x.add(w.row.GGUF+".lora_a", tensor.Shape{rank, cols}, orderedA)
	x.add(w.row.GGUF+".lora_b", tensor.Shape{rows, rank}, orderedB)
	return nil
}

func (x *exporter) add(name string, shape tensor.Shape, values []float32) {
	x.specs = append(x.specs, tensor.Spec{Name: name, DType: tensor.F32, Shape: shape})
	data := make([]byte, 4*len(values))
	for i, v := range values {
		binary.LittleEndian.PutUint32(data[4*i:], math.Float32bits(v))
	}
	x.data[name] = data
}

func (x *exporter) write(out string) error {
	if err := refuseExisting(out); err != nil {
		return err
	}
	meta := gguf.Metadata{
		{Key: "general.architecture", Value: x.Base.Model.Arch},
		{Key: "general.type", Value: "adapter"},
		{Key: "adapter.type", Value: "lora"},
		{Key: "general.name", Value: strings.TrimSuffix(x.adapter.Name(), ".zip")},
		{Key: "adapter.lora.alpha", Value: float32(x.alpha)},
	}
	if base := x.adapter.Config.BaseModel; base != "" {
		meta.Set("general.base_model.count", uint32(1))
		meta.Set("general.base_model.0.name", base)
	}
	slices.SortStableFunc(x.specs, func(a, b tensor.Spec) int { return strings.Compare(a.Name, b.Name) })
	var b bytes.Buffer
	if err := gguf.Write(&b, meta, x.specs, x.data); err != nil {
		return err
	}
	f, err := atomicfile.Create(out)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(b.Bytes()); err != nil {
		return f.Explain(err)
	}
	return f.Commit()
}
