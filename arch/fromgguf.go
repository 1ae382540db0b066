package arch

import (
	"fmt"
	"slices"

	"quern/tensor"
)

// FromGGUF makes the table of the model in a GGUF file, from its metadata and its tensors. Every tensor of the file
// must be in the table, with the table's shape.
func FromGGUF(meta Values, tensors []tensor.Stored) (*Model, error) {
	c, err := configFromGGUF(meta, tensors)
	if err != nil {
		return nil, err
	}
	m, err := NewModel(c, nil)
	if err != nil {
		return nil, err
	}
	for _, s := range tensors {
		t := m.ByGGUF(s.Name)
		if t == nil {
			return nil, fmt.Errorf("%w: tensor %s is not one that a %s model has", ErrUnsupported, s.Name, c.Arch)
		}
		if !s.Shape.Equal(t.Shape) {
			return nil, fmt.Errorf("tensor %s has shape %v; by the metadata it should be %v", s.Name, s.Shape, t.Shape)
		}
	}
	return m, nil
}

// ggufReader reads the metadata of one architecture and keeps the first complaint.
type ggufReader struct {
	meta Values
	arch string
	err  error
}

func (r *ggufReader) size(key string) int64 {
	n, ok := r.meta.Int(r.arch + "." + key)
	if (!ok || n < 1 || n > 1<<31) && r.err == nil {
		r.err = fmt.Errorf("metadata %s.%s: missing, or not a possible size", r.arch, key)
	}
	return n
}

func (r *ggufReader) optional(key string) int64 {
	if _, ok := r.meta.Get(r.arch + "." + key); !ok {
		return 0
	}
	return r.size(key)
}

func configFromGGUF(meta Values, tensors []tensor.Stored) (*Config, error) {
	name, _ := meta.Text("general.architecture")
	if !slices.ContainsFunc(Supported(), func(class string) bool { return classes[class].arch == name }) {
		return nil, fmt.Errorf("%w: GGUF architecture %q", ErrUnsupported, name)
	}
	r := &ggufReader{meta: meta, arch: name}
	c := &Config{Arch: name, QueryGate: name == "qwen35" || name == "qwen35moe"}
	blocks, mtp := r.size("block_count"), r.optional("nextn_predict_layers")
	if r.err == nil && (blocks > 1<<12 || mtp >= blocks) {
		return nil, fmt.Errorf("metadata %s: %d blocks, of which %d are for multi-token prediction", name, blocks, mtp)
	}
	if r.err != nil {
		return nil, r.err
	}
	c.Layers, c.MTPLayers = int(blocks-mtp), int(mtp)
	c.Context = r.size("context_length")
	c.Hidden = r.size("embedding_length")
	c.FFN = r.optional("feed_forward_length")
	c.Heads, c.KVHeads = r.size("attention.head_count"), r.size("attention.head_count_kv")
	c.HeadDim = r.optional("attention.key_length")
	c.RMSEpsilon, _ = meta.Float(name + ".attention.layer_norm_rms_epsilon")
	c.Rope.Theta, _ = meta.Float(name + ".rope.freq_base")
	c.Experts, c.ExpertsUsed = r.optional("expert_count"), r.optional("expert_used_count")
	c.ExpertFFN, c.SharedFFN = r.optional("expert_feed_forward_length"), r.optional("expert_shared_feed_forward_length")
	if c.QueryGate {
		r.linear(c)
	}
	c.readTensors(tensors)
	if r.err != nil {
		return nil, r.err
	}
	if err := c.check(); err != nil {
		return nil, fmt.Errorf("metadata: %w", err)
	}
	return c, nil
}

func (r *ggufReader) linear(c *Config) {
	c.ConvKernel, c.KeyDim = r.size("ssm.conv_kernel"), r.size("ssm.state_size")
	c.KeyHeads, c.ValueHeads = r.size("ssm.group_count"), r.size("ssm.time_step_rank")
	inner := r.size("ssm.inner_size")
	if r.err != nil {
		return
	}
	c.ValueDim = inner / c.ValueHeads
	if c.FullInterval = r.optional("full_attention_interval"); c.FullInterval == 0 {
		c.FullInterval = 4
	}
	flags, _ := r.meta.Get(r.arch + ".attention.recurrent_layers")
	linear, _ := flags.([]bool)
	for i := range c.Layers {
		if i < len(linear) {
			c.Linear = append(c.Linear, linear[i])
		} else {
			c.Linear = append(c.Linear, int64(i+1)%c.FullInterval != 0)
		}
	}
}

// readTensors takes from the tensors what the metadata leaves open.
func (c *Config) readTensors(tensors []tensor.Stored) {
	c.Tied = true
	for _, s := range tensors {
		switch {
		case s.Name == "token_embd.weight" && len(s.Shape) == 2:
			c.Vocab = s.Shape[0]
		case s.Name == "output.weight":
			c.Tied = false
		case s.Name == "blk.0.ffn_gate_exps.weight" && len(s.Shape) == 3 && c.ExpertFFN == 0: // old files lack the key
			c.ExpertFFN = s.Shape[1]
		case s.Name == "blk.0.ffn_gate_shexp.weight" && len(s.Shape) == 2 && c.SharedFFN == 0:
			c.SharedFFN = s.Shape[0]
		}
	}
}
