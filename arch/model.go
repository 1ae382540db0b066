package arch

import (
	"fmt"
	"strconv"
	"strings"

	"quern/tensor"
)

// Op is what happens to a tensor's values on the way into GGUF.
type Op uint8

const (
	Keep   Op = iota // nothing
	AddOne           // x + 1: norms that the checkpoint stores as the difference from one
	NegExp           // -exp(x): the decay of linear attention, stored as a logarithm
)

// Tensor is one row of the table: a GGUF tensor and where it comes from.
type Tensor struct {
	GGUF    string   // its name in a GGUF file
	Sources []string // canonical checkpoint names; several (experts) are stacked along a new first axis

	Shape       tensor.Shape // in GGUF, slowest-varying first
	SourceShape tensor.Shape // of each source; Shape differs where an axis of 1 is dropped or sources are stacked

	Rows Runs // order of the rows: of the first axis, for stacked sources of all rows together; nil as they are
	Cols Runs // order of the columns, the last axis; nil as they are
	Op   Op

	Optional bool // may be absent from a checkpoint
	F32      bool // always stored as F32
	MTP      bool // belongs to multi-token prediction
}

// RowLen returns the number of values that lie together in both layouts: a row of a matrix, one value of a vector.
func (t *Tensor) RowLen() int64 {
	if len(t.Shape) < 2 {
		return 1
	}
	return t.Shape.RowLen()
}

// NumRows returns the number of such rows.
func (t *Tensor) NumRows() int64 { return rows(t.Shape, t.RowLen()) }

// rows divides a shape's elements, which are known to fit in 63 bits, into rows.
func rows(s tensor.Shape, rowLen int64) int64 {
	n, _ := s.Elements()
	if n == 0 {
		return 0
	}
	return n / rowLen
}

// Model is the table of one model: every tensor that it can have.
type Model struct {
	*Config
	Tensors []Tensor // in the order in which they are written to GGUF
	NumMTP  int      // layers for multi-token prediction in the table

	byGGUF map[string]*Tensor
	byHF   map[string]*Tensor
}

// NewModel makes the table for a model. names are the canonical names of the checkpoint's tensors: they decide how
// many layers for multi-token prediction there really are and how experts are stored. For a GGUF names is nil, and the
// config decides.
func NewModel(c *Config, names []string) (*Model, error) {
	m := &Model{Config: c, byGGUF: map[string]*Tensor{}, byHF: map[string]*Tensor{}}
	b := builder{c: c, names: map[string]bool{}}
	m.NumMTP = c.MTPLayers
	if names != nil {
		m.NumMTP = countMTP(names)
	}
	for _, name := range names {
		b.names[name] = true
	}
	b.model(m.NumMTP)
	m.Tensors = b.tensors
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if _, err := t.Shape.Elements(); err != nil {
			return nil, fmt.Errorf("config.json: tensor %s: %w", t.Sources[0], err)
		}
		m.byGGUF[t.GGUF] = t
		for _, s := range t.Sources {
			m.byHF[s] = t // of gate and up in one source, the last: enough to know that the name belongs here
		}
	}
	return m, nil
}

// ByGGUF returns the tensor with that GGUF name, nil if there is none.
func (m *Model) ByGGUF(name string) *Tensor { return m.byGGUF[name] }

// ByCheckpoint returns the tensor that a checkpoint tensor goes into, by its canonical name; nil if there is none.
func (m *Model) ByCheckpoint(canonical string) *Tensor { return m.byHF[canonical] }

// Canonical returns the checkpoint tensor's name as the text-only class spells it, and false for tensors that are no
// part of the text model: the vision tower, and buffers that are computed anew.
func Canonical(name string) (string, bool) {
	if strings.Contains(name, "visual.") || strings.Contains(name, "vision_tower.") || strings.HasSuffix(name, ".rotary_emb.inv_freq") {
		return "", false
	}
	name = strings.Replace(name, "language_model.", "", 1)
	switch {
	case strings.HasPrefix(name, "model.mtp."):
		name = strings.TrimPrefix(name, "model.")
	case strings.HasPrefix(name, "layers."), strings.HasPrefix(name, "embed_tokens."), strings.HasPrefix(name, "norm."):
		name = "model." + name
	case strings.HasPrefix(name, "model.lm_head."):
		name = strings.TrimPrefix(name, "model.")
	}
	return name, true
}

// countMTP returns how many layers for multi-token prediction the checkpoint holds.
func countMTP(names []string) int {
	n := 0
	for _, name := range names {
		rest, ok := strings.CutPrefix(name, "mtp.layers.")
		if i, err := strconv.Atoi(strings.SplitN(rest, ".", 2)[0]); ok && err == nil && i < 16 {
			n = max(n, i+1)
		}
	}
	return n
}
