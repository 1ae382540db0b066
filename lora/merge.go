package lora

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"quern/tensor"
)

// MergeOptions says what to make of a Plan.
type MergeOptions struct {
	// Out is the folder or the .gguf file to make. It must not exist; it appears when it is whole.
	Out string
	// Name is what the next stage's adapter may call the output by, beside Out's own name.
	Name string
	// Type is what changed tensors are stored as. For a checkpoint all its tensors: it is read in this type, as PEFT does
	// when torch_dtype is given. Invalid keeps each tensor's own type.
	Type tensor.DType
	// MaxShardSize divides a checkpoint into files of at most so many bytes of weights; 0 means 5 GB.
	MaxShardSize int64
	JudgeOptions
	Tool     string                  // for the record: name and version of the program
	Progress func(done, total int64) // bytes of the base, may be nil; called from several goroutines
}

const defaultShardSize = 5_000_000_000

// Merge writes the merged model and checks it. When it returns an error nothing is left under the name Out.
func (p *Plan) Merge(ctx context.Context, o MergeOptions) (*Report, error) {
	if p.Base.IsGGUF() != isGGUFPath(o.Out) {
		return nil, fmt.Errorf("a merge writes what it read: a folder for a checkpoint, a .gguf file for a GGUF; %s is not that", o.Out)
	}
	judgements, err := p.Judge(ctx, o.JudgeOptions)
	if err != nil {
		return nil, err
	}
	m := &merger{Plan: p, o: o, judgements: judgements}
	if err := m.makeJobs(); err != nil {
		return nil, err
	}
	if p.Base.IsGGUF() {
		err = m.writeGGUF(ctx)
	} else {
		err = m.writeFolder(ctx)
	}
	if err != nil {
		return nil, err
	}
	return m.report, nil
}

func isGGUFPath(path string) bool { return strings.EqualFold(filepath.Ext(path), ".gguf") }

// merger is a merge at work.
type merger struct {
	*Plan
	o          MergeOptions
	judgements []Judgement
	jobs       []*job // in the order of the base's tensors
	lineage    *Lineage
	report     *Report
}

// makeJobs makes a job for each tensor of the output.
func (m *merger) makeJobs() error {
	for _, w := range m.Base.Weights {
		var edits []stagedEdit
		if t := m.targets[w]; t != nil {
			edits = t.edits
		}
		if err := m.addJob(w, w.Key, w.Name, edits, false); err != nil {
			return err
		}
	}
	if m.head == nil {
		return nil
	}
	name := "lm_head.weight"
	if m.Base.IsGGUF() {
		name = "output.weight"
	}
	return m.addJob(m.head.source, headKey, name, m.head.edits, true)
}

func (m *merger) addJob(w *Weight, key, name string, edits []stagedEdit, added bool) error {
	spec := tensor.Spec{Name: name, Shape: w.Shape}
	var err error
	if spec.DType, err = m.outType(w, edits); err != nil {
		return err
	}
	j := newJob(w, spec, edits, !m.Base.IsGGUF(), len(m.Stages))
	j.key, j.added = key, added
	m.jobs = append(m.jobs, j)
	return nil
}

// outType is the type that a tensor is stored as in the output.
func (m *merger) outType(w *Weight, edits []stagedEdit) (tensor.DType, error) {
	if !m.Base.IsGGUF() {
		return m.checkpointType(w, edits)
	}
	t := w.DType
	if m.isEdited(w, edits) && m.o.Type != tensor.Invalid && !w.row.F32 {
		if _, err := m.o.Type.Bytes(w.Shape); err != nil {
			t = tensor.F16 // rows that do not fill blocks; llama.cpp's converter does the same
		} else {
			t = m.o.Type
		}
	}
	if len(edits) == 0 && t == w.DType {
		return t, nil
	}
	if !w.DType.CanDecode() {
		return t, fmt.Errorf("tensor %s is stored as %v, which cannot be read as numbers here: merge into a GGUF of another type", w.Name, w.DType)
	}
	if !t.CanEncode() {
		return t, fmt.Errorf("tensor %s is stored as %v, which can be read here but not written: give a type for the changed tensors (--type q8_0 or bf16) and quantise the result again", w.Name, w.DType)
	}
	return t, nil
}

// isEdited tells whether a tensor, or another part of the GGUF tensor that it is stacked in, has edits.
func (m *merger) isEdited(w *Weight, edits []stagedEdit) bool {
	if len(edits) > 0 {
		return true
	}
	if len(w.row.Sources) == 1 {
		return false
	}
	for other, t := range m.targets {
		if other.row == w.row && len(t.edits) > 0 {
			return true
		}
	}
	return false
}

// checkpointType: tensors of the checkpoint's main type take the type asked for; those that are kept more exactly, as
// Qwen3.5's decays in F32 beside BF16 weights, keep it, and go along to F32 only.
func (m *merger) checkpointType(w *Weight, edits []stagedEdit) (tensor.DType, error) {
	if !isFloat(w.DType) {
		if len(edits) > 0 {
			return w.DType, fmt.Errorf("tensor %s is stored as %v; merging needs the weights in bf16, f16 or f32", w.Name, w.DType)
		}
		return w.DType, nil
	}
	switch t := m.o.Type; {
	case t == tensor.Invalid:
		return w.DType, nil
	case !isFloat(t):
		return t, fmt.Errorf("a checkpoint is stored as f32, f16 or bf16, not as %v; write a GGUF for that", t)
	case t == tensor.F32 || w.DType != tensor.F32 || m.Base.mainType() == tensor.F32:
		return t, nil
	default:
		return w.DType, nil
	}
}

// mainType is the type of most of the values.
func (b *Base) mainType() tensor.DType {
	var specs []tensor.Spec
	for _, w := range b.Weights {
		specs = append(specs, w.Spec)
	}
	return mainTypeOf(specs)
}

func mainTypeOf(specs []tensor.Spec) tensor.DType {
	count := map[tensor.DType]int64{}
	best := tensor.Invalid
	for _, s := range specs {
		n, _ := s.Shape.Elements() // checked when it was read
		count[s.DType] += n
	}
	for _, t := range sortedKeys(count) {
		if best == tensor.Invalid || count[t] > count[best] {
			best = t
		}
	}
	return best
}

// run does the work of all jobs and settles what is known only then: fingerprints, record, report.
func (m *merger) run(ctx context.Context) error {
	total := int64(0)
	for _, j := range m.jobs {
		total += j.w.Bytes()
	}
	var progress func(int64)
	if m.o.Progress != nil {
		progress = func(done int64) { m.o.Progress(done, total) }
	}
	if err := run(ctx, m.jobs, progress); err != nil {
		return err
	}
	if err := m.checkContent(); err != nil {
		return err
	}
	m.record()
	return m.makeReport()
}

// checkContent compares the fingerprint of what was read with the one that the evidence rests on.
func (m *merger) checkContent() error {
	base := fingerprintAfter(m.jobs, 0)
	want := m.judgements[0].content
	if want == "" || base.Matches(want) {
		return nil
	}
	if m.judgements[0].Evidence == ByLineage {
		return fmt.Errorf("not merged: the weights of %s (fingerprint %s) are not those that its lineage record was written for (%s): they were changed afterwards, or stored in a coarser type", m.Base.Path, base.short(), want)
	}
	return fmt.Errorf("not merged: the fingerprint of %s is %s, not %s: this is not the base that was meant", m.Base.Path, base.short(), want)
}

// record writes down where the output comes from.
func (m *merger) record() {
	base := fingerprintAfter(m.jobs, 0)
	l := &Lineage{Format: lineageFormat, Root: RootRecord{Name: m.Base.Name(), Fingerprint: base.Text}}
	if len(m.Base.Origin.Claims) > 0 {
		l.Root.HubID = m.Base.Origin.Claims[0].ID
	}
	if earlier := m.Base.Origin.Lineage; earlier != nil {
		l.Root, l.Stages = earlier.Root, append(l.Stages, earlier.Stages...)
	}
	before := base.Text
	for i, s := range m.Stages {
		j := m.judgements[i]
		after := fingerprintAfter(m.jobs, i+1).Text
		l.Stages = append(l.Stages, StageRecord{Adapter: s.Adapter.Name(), SHA256: s.Adapter.SHA256, TrainedOn: s.Adapter.Config.BaseModel,
			Scale: s.Scale, Base: before, Output: after, Evidence: j.Evidence, Explanation: j.Explanation, Mismatch: j.Mismatch, Tool: m.o.Tool})
		before = after
	}
	l.Output = OutputRecord{Name: m.outputName(), Fingerprint: before}
	l.Stages[len(l.Stages)-1].OutputName = l.Output.Name
	m.lineage = l
}

func (m *merger) outputName() string {
	if m.o.Name != "" {
		return m.o.Name
	}
	name := filepath.Base(m.o.Out)
	if isGGUFPath(name) {
		name = name[:len(name)-len(filepath.Ext(name))]
	}
	return name
}

var errNothingChanged = errors.New("not merged: the result would be the base itself, to the last bit: every change is zero or too small for the type that the weights are stored in")
