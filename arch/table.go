package arch

import (
	"fmt"

	"quern/tensor"
)

// builder writes the table down, model part by model part. Names on the left are the checkpoint's, on the right
// GGUF's (llama.cpp: gguf-py/gguf/tensor_mapping.py, src/llama-arch.cpp); shapes are the checkpoint's.
type builder struct {
	c       *Config
	names   map[string]bool // of the checkpoint's tensors; empty for a GGUF
	mtp     bool            // what is added belongs to multi-token prediction
	tensors []Tensor
}

func (b *builder) add(hf, gguf string, shape ...int64) *Tensor {
	b.tensors = append(b.tensors, Tensor{GGUF: gguf, Sources: []string{hf}, Shape: shape, SourceShape: shape, F32: len(shape) < 2, MTP: b.mtp})
	return &b.tensors[len(b.tensors)-1]
}

// norm adds the weight of an RMS norm. Qwen3.5 stores these as the difference from one, except the one inside linear
// attention.
func (b *builder) norm(hf, gguf string, width int64) {
	t := b.add(hf, gguf, width)
	if b.c.hybrid() {
		t.Op = AddOne
	}
}

func (c *Config) hybrid() bool { return c.Arch == "qwen35" || c.Arch == "qwen35moe" }

func (b *builder) model(mtpLayers int) {
	c := b.c
	b.add("model.embed_tokens.weight", "token_embd.weight", c.Vocab, c.Hidden)
	for i := range c.Layers {
		b.layer(fmt.Sprintf("model.layers.%d.", i), fmt.Sprintf("blk.%d.", i), c.isLinear(i))
	}
	b.norm("model.norm.weight", "output_norm.weight", c.Hidden)
	b.add("lm_head.weight", "output.weight", c.Vocab, c.Hidden).Optional = c.Tied
	if mtpLayers > 0 {
		b.multiTokenPrediction(mtpLayers)
	}
}

func (b *builder) layer(hf, gguf string, linear bool) {
	c := b.c
	b.norm(hf+"input_layernorm.weight", gguf+"attn_norm.weight", c.Hidden)
	if linear {
		b.linearAttention(hf+"linear_attn.", gguf)
	} else {
		b.attention(hf+"self_attn.", gguf)
	}
	second := "ffn_norm.weight"
	if c.hybrid() {
		second = "post_attention_norm.weight"
	}
	b.norm(hf+"post_attention_layernorm.weight", gguf+second, c.Hidden)
	if c.Experts > 0 {
		b.experts(hf+"mlp.", gguf)
	} else {
		b.add(hf+"mlp.gate_proj.weight", gguf+"ffn_gate.weight", c.FFN, c.Hidden)
		b.add(hf+"mlp.up_proj.weight", gguf+"ffn_up.weight", c.FFN, c.Hidden)
		b.add(hf+"mlp.down_proj.weight", gguf+"ffn_down.weight", c.Hidden, c.FFN)
	}
}

func (b *builder) attention(hf, gguf string) {
	c := b.c
	width, kv := c.Heads*c.headDim(), c.KVHeads*c.headDim()
	q := width
	if c.QueryGate {
		q *= 2
	}
	b.add(hf+"q_proj.weight", gguf+"attn_q.weight", q, c.Hidden)
	b.add(hf+"k_proj.weight", gguf+"attn_k.weight", kv, c.Hidden)
	b.add(hf+"v_proj.weight", gguf+"attn_v.weight", kv, c.Hidden)
	b.add(hf+"o_proj.weight", gguf+"attn_output.weight", c.Hidden, width)
	switch c.Arch {
	case "qwen2", "qwen2moe":
		b.add(hf+"q_proj.bias", gguf+"attn_q.bias", q)
		b.add(hf+"k_proj.bias", gguf+"attn_k.bias", kv)
		b.add(hf+"v_proj.bias", gguf+"attn_v.bias", kv)
	default:
		b.norm(hf+"q_norm.weight", gguf+"attn_q_norm.weight", c.headDim())
		b.norm(hf+"k_norm.weight", gguf+"attn_k_norm.weight", c.headDim())
	}
}

// linearAttention adds a gated delta net. The value heads are stored in another order in GGUF (tiledHeads), in every
// tensor that has an axis over them.
func (b *builder) linearAttention(hf, gguf string) {
	c := b.c
	keys, values := c.KeyHeads*c.KeyDim, c.ValueHeads*c.ValueDim
	qkv := 2*keys + values

	b.add(hf+"in_proj_qkv.weight", gguf+"attn_qkv.weight", qkv, c.Hidden).Rows = tiledHeads(c, c.ValueDim, 2*keys)
	b.add(hf+"in_proj_z.weight", gguf+"attn_gate.weight", values, c.Hidden).Rows = tiledHeads(c, c.ValueDim, 0)
	b.add(hf+"in_proj_b.weight", gguf+"ssm_beta.weight", c.ValueHeads, c.Hidden).Rows = tiledHeads(c, 1, 0)
	b.add(hf+"in_proj_a.weight", gguf+"ssm_alpha.weight", c.ValueHeads, c.Hidden).Rows = tiledHeads(c, 1, 0)

	conv := b.add(hf+"conv1d.weight", gguf+"ssm_conv1d.weight", qkv, 1, c.ConvKernel)
	conv.Shape, conv.F32 = tensor.Shape{qkv, c.ConvKernel}, true
	conv.Rows = tiledHeads(c, c.ValueDim, 2*keys)

	decay := b.add(hf+"A_log", gguf+"ssm_a", c.ValueHeads)
	decay.Op, decay.Rows = NegExp, tiledHeads(c, 1, 0)
	b.add(hf+"dt_bias", gguf+"ssm_dt.bias", c.ValueHeads).Rows = tiledHeads(c, 1, 0)

	b.add(hf+"norm.weight", gguf+"ssm_norm.weight", c.ValueDim)
	b.add(hf+"out_proj.weight", gguf+"ssm_out.weight", c.Hidden, values).Cols = tiledHeads(c, c.ValueDim, 0)
}

func (b *builder) experts(hf, gguf string) {
	c := b.c
	b.add(hf+"gate.weight", gguf+"ffn_gate_inp.weight", c.Experts, c.Hidden).F32 = true
	if b.names[hf+"experts.gate_up_proj"] { // two tensors for all experts instead of three for each
		b.fused(hf+"experts.gate_up_proj", gguf+"ffn_gate_exps.weight", 0)
		b.fused(hf+"experts.gate_up_proj", gguf+"ffn_up_exps.weight", c.ExpertFFN)
		b.add(hf+"experts.down_proj", gguf+"ffn_down_exps.weight", c.Experts, c.Hidden, c.ExpertFFN)
	} else {
		b.stacked(hf+"experts.%d.gate_proj.weight", gguf+"ffn_gate_exps.weight", c.ExpertFFN, c.Hidden)
		b.stacked(hf+"experts.%d.up_proj.weight", gguf+"ffn_up_exps.weight", c.ExpertFFN, c.Hidden)
		b.stacked(hf+"experts.%d.down_proj.weight", gguf+"ffn_down_exps.weight", c.Hidden, c.ExpertFFN)
	}
	if c.SharedFFN > 0 {
		b.add(hf+"shared_expert_gate.weight", gguf+"ffn_gate_inp_shexp.weight", 1, c.Hidden).F32 = true
		b.add(hf+"shared_expert.gate_proj.weight", gguf+"ffn_gate_shexp.weight", c.SharedFFN, c.Hidden)
		b.add(hf+"shared_expert.up_proj.weight", gguf+"ffn_up_shexp.weight", c.SharedFFN, c.Hidden)
		b.add(hf+"shared_expert.down_proj.weight", gguf+"ffn_down_shexp.weight", c.Hidden, c.SharedFFN)
	}
}

// stacked adds a tensor over all experts, each of which has its own in the checkpoint.
func (b *builder) stacked(hf, gguf string, rows, cols int64) {
	t := b.add("", gguf, rows, cols)
	t.Shape = tensor.Shape{b.c.Experts, rows, cols}
	t.Sources = nil
	for i := range b.c.Experts {
		t.Sources = append(t.Sources, fmt.Sprintf(hf, i))
	}
}

// fused adds gate or up of all experts from the tensor that holds both: for each expert ExpertFFN rows from offset.
func (b *builder) fused(hf, gguf string, offset int64) {
	c := b.c
	t := b.add(hf, gguf, c.Experts, 2*c.ExpertFFN, c.Hidden)
	t.Shape = tensor.Shape{c.Experts, c.ExpertFFN, c.Hidden}
	for i := range c.Experts {
		t.Rows = append(t.Rows, Run{i*2*c.ExpertFFN + offset, c.ExpertFFN})
	}
}

// multiTokenPrediction adds the layers behind the last one; in GGUF they continue the count.
func (b *builder) multiTokenPrediction(layers int) {
	c := b.c
	b.mtp = true
	first := fmt.Sprintf("blk.%d.nextn.", c.Layers)
	b.add("mtp.fc.weight", first+"eh_proj.weight", c.Hidden, 2*c.Hidden)
	b.norm("mtp.pre_fc_norm_embedding.weight", first+"enorm.weight", c.Hidden)
	b.norm("mtp.pre_fc_norm_hidden.weight", first+"hnorm.weight", c.Hidden)
	b.norm("mtp.norm.weight", first+"shared_head_norm.weight", c.Hidden)
	for i := range layers {
		b.layer(fmt.Sprintf("mtp.layers.%d.", i), fmt.Sprintf("blk.%d.", c.Layers+i), false)
	}
}
