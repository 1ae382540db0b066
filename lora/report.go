package lora

import (
	"fmt"
	"math"

	"quern/tensor"
)

// Report is what a merge did. Its JSON is the output of `quern lora merge --json`.
type Report struct {
	Out             string        `json:"out"`
	BaseFingerprint string        `json:"base_fingerprint"`
	Fingerprint     string        `json:"fingerprint"`
	Stages          []StageReport `json:"stages"`
	Tensors         int           `json:"tensors"`         // of the output
	Changed         []TensorDelta `json:"changed"`         // the targets
	RelativeChange  float64       `json:"relative_change"` // ‖change‖ / ‖weights‖ over all targets
	Notes           []string      `json:"notes,omitempty"`
	Warnings        []string      `json:"warnings,omitempty"`
}

// StageReport is what one adapter did.
type StageReport struct {
	Adapter     string   `json:"adapter"`
	TrainedOn   string   `json:"trained_on"`
	Scale       float64  `json:"scale"`
	Modules     int      `json:"modules"`
	Tensors     int      `json:"tensors"` // of the base that it changed
	Evidence    Evidence `json:"evidence"`
	Explanation string   `json:"explanation"`
	Mismatch    bool     `json:"accepted_base_mismatch,omitempty"`
}

// TensorDelta is the change of one tensor.
type TensorDelta struct {
	Name     string  `json:"name"`
	Type     string  `json:"type"`
	Elements int64   `json:"elements"`
	Changed  int64   `json:"changed"`  // elements whose stored value differs, counted once for each stage
	Relative float64 `json:"relative"` // ‖change‖ / ‖weight‖
	Added    bool    `json:"added,omitempty"`
}

// makeReport sums up what the jobs found. A merge that changed nothing is an error.
func (m *merger) makeReport() error {
	r := &Report{Out: m.o.Out, BaseFingerprint: fingerprintAfter(m.jobs, 0).Text,
		Fingerprint: fingerprintAfter(m.jobs, len(m.Stages)).Text, Notes: m.Notes, Tensors: len(m.jobs)}
	hits := make([]int, len(m.Stages)+1)
	var all changeStats
	var noise requantStats
	var still []string
	for _, j := range m.jobs {
		for stage := range j.stagesOf() {
			hits[stage]++
		}
		if len(j.edits) == 0 {
			if j.added {
				r.Changed = append(r.Changed, TensorDelta{Name: j.spec.Name, Type: j.spec.DType.String(), Elements: j.w.rows * j.w.width, Added: true})
			}
			continue
		}
		all.add(j.stats)
		if j.spec.DType.Quantized() || j.w.DType.Quantized() {
			noise.Delta2 += j.noise.Delta2
			noise.Error2 += j.noise.Error2
		}
		if j.stats.Changed == 0 && !j.added {
			still = append(still, j.spec.Name)
		}
		r.Changed = append(r.Changed, TensorDelta{Name: j.spec.Name, Type: j.spec.DType.String(), Elements: j.w.rows * j.w.width,
			Changed: j.stats.Changed, Relative: j.stats.Relative(), Added: j.added})
	}
	if all.Changed == 0 {
		return errNothingChanged
	}
	r.RelativeChange = all.Relative()
	for i, s := range m.Stages {
		r.Stages = append(r.Stages, StageReport{Adapter: s.Adapter.Name(), TrainedOn: s.Adapter.Config.BaseModel, Scale: s.Scale,
			Modules: len(s.Adapter.Modules), Tensors: hits[i+1], Evidence: m.judgements[i].Evidence,
			Explanation: m.judgements[i].Explanation, Mismatch: m.judgements[i].Mismatch})
	}
	r.warn(m, still, noise)
	m.report = r
	return nil
}

// stagesOf returns the stages that change the job's tensor.
func (j *job) stagesOf() map[int]bool {
	stages := map[int]bool{}
	for _, e := range j.edits {
		stages[e.stage] = true
	}
	return stages
}

func (r *Report) warn(m *merger, still []string, noise requantStats) {
	if m.lineage.Mismatched() {
		r.Warnings = append(r.Warnings, "a base mismatch was accepted: the output is not what was trained and measured, and its lineage says so")
	}
	if len(still) > 0 {
		r.Warnings = append(r.Warnings, fmt.Sprintf("%d target tensors did not change, since their change is zero or too small for their type: %s%s",
			len(still), still[0], ellipsis(len(still) > 1)))
	}
	if noise.Delta2 > 0 {
		cost := "storing the changed ones again adds no error, but what all of them lost before stays lost"
		if share := 100 * math.Sqrt(noise.Error2/noise.Delta2); share >= 0.05 {
			cost = fmt.Sprintf("storing the changed ones again costs an error of %.1f %% of the change itself%s", share, m.typeHint())
		}
		r.Warnings = append(r.Warnings, "the base's weights are quantised: "+cost+". Where the bf16 or f16 model can be had, merge into that and quantise once")
	}
}

func (m *merger) typeHint() string {
	if m.o.Type == tensor.Invalid && m.Base.IsGGUF() {
		return " (--type bf16 would store them finer)"
	}
	return ""
}
