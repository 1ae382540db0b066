package convert

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/fstest"

	"quern/gguf"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

const qwen2Regex = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+`

// checkpointFiles are the files of a tiny made-up checkpoint, without its weights.
func checkpointFiles() map[string]string {
	return map[string]string{
		"config.json": `{"architectures":["Qwen3ForCausalLM"],"model_type":"qwen3","num_hidden_layers":1,"hidden_size":64,"vocab_size":8,
			"num_attention_heads":2,"num_key_value_heads":1,"head_dim":32,"max_position_embeddings":128,"intermediate_size":96,
			"rms_norm_eps":1e-6,"rope_theta":1000000,"tie_word_embeddings":true,"eos_token_id":5}`,
		"tokenizer.json": `{"added_tokens":[{"id":4,"content":"<|endoftext|>","special":true},{"id":5,"content":"<stop>","special":true},
			{"id":6,"content":"<tool>","special":false}],"normalizer":{"type":"NFC"},
			"pre_tokenizer":{"type":"Sequence","pretokenizers":[{"type":"Split","pattern":{"Regex":"` + qwen2Regex + `"},"behavior":"Isolated","invert":false},
			{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}]},
			"model":{"type":"BPE","vocab":{"a":0,"b":1,"ab":2,"Ġ":3},"merges":[["a","b"]]}}`,
		"tokenizer_config.json": `{"eos_token":"<stop>","pad_token":{"content":"<|endoftext|>"},"chat_template":"from config"}`,
	}
}

// writeCheckpoint writes files and random weights for every tensor that config.json asks for. It returns the folder.
func writeCheckpoint(t *testing.T, files map[string]string, specs []tensor.Spec) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "model")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	for name, content := range files {
		if content == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	contents := map[string][]byte{}
	rng := rand.New(rand.NewPCG(5, 6))
	for _, s := range specs {
		n, _ := s.Shape.Elements()
		for range n {
			contents[s.Name] = binary.LittleEndian.AppendUint32(contents[s.Name], math.Float32bits(float32(rng.NormFloat64())))
		}
	}
	writeWeights(t, dir, specs, contents)
	return dir
}

func f32s(shapes map[string][]int64) (specs []tensor.Spec) {
	for name, shape := range shapes {
		specs = append(specs, tensor.Spec{Name: name, DType: tensor.F32, Shape: shape})
	}
	return specs
}

func qwen3Weights() map[string][]int64 {
	const l = "model.layers.0."
	return map[string][]int64{
		"model.embed_tokens.weight": {8, 64}, "model.norm.weight": {64}, l + "input_layernorm.weight": {64},
		l + "self_attn.q_proj.weight": {64, 64}, l + "self_attn.k_proj.weight": {32, 64}, l + "self_attn.v_proj.weight": {32, 64},
		l + "self_attn.o_proj.weight": {64, 64}, l + "self_attn.q_norm.weight": {32}, l + "self_attn.k_norm.weight": {32},
		l + "post_attention_layernorm.weight": {64}, l + "mlp.gate_proj.weight": {96, 64}, l + "mlp.up_proj.weight": {96, 64},
		l + "mlp.down_proj.weight": {64, 96},
	}
}

func convertTo(t *testing.T, dir string, o Options) (*gguf.File, error) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.gguf")
	if _, err := Convert(context.Background(), dir, out, o); err != nil {
		if left, _ := filepath.Glob(filepath.Join(filepath.Dir(out), "*")); len(left) > 0 {
			t.Errorf("a failed conversion left %v", left)
		}
		return nil, err
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f, nil
}

// TestRefusals changes one thing at a time and wants the reason named.
func TestRefusals(t *testing.T) {
	good := func() (map[string]string, map[string][]int64) { return checkpointFiles(), qwen3Weights() }
	files, weights := good()
	if _, err := convertTo(t, writeCheckpoint(t, files, f32s(weights)), Options{}); err != nil {
		t.Fatal(err)
	}
	change := func(name, old, new string) func(map[string]string, map[string][]int64) {
		return func(f map[string]string, _ map[string][]int64) {
			if !strings.Contains(f[name], old) {
				t.Fatalf("%s has no %s", name, old)
			}
			f[name] = strings.Replace(f[name], old, new, 1)
		}
	}
	for name, c := range map[string]struct {
		change func(files map[string]string, weights map[string][]int64)
		o      Options
		want   string
	}{
		"no config": {func(f map[string]string, _ map[string][]int64) { delete(f, "config.json") }, Options{}, "no config.json"},
		"an adapter": {func(f map[string]string, _ map[string][]int64) {
			f["adapter_config.json"] = "{}"
			delete(f, "config.json")
		}, Options{}, "quern lora merge"},
		"no tokenizer":   {func(f map[string]string, _ map[string][]int64) { delete(f, "tokenizer.json") }, Options{}, "no tokenizer.json"},
		"broken config":  {change("config.json", "{", "["), Options{}, "config.json"},
		"other type":     {func(map[string]string, map[string][]int64) {}, Options{Type: "q4_k"}, `type "q4_k"; possible are f32`},
		"no MTP":         {func(map[string]string, map[string][]int64) {}, Options{MTP: OnlyMTP}, "no layers for multi-token prediction"},
		"missing tensor": {func(_ map[string]string, w map[string][]int64) { delete(w, "model.norm.weight") }, Options{}, "not complete: model.norm.weight missing"},
		"missing layer":  {change("config.json", `"num_hidden_layers":1`, `"num_hidden_layers":2`), Options{}, "and 7 more missing"},
		"unknown tensor": {func(_ map[string]string, w map[string][]int64) {
			w["model.layers.0.self_attn.q_proj.weight_scale"] = []int64{1}
		}, Options{}, "no tensors like model.layers.0.self_attn.q_proj.weight_scale"},
		"other shape": {func(_ map[string]string, w map[string][]int64) {
			w["model.layers.0.mlp.up_proj.weight"] = []int64{64, 96}
		}, Options{}, "has shape [64, 96]; by config.json it should be [96, 64]"},
		"two spellings":   {func(_ map[string]string, w map[string][]int64) { w["model.language_model.norm.weight"] = []int64{64} }, Options{}, "the same weight under two names"},
		"untied, no head": {change("config.json", `"tie_word_embeddings":true`, `"tie_word_embeddings":false`), Options{}, "lm_head.weight missing; if the head is meant to share"},
		"small vocabulary": {func(f map[string]string, w map[string][]int64) {
			change("config.json", `"vocab_size":8`, `"vocab_size":6`)(f, w)
			w["model.embed_tokens.weight"] = []int64{6, 64}
		}, Options{}, `added token "<tool>" has id 6, but the embedding has 6 rows`},
		"same id twice":    {change("tokenizer.json", `"b":1`, `"b":0`), Options{}, "have the same id 0"},
		"other regex":      {change("tokenizer.json", `|\\p{N}|`, `|\\p{N}{1,3}|`), Options{}, `\p{N}{1,3}`},
		"other normalizer": {change("tokenizer.json", "NFC", "Lowercase"), Options{}, "normalizer Lowercase"},
		"other steps":      {change("tokenizer.json", `"use_regex":false`, `"use_regex":true`), Options{}, "not a split followed by ByteLevel"},
		"not BPE":          {change("tokenizer.json", `"type":"BPE"`, `"type":"Unigram"`), Options{}, "of type Unigram"},
		"no merges":        {change("tokenizer.json", `,"merges":[["a","b"]]`, ``), Options{}, "has merges"},
		"merge of three":   {change("tokenizer.json", `["a","b"]`, `["a","b","c"]`), Options{}, "merge 0 has 3 parts"},
		"end out of range": {change("config.json", `"eos_token_id":5`, `"eos_token_id":[5,99]`), Options{}, "eos_token_id 99"},
	} {
		t.Run(name, func(t *testing.T) {
			files, weights := good()
			c.change(files, weights)
			_, err := convertTo(t, writeCheckpoint(t, files, f32s(weights)), c.o)
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

func TestUnknownTokenizerByName(t *testing.T) {
	files := checkpointFiles()
	files["tokenizer.json"] = strings.Replace(files["tokenizer.json"], `|\\p{N}|`, `|\\p{N}{1,3}|`, 1)
	f, err := convertTo(t, writeCheckpoint(t, files, f32s(qwen3Weights())), Options{Pre: "llama-bpe"})
	if err != nil {
		t.Fatal(err)
	}
	if pre, _ := f.Meta.Text("tokenizer.ggml.pre"); pre != "llama-bpe" {
		t.Errorf("pre-tokenizer %q", pre)
	}
}

// TestTokenizerMetadata looks at what no reference covers: ends that llama.cpp does not know by their text, both
// places of the chat template, named templates, older files.
func TestTokenizerMetadata(t *testing.T) {
	for name, c := range map[string]struct {
		change func(files map[string]string)
		want   map[string]any
	}{
		"as it is": {func(map[string]string) {}, map[string]any{
			"tokenizer.ggml.tokens":           []string{"a", "b", "ab", "Ġ", "<|endoftext|>", "<stop>", "<tool>", "[PAD7]"},
			"tokenizer.ggml.token_type":       []int32{1, 1, 1, 1, 3, 3, 4, 5},
			"tokenizer.ggml.merges":           []string{"a b"},
			"tokenizer.ggml.eos_token_id":     uint32(5),
			"tokenizer.ggml.padding_token_id": uint32(4),
			"tokenizer.chat_template":         "from config",
			"tokenizer.ggml.eot_token_id":     nil,
		}},
		"an end more": {func(f map[string]string) {
			f["generation_config.json"] = `{"eos_token_id":[5,6,4],"repetition_penalty":1.05,"top_k":20,"temperature":null}`
		}, map[string]any{
			"tokenizer.ggml.eos_token_id":     uint32(5),
			"tokenizer.ggml.eot_token_id":     uint32(6),
			"tokenizer.ggml.eom_token_id":     nil, // <|endoftext|> is known
			"general.sampling.penalty_repeat": float32(1.05),
			"general.sampling.top_k":          int32(20),
			"general.sampling.temp":           nil,
		}},
		"an end less": {func(f map[string]string) { f["tokenizer_config.json"] = "" }, map[string]any{
			"tokenizer.ggml.eos_token_id": uint32(5), // from config.json
			"tokenizer.chat_template":     nil,
		}},
		"the file is preferred": {func(f map[string]string) { f["chat_template.jinja"] = "from file\r\n" }, map[string]any{
			"tokenizer.chat_template": "from file\n",
		}},
		"named templates": {func(f map[string]string) {
			f["tokenizer_config.json"] = `{"chat_template":[{"name":"default","template":"one"},{"name":"tool-use","template":"two"}]}`
		}, map[string]any{
			"tokenizer.chat_template":          "one",
			"tokenizer.chat_template.tool_use": "two",
			"tokenizer.chat_templates":         []string{"tool_use"},
		}},
		"merges as text, with a space": {func(f map[string]string) {
			f["tokenizer.json"] = strings.Replace(f["tokenizer.json"], `[["a","b"]]`, `["a b","Ġ a"]`, 1)
		}, map[string]any{"tokenizer.ggml.merges": []string{"a b", "Ġ a"}}},
		"merges in a file": {func(f map[string]string) {
			f["tokenizer.json"] = strings.Replace(f["tokenizer.json"], `,"merges":[["a","b"]]`, ``, 1)
			f["merges.txt"] = "#version: 0.2\na b\n\nĠ a\n"
		}, map[string]any{"tokenizer.ggml.merges": []string{"a b", "Ġ a"}}},
		"tokens only in the older place": {func(f map[string]string) {
			f["tokenizer_config.json"] = `{"added_tokens_decoder":{"7":{"content":"<|late|>","special":false}},"eos_token":"<|late|>","add_bos_token":false}`
		}, map[string]any{
			"tokenizer.ggml.token_type":    []int32{1, 1, 1, 1, 3, 3, 4, 3},
			"tokenizer.ggml.eos_token_id":  uint32(7),
			"tokenizer.ggml.eot_token_id":  uint32(5), // config.json's
			"tokenizer.ggml.add_bos_token": false,
		}},
		"lineage": {func(f map[string]string) { f["quern_lineage.json"] = `{"a":1}` }, map[string]any{"quern.lineage": `{"a":1}`}},
	} {
		t.Run(name, func(t *testing.T) {
			files := checkpointFiles()
			c.change(files)
			f, err := convertTo(t, writeCheckpoint(t, files, f32s(qwen3Weights())), Options{})
			if err != nil {
				t.Fatal(err)
			}
			for key, want := range c.want {
				if got, _ := f.Meta.Get(key); !reflect.DeepEqual(got, want) {
					t.Errorf("%s: %#v, want %#v", key, got, want)
				}
			}
		})
	}
}

// TestPublishedTokenizers builds tokenizer.json as it is published from the published vocabularies and wants the same
// lists back.
func TestPublishedTokenizers(t *testing.T) {
	for _, c := range []struct{ file, checkpoint string }{{"qwen2.5-vocab.gguf", "qwen2-tiny"}, {"qwen3.5-vocab.gguf", "qwen35-tiny"}} {
		t.Run(c.file, func(t *testing.T) {
			vocab := openVocabulary(t, c.file)
			tokens, _ := vocab.Strings("tokenizer.ggml.tokens")
			types, _ := vocab.Get("tokenizer.ggml.token_type")
			merges, _ := vocab.Strings("tokenizer.ggml.merges")
			wantPre, _ := vocab.Text("tokenizer.ggml.pre")

			var file map[string]any // the steps as in a checkpoint with the same class of tokenizer
			if err := readJSON(os.DirFS(testenv.OracleInputs(t, "models", "checkpoints", c.checkpoint)), "tokenizer.json", &file); err != nil {
				t.Fatal(err)
			}
			ids, added := map[string]int{}, []addedToken{}
			for id, token := range tokens {
				switch types.([]int32)[id] {
				case tokenNormal:
					ids[token] = id
				case tokenControl, tokenUserDefined:
					added = append(added, addedToken{id, token, types.([]int32)[id] == tokenControl})
				}
			}
			file["model"] = map[string]any{"type": "BPE", "vocab": ids, "merges": merges}
			file["added_tokens"] = added
			data, err := json.Marshal(file)
			if err != nil {
				t.Fatal(err)
			}
			files := fstest.MapFS{"tokenizer.json": {Data: data}, "config.json": {Data: []byte("{}")}}
			tok, err := readTokenizer(files)
			if err != nil {
				t.Fatal(err)
			}
			m, err := tok.metadata(files, len(tokens), "")
			if err != nil {
				t.Fatal(err)
			}
			gotTokens, _ := m.Strings("tokenizer.ggml.tokens")
			gotMerges, _ := m.Strings("tokenizer.ggml.merges")
			pre, _ := m.Text("tokenizer.ggml.pre")
			if !slices.Equal(gotTokens, tokens) || !slices.Equal(gotMerges, merges) || pre != wantPre {
				t.Errorf("pre-tokenizer %q, want %q; tokens equal %v, merges equal %v", pre, wantPre, slices.Equal(gotTokens, tokens), slices.Equal(gotMerges, merges))
			}
		})
	}
}

// TestConditionalGenerationWithTextWeights converts a multimodal config whose weights are named as the text class
// names them and have no vision part, as fine-tuning tools save it.
func TestConditionalGenerationWithTextWeights(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "qwen35-vl-tiny")
	base := testenv.OracleInputs(t, "models", "checkpoints", "qwen35-vl-tiny")
	copyFiles(t, base, dir)
	ck, err := safetensors.OpenCheckpoint(base)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var specs []tensor.Spec
	contents := map[string][]byte{}
	for _, x := range ck.Tensors {
		if strings.Contains(x.Name, "visual.") {
			continue
		}
		data, err := x.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		x.Name = strings.Replace(x.Name, "model.language_model.", "model.", 1)
		specs, contents[x.Name] = append(specs, x.Spec), data
	}
	writeWeights(t, dir, specs, contents)
	m := readManifest(t, filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "qwen35-vl-tiny.bf16.manifest.json"))
	m.compare(t, dir, Options{Type: Auto})
}

// TestExperts stacks experts from both ways of storing them; both must give the same file.
func TestExperts(t *testing.T) {
	const experts, ff, hidden = 3, 32, 64
	files := checkpointFiles()
	files["config.json"] = strings.NewReplacer("Qwen3ForCausalLM", "Qwen3MoeForCausalLM", `"intermediate_size":96`,
		`"intermediate_size":96,"num_experts":3,"num_experts_per_tok":2,"moe_intermediate_size":32`).Replace(files["config.json"])
	shapes := qwen3Weights()
	for _, p := range []string{"gate", "up", "down"} {
		delete(shapes, "model.layers.0.mlp."+p+"_proj.weight")
	}
	shapes["model.layers.0.mlp.gate.weight"] = []int64{experts, hidden}
	const mlp = "model.layers.0.mlp.experts."
	for i := range experts {
		shapes[fmt.Sprintf("%s%d.gate_proj.weight", mlp, i)] = []int64{ff, hidden}
		shapes[fmt.Sprintf("%s%d.up_proj.weight", mlp, i)] = []int64{ff, hidden}
		shapes[fmt.Sprintf("%s%d.down_proj.weight", mlp, i)] = []int64{hidden, ff}
	}
	apart := writeCheckpoint(t, files, f32s(shapes))
	one, err := convertTo(t, apart, Options{Type: Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	if x := one.Lookup("blk.0.ffn_gate_exps.weight"); x == nil || !x.Shape.Equal(tensor.Shape{experts, ff, hidden}) || x.DType != tensor.Q8_0 {
		t.Fatalf("stacked experts: %+v", x)
	}
	if x := one.Lookup("blk.0.ffn_gate_inp.weight"); x.DType != tensor.F32 {
		t.Errorf("the router is stored as %v", x.DType)
	}

	ck, err := safetensors.OpenCheckpoint(apart)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	var specs []tensor.Spec
	contents := map[string][]byte{}
	for _, x := range ck.Tensors {
		if !strings.HasPrefix(x.Name, mlp) {
			specs = append(specs, x.Spec)
			contents[x.Name], _ = x.ReadAll()
		}
	}
	for i := range experts {
		for _, p := range []string{"gate", "up"} {
			data, _ := ck.Lookup(fmt.Sprintf("%s%d.%s_proj.weight", mlp, i, p)).ReadAll()
			contents[mlp+"gate_up_proj"] = append(contents[mlp+"gate_up_proj"], data...)
		}
		data, _ := ck.Lookup(fmt.Sprintf("%s%d.down_proj.weight", mlp, i)).ReadAll()
		contents[mlp+"down_proj"] = append(contents[mlp+"down_proj"], data...)
	}
	specs = append(specs, f32s(map[string][]int64{mlp + "gate_up_proj": {experts, 2 * ff, hidden}, mlp + "down_proj": {experts, hidden, ff}})...)
	together := filepath.Join(t.TempDir(), "model")
	copyFiles(t, apart, together)
	writeWeights(t, together, specs, contents)
	two, err := convertTo(t, together, Options{Type: Q8_0})
	if err != nil {
		t.Fatal(err)
	}
	a, errA := os.ReadFile(one.Path)
	b, errB := os.ReadFile(two.Path)
	if errA != nil || errB != nil || !slices.Equal(a, b) {
		t.Errorf("experts stored together and apart give different files (%v, %v)", errA, errB)
	}
}

// TestDeterministic converts twice: the same bytes, whatever the workers' order was.
func TestDeterministic(t *testing.T) {
	dir := testenv.OracleInputs(t, "models", "checkpoints", "qwen35-vl-tiny")
	var files [2][]byte
	for i := range files {
		f, err := convertTo(t, dir, Options{Type: Q8_0})
		if err != nil {
			t.Fatal(err)
		}
		if files[i], err = os.ReadFile(f.Path); err != nil {
			t.Fatal(err)
		}
	}
	if !slices.Equal(files[0], files[1]) {
		t.Error("two conversions differ")
	}
}

// TestCancel leaves nothing behind, neither a file nor the old one changed.
func TestCancel(t *testing.T) {
	dir := testenv.OracleInputs(t, "models", "checkpoints", "qwen3-tiny")
	out := filepath.Join(t.TempDir(), "out.gguf")
	if err := os.WriteFile(out, []byte("old"), 0o644); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	_, err := Convert(ctx, dir, out, Options{Progress: func(int64, int64) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	entries, _ := os.ReadDir(filepath.Dir(out))
	data, _ := os.ReadFile(out)
	if len(entries) != 1 || string(data) != "old" {
		t.Errorf("left behind: %v, %q", entries, data)
	}
}

// TestCachedCheckpoint converts from a folder of the hub's cache, whose files are links and whose path says which
// model it is.
func TestCachedCheckpoint(t *testing.T) {
	blobs := writeCheckpoint(t, checkpointFiles(), f32s(qwen3Weights()))
	dir := filepath.Join(t.TempDir(), "models--Qwen--Qwen3-0.6B-Base", "snapshots", "0123abcd")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(blobs)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if err := os.Symlink(filepath.Join(blobs, e.Name()), filepath.Join(dir, e.Name())); err != nil {
			t.Fatal(err)
		}
	}
	f, err := convertTo(t, dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		"general.name": "Qwen3 0.6B Base", "general.organization": "Qwen", "general.source.huggingface.repository": "Qwen/Qwen3-0.6B-Base",
	} {
		if got, _ := f.Meta.Text(key); got != want {
			t.Errorf("%s: %q, want %q", key, got, want)
		}
	}
	f, err = convertTo(t, dir, Options{Name: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Meta.Text("general.name"); got != "mine" {
		t.Errorf("given name: %q", got)
	}
}

func TestNameParts(t *testing.T) {
	for _, c := range []struct {
		id     string
		params int64
		want   string // name | organization | basename | size | finetune | version
	}{
		{"Qwen/Qwen2.5-0.5B-Instruct", 494_000_000, "Qwen2.5 0.5B Instruct|Qwen|Qwen2.5|0.5B|Instruct|"},
		{"qwen2-tiny", 150_000, "Qwen2 Tiny|||||"},
		{"q35vl-lora-as-saved", 269_000, "Q35Vl Lora As Saved||q35vl||lora-as-saved|"},
		{"Mistral-7B-Instruct-v0.2", 7_200_000_000, "Mistral 7B Instruct v0.2||Mistral|7B|Instruct|v0.2"},
		{"Qwen2.5-7B-Instruct-1M", 7_600_000_000, "Qwen2.5 7B Instruct 1M||Qwen2.5|7B|Instruct-1m|"},
		{"My model", 1000, "My model|||||"},
	} {
		p := nameParts(c.id, c.params)
		got := strings.Join([]string{p["name"], p["organization"], p["basename"], p["size_label"], p["finetune"], p["version"]}, "|")
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.id, got, c.want)
		}
	}
	for n, want := range map[int64]string{494_000_000: "494M", 7_600_000_000: "7.6B", 149_000: "149K", 1_280_000: "1.3M", 9: "0.01K"} {
		if got := roundedCount(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}

func FuzzTokenizer(f *testing.F) {
	f.Add([]byte(`{"added_tokens":[{"id":1,"content":"b","special":true}],"model":{"vocab":{"a":0},"merges":["a a"]}}`), []byte(`{"eos_token":"b"}`))
	f.Fuzz(func(t *testing.T, tokenizer, config []byte) {
		files := fstest.MapFS{"tokenizer.json": {Data: tokenizer}, "tokenizer_config.json": {Data: config}, "config.json": {Data: []byte("{}")}}
		tok, err := readTokenizer(files)
		if err != nil {
			return
		}
		m, err := tok.metadata(files, 8, "qwen2")
		if err != nil {
			return
		}
		if _, err := gguf.NewLayout(m, nil); err != nil {
			t.Fatalf("the tokenizer was accepted but cannot be written: %v", err)
		}
	})
}
