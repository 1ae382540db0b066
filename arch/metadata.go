package arch

import "strings"

// Entry is one metadata entry of a GGUF: the type of Value is the type in the file.
type Entry struct {
	Key   string
	Value any
}

// Metadata returns the model's own metadata for a GGUF, in the order of llama.cpp's converter
// (conversion/base.py: TextModel.set_gguf_parameters; conversion/qwen.py). mtp says how many layers for multi-token
// prediction the file holds, fileType is general.file_type.
func (m *Model) Metadata(mtp int, fileType uint32) []Entry {
	var e entries
	a := m.Arch + "."
	e.u32(a+"block_count", int64(m.Layers+mtp))
	e.u32(a+"context_length", m.Context)
	e.u32(a+"embedding_length", m.Hidden)
	if m.FFN > 0 {
		e.u32(a+"feed_forward_length", m.FFN)
	}
	e.u32(a+"attention.head_count", m.Heads)
	e.u32(a+"attention.head_count_kv", m.KVHeads)
	m.Rope.metadata(&e, a, m.hybrid())
	e.f32(a+"attention.layer_norm_rms_epsilon", m.RMSEpsilon)
	if m.Experts > 0 {
		e.u32(a+"expert_count", m.Experts)
		e.u32(a+"expert_used_count", m.ExpertsUsed)
	}
	if m.HeadDim > 0 {
		e.u32(a+"attention.key_length", m.HeadDim)
		e.u32(a+"attention.value_length", m.HeadDim)
	}
	e.add("general.file_type", fileType)
	if m.ExpertFFN > 0 {
		e.u32(a+"expert_feed_forward_length", m.ExpertFFN)
	}
	if m.SharedFFN > 0 {
		e.u32(a+"expert_shared_feed_forward_length", m.SharedFFN)
	}
	if mtp > 0 {
		e.u32(a+"nextn_predict_layers", int64(mtp))
	}
	if m.Linear != nil {
		m.linearMetadata(&e, a, mtp)
	}
	return e
}

func (m *Model) linearMetadata(e *entries, a string, mtp int) {
	e.u32(a+"ssm.conv_kernel", m.ConvKernel)
	e.u32(a+"ssm.state_size", m.KeyDim)
	e.u32(a+"ssm.group_count", m.KeyHeads)
	e.u32(a+"ssm.time_step_rank", m.ValueHeads)
	e.u32(a+"ssm.inner_size", m.ValueDim*m.ValueHeads)
	e.add(a+"attention.recurrent_layers", append(append([]bool{}, m.Linear...), make([]bool, mtp)...))
	e.u32(a+"full_attention_interval", m.FullInterval)
	part := m.Rope.PartialFactor
	if part == 0 {
		part = 0.25
	}
	e.u32(a+"rope.dimension_count", int64(float64(m.headDim())*part))
}

func (r *Rope) metadata(e *entries, a string, hybrid bool) {
	switch kind := strings.ToLower(r.Type); {
	case (kind == "linear" || kind == "yarn") && r.Factor > 0:
		e.add(a+"rope.scaling.type", kind)
		e.f32(a+"rope.scaling.factor", r.Factor)
		if kind == "yarn" {
			e.u32(a+"rope.scaling.original_context_length", r.OriginalContext)
			e.optional(a+"rope.scaling.yarn_ext_factor", r.ExtFactor)
			e.optional(a+"rope.scaling.yarn_attn_factor", r.AttnFactor)
			e.optional(a+"rope.scaling.yarn_beta_fast", r.BetaFast)
			e.optional(a+"rope.scaling.yarn_beta_slow", r.BetaSlow)
		}
	case kind == "su", kind == "longrope":
		e.add(a+"rope.scaling.type", "longrope")
	}
	sections := r.Sections
	if sections == nil && hybrid {
		sections = []int32{11, 11, 10} // the class's default; llama.cpp needs the key
	}
	if sections != nil {
		e.add(a+"rope.dimension_sections", append(append([]int32{}, sections...), 0, 0, 0, 0)[:4])
	}
	e.f32(a+"rope.freq_base", r.Theta)
}

type entries []Entry

func (e *entries) add(key string, value any)     { *e = append(*e, Entry{key, value}) }
func (e *entries) u32(key string, value int64)   { e.add(key, uint32(value)) }
func (e *entries) f32(key string, value float64) { e.add(key, float32(value)) }
func (e *entries) optional(key string, v *float64) {
	if v != nil {
		e.f32(key, *v)
	}
}

// Values reads a GGUF's metadata; gguf.Metadata has these methods.
type Values interface {
	Get(key string) (any, bool)
	Int(key string) (int64, bool)
	Float(key string) (float64, bool)
	Text(key string) (string, bool)
}
