package arch_test

import (
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"quern/arch"
	"quern/gguf"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

// openCheckpoint opens a checkpoint folder; open files are closed with the test.
func openCheckpoint(t *testing.T, dir string) *arch.Checkpoint {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	config, err := arch.ParseConfig(data)
	if err != nil {
		t.Fatal(err)
	}
	files, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { files.Close() })
	ck, err := arch.NewCheckpoint(config, files.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	return ck
}

func openGGUF(t *testing.T, path string) (*gguf.File, *arch.Model) {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	m, err := arch.FromGGUF(f.Meta, f.Tensors)
	if err != nil {
		t.Fatal(err)
	}
	return f, m
}

// references calls f for each GGUF file of the reference converter, with the folder of its checkpoint.
func references(t *testing.T, f func(t *testing.T, checkpoint, ggufPath string)) {
	files, _ := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "*.gguf"))
	if len(files) == 0 {
		t.Fatal("no case found")
	}
	for _, path := range files {
		name := strings.SplitN(filepath.Base(path), ".", 2)[0]
		name = strings.TrimSuffix(name, "-no-mtp")
		t.Run(filepath.Base(path), func(t *testing.T) {
			f(t, testenv.OracleInputs(t, "models", "checkpoints", name), path)
		})
	}
}

// TestLayoutIsTheReferences reads every tensor of the checkpoints in GGUF's layout and compares it with what the
// reference converter wrote.
func TestLayoutIsTheReferences(t *testing.T) {
	references(t, func(t *testing.T, dir, path string) {
		ck := openCheckpoint(t, dir)
		f, m := openGGUF(t, path)
		var r arch.Reader
		worst := 0.0
		for _, want := range f.Tensors {
			x := ck.ByGGUF(want.Name)
			if x == nil {
				t.Errorf("%s is not in the table", want.Name)
				continue
			}
			if y := m.ByGGUF(want.Name); !reflect.DeepEqual(x, y) && !x.Optional {
				t.Errorf("%s: table from config.json and from GGUF differ:\n%+v\n%+v", want.Name, x, y)
			}
			if !x.Shape.Equal(want.Shape) {
				t.Errorf("%s: shape %v, want %v", want.Name, x.Shape, want.Shape)
				continue
			}
			wantValues, err := want.ReadFloats()
			if err != nil {
				t.Fatal(err)
			}
			got := make([]float32, len(wantValues))
			if err := r.Floats(x, ck.Stored(x), 0, got); err != nil {
				t.Fatal(err)
			}
			for i := range got {
				if want.DType == tensor.BF16 {
					got[i] = tensor.BF16ToF32(tensor.F32ToBF16(got[i]))
				}
				if got[i] == wantValues[i] {
					continue
				}
				ulps := math.Abs(float64(int32(math.Float32bits(got[i])) - int32(math.Float32bits(wantValues[i]))))
				worst = max(worst, ulps)
				if x.Op != arch.NegExp || ulps > 1 {
					t.Errorf("%s[%d] = %v, want %v", want.Name, i, got[i], wantValues[i])
					break
				}
			}
		}
		t.Logf("worst difference: %v units in the last place, in the decay of linear attention", worst)
	})
}

// TestRowsInPieces reads tensors in pieces of every size and compares them with the whole.
func TestRowsInPieces(t *testing.T) {
	ck := openCheckpoint(t, testenv.OracleInputs(t, "models", "checkpoints", "qwen35-vl-tiny"))
	var r arch.Reader
	for i := range ck.Tensors {
		x := &ck.Tensors[i]
		rows, rowLen := x.NumRows(), x.RowLen()
		whole := make([]float32, rows*rowLen)
		if err := r.Floats(x, ck.Stored(x), 0, whole); err != nil {
			t.Fatal(err)
		}
		for _, size := range []int64{1, 2, 7, 33} {
			var pieces []float32
			for from := int64(0); from < rows; from += size {
				piece := make([]float32, min(size, rows-from)*rowLen)
				if err := r.Floats(x, ck.Stored(x), from, piece); err != nil {
					t.Fatal(err)
				}
				pieces = append(pieces, piece...)
			}
			if !slices.Equal(pieces, whole) {
				t.Errorf("%s in pieces of %d rows differs", x.GGUF, size)
			}
		}
		if err := r.Floats(x, ck.Stored(x), rows, make([]float32, rowLen)); err == nil {
			t.Errorf("%s: a row beyond the end was read", x.GGUF)
		}
	}
}

// TestPermutations checks the helpers that reorder deltas against the reader, and that they can be undone.
func TestPermutations(t *testing.T) {
	ck := openCheckpoint(t, testenv.OracleInputs(t, "models", "checkpoints", "qwen35-tiny"))
	var r arch.Reader
	reordered := 0
	for i := range ck.Tensors {
		x := &ck.Tensors[i]
		if len(x.Shape) != 2 || x.F32 || x.Rows == nil && x.Cols == nil {
			continue
		}
		reordered++
		stored, err := ck.Stored(x)[0].ReadFloats()
		if err != nil {
			t.Fatal(err)
		}
		want := make([]float32, len(stored))
		if err := r.Floats(x, ck.Stored(x), 0, want); err != nil {
			t.Fatal(err)
		}
		rowLen := x.RowLen()
		through := func(rows, cols arch.Runs, src []float32) []float32 {
			half, out := make([]float32, len(src)), make([]float32, len(src))
			if err := rows.GatherRows(half, src, rowLen); err != nil {
				t.Fatal(err)
			}
			if err := cols.GatherCols(out, half, rowLen); err != nil {
				t.Fatal(err)
			}
			return out
		}
		got := through(x.Rows, x.Cols, stored)
		if !slices.Equal(got, want) {
			t.Errorf("%s: Gather differs from the reader", x.GGUF)
		}
		if back := through(x.Rows.Inverse(), x.Cols.Inverse(), got); !slices.Equal(back, stored) {
			t.Errorf("%s: the inverse does not undo the order", x.GGUF)
		}
	}
	if reordered == 0 {
		t.Fatal("no tensor was reordered")
	}
}

func TestCanonical(t *testing.T) {
	for name, want := range map[string]string{
		"model.layers.0.mlp.up_proj.weight":                "model.layers.0.mlp.up_proj.weight",
		"model.language_model.layers.0.mlp.up_proj.weight": "model.layers.0.mlp.up_proj.weight",
		"language_model.model.embed_tokens.weight":         "model.embed_tokens.weight",
		"language_model.lm_head.weight":                    "lm_head.weight",
		"model.lm_head.weight":                             "lm_head.weight",
		"layers.3.input_layernorm.weight":                  "model.layers.3.input_layernorm.weight",
		"norm.weight":                                      "model.norm.weight",
		"model.mtp.fc.weight":                              "mtp.fc.weight",
		"model.visual.blocks.0.norm1.weight":               "",
		"visual.patch_embed.proj.weight":                   "",
		"model.layers.0.self_attn.rotary_emb.inv_freq":     "",
	} {
		if got, ok := arch.Canonical(name); got != want || ok != (want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, ok, want)
		}
	}
}

func TestConfigsThatCannotBe(t *testing.T) {
	good := map[string]string{"architectures": `["Qwen3ForCausalLM"]`, "num_hidden_layers": "2", "hidden_size": "64", "vocab_size": "100",
		"num_attention_heads": "4", "num_key_value_heads": "2", "max_position_embeddings": "128", "intermediate_size": "96"}
	build := func(change map[string]string) []byte {
		var parts []string
		for k, v := range good {
			if c, ok := change[k]; ok {
				v = c
			}
			if v != "" {
				parts = append(parts, `"`+k+`":`+v)
			}
		}
		for k, v := range change {
			if _, ok := good[k]; !ok {
				parts = append(parts, `"`+k+`":`+v)
			}
		}
		return []byte("{" + strings.Join(parts, ",") + "}")
	}
	if _, err := arch.ParseConfig(build(nil)); err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		change map[string]string
		want   string
	}{
		"unknown class":    {map[string]string{"architectures": `["LlamaForCausalLM"]`}, "class LlamaForCausalLM; supported are"},
		"no class":         {map[string]string{"architectures": ""}, "architectures is missing"},
		"no layers":        {map[string]string{"num_hidden_layers": ""}, "num_hidden_layers is missing"},
		"null layers":      {map[string]string{"num_hidden_layers": "null"}, "num_hidden_layers is missing"},
		"negative":         {map[string]string{"hidden_size": "-1"}, "hidden_size is -1"},
		"fraction":         {map[string]string{"hidden_size": "1.5"}, "hidden_size is 1.5"},
		"huge":             {map[string]string{"num_hidden_layers": "1e9"}, "more than any model has"},
		"text":             {map[string]string{"hidden_size": `"64"`}, "hidden_size"},
		"quantised":        {map[string]string{"quantization_config": `{"quant_method":"bitsandbytes"}`}, "quantised (bitsandbytes)"},
		"layer types":      {map[string]string{"architectures": `["Qwen3_5ForCausalLM"]`, "layer_types": `["full_attention"]`, "linear_num_key_heads": "2", "linear_num_value_heads": "4", "linear_key_head_dim": "8", "linear_value_head_dim": "8", "linear_conv_kernel_dim": "4"}, "layer_types has 1 entries for 2 layers"},
		"head ratio":       {map[string]string{"architectures": `["Qwen3_5ForCausalLM"]`, "linear_num_key_heads": "3", "linear_num_value_heads": "4", "linear_key_head_dim": "8", "linear_value_head_dim": "8", "linear_conv_kernel_dim": "4"}, "not a multiple"},
		"sparse and dense": {map[string]string{"architectures": `["Qwen3MoeForCausalLM"]`, "num_experts": "4", "num_experts_per_tok": "2", "moe_intermediate_size": "8", "mlp_only_layers": "[0]"}, "mlp_only_layers"},
	} {
		if _, err := arch.ParseConfig(build(c.change)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
}

// TestRopeMetadata looks at position encodings that no reference file has, in both of the forms of config.json.
func TestRopeMetadata(t *testing.T) {
	const rest = `"num_hidden_layers":1,"hidden_size":64,"vocab_size":100,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,"intermediate_size":96`
	const hybrid = rest + `,"linear_num_key_heads":2,"linear_num_value_heads":4,"linear_key_head_dim":8,"linear_value_head_dim":8,"linear_conv_kernel_dim":4`
	for name, c := range map[string]struct {
		config string
		want   map[string]any
	}{
		"yarn, older form": {`"architectures":["Qwen2ForCausalLM"],"rope_theta":1e6,"rope_scaling":{"type":"yarn","factor":4.0,"original_max_position_embeddings":32768},` + rest, map[string]any{
			"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.factor": float32(4), "qwen2.rope.scaling.original_context_length": uint32(32768),
			"qwen2.rope.freq_base": float32(1e6), "qwen2.rope.scaling.yarn_beta_fast": nil,
		}},
		"yarn, newer form": {`"architectures":["Qwen2ForCausalLM"],"rope_parameters":{"rope_theta":1e6,"rope_type":"yarn","factor":2,"original_max_position_embeddings":64,"beta_fast":32,"attention_factor":0.5},` + rest, map[string]any{
			"qwen2.rope.scaling.type": "yarn", "qwen2.rope.scaling.yarn_beta_fast": float32(32), "qwen2.rope.scaling.yarn_attn_factor": float32(0.5), "qwen2.rope.freq_base": float32(1e6),
		}},
		"linear": {`"architectures":["Qwen2ForCausalLM"],"rope_scaling":{"rope_type":"linear","factor":8},` + rest, map[string]any{
			"qwen2.rope.scaling.type": "linear", "qwen2.rope.scaling.factor": float32(8), "qwen2.rope.freq_base": float32(10000),
		}},
		"none": {`"architectures":["Qwen2ForCausalLM"],"rope_scaling":null,` + rest, map[string]any{"qwen2.rope.scaling.type": nil, "qwen2.rope.dimension_sections": nil}},
		"hybrid without sections": {`"architectures":["Qwen3_5ForCausalLM"],"rope_parameters":{"rope_theta":1e7},` + hybrid, map[string]any{
			"qwen35.rope.dimension_sections": []int32{11, 11, 10, 0}, "qwen35.rope.dimension_count": uint32(64), "qwen35.attention.key_length": uint32(256),
			"qwen35.attention.recurrent_layers": []bool{true},
		}},
	} {
		config, err := arch.ParseConfig([]byte("{" + c.config + "}"))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		m, err := arch.NewModel(config, nil)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := map[string]any{}
		for _, e := range m.Metadata(0, 0) {
			got[e.Key] = e.Value
		}
		for key, want := range c.want {
			if !reflect.DeepEqual(got[key], want) {
				t.Errorf("%s: %s is %#v, want %#v", name, key, got[key], want)
			}
		}
	}
}

func TestMemoryOfQwen35(t *testing.T) {
	// Qwen3.5-9B: 32 layers, every fourth with full attention, 4 key-value heads of 256; 32 value heads of 128 over
	// 16 key heads of 128, convolution over 4.
	c := &arch.Config{Arch: "qwen35", Layers: 32, KVHeads: 4, HeadDim: 256, KeyHeads: 16, ValueHeads: 32, KeyDim: 128, ValueDim: 128, ConvKernel: 4}
	for i := range 32 {
		c.Linear = append(c.Linear, i%4 != 3)
	}
	if kv := c.KVBytesPerToken(2); kv != 32<<10 {
		t.Errorf("key-value cache: %d bytes a token", kv)
	}
	if state := c.StateBytesPerLane(); state != 24*(2<<20+96<<10) {
		t.Errorf("recurrent state: %d bytes a lane", state)
	}
}

func FuzzParseConfig(f *testing.F) {
	f.Add([]byte(`{"architectures":["Qwen3ForCausalLM"],"num_hidden_layers":2,"hidden_size":64,"vocab_size":100,"num_attention_heads":4,"num_key_value_heads":2,"max_position_embeddings":128,"intermediate_size":96}`))
	f.Add([]byte(`{"architectures":["Qwen3_5MoeForCausalLM"],"text_config":{}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := arch.ParseConfig(data)
		if err != nil || c.Layers > 8 || c.Experts > 8 {
			return
		}
		if _, err := arch.NewModel(c, nil); err != nil {
			return
		}
		c.KVBytesPerToken(2)
		c.StateBytesPerLane()
	})
}
