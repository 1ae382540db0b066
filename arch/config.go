// Package arch knows the model architectures: how tensors are named and laid out in a Hugging Face checkpoint and in a
// GGUF file, what the transform between the two layouts is, and which metadata a GGUF needs. Conversion and merging
// use the same table, so that a weight and a delta can never be reordered differently.
//
// Names of checkpoint tensors are canonical here: as the text-only class writes them ("model.layers.0.…", "lm_head.…",
// "mtp.…"). Canonical brings other spellings into that form.
package arch

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
)

// ErrUnsupported is wrapped when a model is of a kind that this package has no table for.
var ErrUnsupported = errors.New("unsupported model")

// Config is what of a model's config.json, or of a GGUF's metadata, decides about its tensors.
type Config struct {
	Arch      string // GGUF name: "qwen2", "qwen35moe"
	Class     string // of the checkpoint: "Qwen3_5ForConditionalGeneration"; "" when read from a GGUF
	ModelType string // of the checkpoint: "qwen3_5"

	Layers     int // without those for multi-token prediction
	MTPLayers  int // layers for multi-token prediction that the config announces
	Hidden     int64
	FFN        int64
	Vocab      int64
	Heads      int64
	KVHeads    int64
	HeadDim    int64
	Context    int64
	QueryGate  bool // q_proj carries an output gate beside the queries (Qwen3.5)
	RMSEpsilon float64
	Tied       bool // the output head shares the embedding

	Rope Rope

	// Linear attention (Qwen3.5): which layers have it, and its dimensions.
	Linear       []bool // one for each of Layers; nil when no layer has it
	KeyHeads     int64
	ValueHeads   int64
	KeyDim       int64
	ValueDim     int64
	ConvKernel   int64
	FullInterval int64 // every so many layers have full attention; metadata only

	// Mixture of experts: zero Experts means a dense model.
	Experts     int64
	ExpertsUsed int64
	ExpertFFN   int64
	SharedFFN   int64 // 0 without a shared expert
}

// Rope is the position encoding.
type Rope struct {
	Theta           float64
	Type            string // "default", "yarn", "linear", …; "" when not given
	Factor          float64
	OriginalContext int64
	ExtFactor       *float64
	AttnFactor      *float64
	BetaFast        *float64
	BetaSlow        *float64
	Sections        []int32 // of multi-axis positions
	PartialFactor   float64 // part of each head that is rotated; 0 when not given
}

// family is what a checkpoint class says about the tensors.
type family struct {
	arch    string
	headDim int64 // where config.json may leave it out: 0 means hidden / heads, without metadata
}

// classes maps the checkpoint classes to architectures (config.json: architectures).
var classes = map[string]family{
	"Qwen2ForCausalLM":                   {"qwen2", 0},
	"Qwen2Model":                         {"qwen2", 0},
	"Qwen2MoeForCausalLM":                {"qwen2moe", 0},
	"Qwen3ForCausalLM":                   {"qwen3", 128},
	"Qwen3Model":                         {"qwen3", 128},
	"Qwen3MoeForCausalLM":                {"qwen3moe", 0},
	"Qwen3_5ForCausalLM":                 {"qwen35", 256},
	"Qwen3_5ForConditionalGeneration":    {"qwen35", 256},
	"Qwen3_5MoeForCausalLM":              {"qwen35moe", 256},
	"Qwen3_5MoeForConditionalGeneration": {"qwen35moe", 256},
}

// Supported returns the checkpoint classes that have a table, sorted.
func Supported() []string {
	var names []string
	for name := range classes {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// fields reads config.json: the text model's keys, where it has a text_config, else the top level's.
type fields struct {
	top, text map[string]json.RawMessage
	err       error
}

func (f *fields) lookup(key string) (json.RawMessage, bool) {
	for _, m := range []map[string]json.RawMessage{f.text, f.top} {
		if raw, ok := m[key]; ok && string(raw) != "null" {
			return raw, true
		}
	}
	return nil, false
}

// get decodes the first of the keys that is there, and says whether one was.
func get[T any](f *fields, into *T, keys ...string) bool {
	for _, key := range keys {
		if raw, ok := f.lookup(key); ok {
			if err := json.Unmarshal(raw, into); err != nil && f.err == nil {
				f.err = fmt.Errorf("config.json: %s: %w", key, err)
			}
			return true
		}
	}
	return false
}

// size reads a dimension: a whole number from 1 to 2^31.
func (f *fields) size(into *int64, keys ...string) {
	var n float64
	switch {
	case !get(f, &n, keys...):
		if f.err == nil {
			f.err = fmt.Errorf("config.json: %s is missing", keys[0])
		}
	case n < 1 || n > 1<<31 || n != math.Trunc(n):
		if f.err == nil {
			f.err = fmt.Errorf("config.json: %s is %v, not a possible size", keys[0], n)
		}
	default:
		*into = int64(n)
	}
}

// optionalSize is size for a key that may be absent.
func (f *fields) optionalSize(into *int64, keys ...string) {
	for _, key := range keys {
		if _, ok := f.lookup(key); ok {
			f.size(into, key)
			return
		}
	}
}

// ParseConfig reads a checkpoint's config.json.
func ParseConfig(data []byte) (*Config, error) {
	f := &fields{}
	if err := json.Unmarshal(data, &f.top); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	if raw, ok := f.top["text_config"]; ok && string(raw) != "null" {
		if err := json.Unmarshal(raw, &f.text); err != nil {
			return nil, fmt.Errorf("config.json: text_config: %w", err)
		}
	}
	c, fam, err := f.class()
	if err != nil {
		return nil, err
	}
	f.dense(c, fam)
	f.rope(&c.Rope)
	if strings.HasPrefix(c.Arch, "qwen35") {
		f.linear(c)
	}
	if strings.HasSuffix(c.Arch, "moe") {
		f.experts(c)
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("config.json: %w", err)
	}
	return c, nil
}

func (f *fields) class() (*Config, family, error) {
	var names []string
	c := &Config{}
	if raw, ok := f.top["architectures"]; ok {
		if err := json.Unmarshal(raw, &names); err != nil {
			return nil, family{}, fmt.Errorf("config.json: architectures: %w", err)
		}
	}
	if raw, ok := f.top["model_type"]; ok {
		_ = json.Unmarshal(raw, &c.ModelType) // for display
	}
	if len(names) == 0 {
		return nil, family{}, fmt.Errorf("config.json: %w: architectures is missing, so the model's class is not known", ErrUnsupported)
	}
	fam, ok := classes[names[0]]
	if !ok {
		return nil, family{}, fmt.Errorf("config.json: %w: class %s; supported are %s", ErrUnsupported, names[0], strings.Join(Supported(), ", "))
	}
	if raw, ok := f.lookup("quantization_config"); ok {
		var q struct {
			Method string `json:"quant_method"`
		}
		_ = json.Unmarshal(raw, &q) // for the message
		return nil, family{}, fmt.Errorf("config.json: %w: the weights are quantised (%s); use the checkpoint in bf16 or f16 that they were made from", ErrUnsupported, q.Method)
	}
	c.Arch, c.Class = fam.arch, names[0]
	return c, fam, nil
}

func (f *fields) dense(c *Config, fam family) {
	var layers int64
	f.size(&layers, "num_hidden_layers")
	c.Layers = int(layers)
	f.size(&c.Hidden, "hidden_size")
	f.size(&c.Vocab, "vocab_size")
	f.size(&c.Heads, "num_attention_heads")
	f.size(&c.KVHeads, "num_key_value_heads")
	f.size(&c.Context, "max_position_embeddings")
	f.optionalSize(&c.FFN, "intermediate_size")
	c.HeadDim = fam.headDim
	f.optionalSize(&c.HeadDim, "head_dim")
	c.RMSEpsilon = 1e-6
	get(f, &c.RMSEpsilon, "rms_norm_eps")
	for _, m := range []map[string]json.RawMessage{f.top, f.text} { // either level may say so
		var tied bool
		if raw, ok := m["tie_word_embeddings"]; ok && json.Unmarshal(raw, &tied) == nil {
			c.Tied = c.Tied || tied
		}
	}
}

func (f *fields) rope(r *Rope) {
	var p struct {
		Theta           *float64 `json:"rope_theta"`
		Type            string   `json:"rope_type"`
		OldType         string   `json:"type"`
		Factor          float64  `json:"factor"`
		OriginalContext int64    `json:"original_max_position_embeddings"`
		ExtFactor       *float64 `json:"extrapolation_factor"`
		AttentionFactor *float64 `json:"attention_factor"`
		AttnFactor      *float64 `json:"attn_factor"`
		BetaFast        *float64 `json:"beta_fast"`
		BetaSlow        *float64 `json:"beta_slow"`
		Sections        []int32  `json:"mrope_section"`
		PartialFactor   *float64 `json:"partial_rotary_factor"`
	}
	get(f, &p, "rope_parameters", "rope_scaling")
	r.Theta = 10000 // Transformers' default
	get(f, &r.Theta, "rope_theta")
	if p.Theta != nil {
		r.Theta = *p.Theta
	}
	get(f, &r.PartialFactor, "partial_rotary_factor")
	if p.PartialFactor != nil {
		r.PartialFactor = *p.PartialFactor
	}
	get(f, &r.OriginalContext, "original_max_position_embeddings")
	if p.OriginalContext != 0 {
		r.OriginalContext = p.OriginalContext
	}
	r.Type, r.Factor, r.Sections = p.Type, p.Factor, p.Sections
	if r.Type == "" {
		r.Type = p.OldType
	}
	r.ExtFactor, r.AttnFactor, r.BetaFast, r.BetaSlow = p.ExtFactor, p.AttentionFactor, p.BetaFast, p.BetaSlow
	if r.AttnFactor == nil {
		r.AttnFactor = p.AttnFactor
	}
}

func (f *fields) linear(c *Config) {
	f.size(&c.KeyHeads, "linear_num_key_heads")
	f.size(&c.ValueHeads, "linear_num_value_heads")
	f.size(&c.KeyDim, "linear_key_head_dim")
	f.size(&c.ValueDim, "linear_value_head_dim")
	f.size(&c.ConvKernel, "linear_conv_kernel_dim")
	c.FullInterval = 4
	f.optionalSize(&c.FullInterval, "full_attention_interval")
	c.QueryGate = true
	get(f, &c.QueryGate, "attn_output_gate")
	get(f, &c.MTPLayers, "mtp_num_hidden_layers")
	var types []string
	if get(f, &types, "layer_types") && len(types) != c.Layers && f.err == nil {
		f.err = fmt.Errorf("config.json: layer_types has %d entries for %d layers", len(types), c.Layers)
	}
	for i := range c.Layers {
		if i < len(types) {
			c.Linear = append(c.Linear, types[i] == "linear_attention")
		} else {
			c.Linear = append(c.Linear, int64(i+1)%c.FullInterval != 0)
		}
	}
}

func (f *fields) experts(c *Config) {
	f.size(&c.Experts, "num_local_experts", "num_experts")
	f.size(&c.ExpertsUsed, "num_experts_per_tok")
	f.size(&c.ExpertFFN, "moe_intermediate_size")
	f.optionalSize(&c.SharedFFN, "shared_expert_intermediate_size")
	var dense []int
	if get(f, &dense, "mlp_only_layers") && len(dense) > 0 && f.err == nil {
		f.err = fmt.Errorf("config.json: %w: some layers have no experts (mlp_only_layers); llama.cpp cannot run that", ErrUnsupported)
	}
}

func (c *Config) check() error {
	switch {
	case c.Layers > 1<<12 || c.ValueHeads > 1<<12 || c.Experts > 1<<12 || int64(c.Layers)*c.Experts > 1<<18:
		return fmt.Errorf("%d layers, %d experts, %d value heads: more than any model has", c.Layers, c.Experts, c.ValueHeads)
	case c.HeadDim == 0 && c.Hidden%c.Heads != 0:
		return fmt.Errorf("hidden_size %d is not a multiple of num_attention_heads %d", c.Hidden, c.Heads)
	case c.FFN == 0 && c.Experts == 0:
		return errors.New("intermediate_size is missing")
	case c.Linear != nil && c.ValueHeads%c.KeyHeads != 0:
		return fmt.Errorf("linear_num_value_heads %d is not a multiple of linear_num_key_heads %d", c.ValueHeads, c.KeyHeads)
	case c.Linear != nil && !c.QueryGate:
		return fmt.Errorf("%w: attn_output_gate is false; llama.cpp expects the gate", ErrUnsupported)
	case c.MTPLayers < 0 || c.MTPLayers > 16:
		return fmt.Errorf("mtp_num_hidden_layers is %d", c.MTPLayers)
	}
	return nil
}

// headDim returns the width of an attention head.
func (c *Config) headDim() int64 {
	if c.HeadDim > 0 {
		return c.HeadDim
	}
	return c.Hidden / c.Heads
}

// isLinear tells whether a layer has linear attention.
func (c *Config) isLinear(layer int) bool { return layer < len(c.Linear) && c.Linear[layer] }
