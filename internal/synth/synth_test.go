package synth_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"quern/convert"
	"quern/engine"
	"quern/gguf"
	"quern/internal/synth"
	"quern/tensor"
)

// Every kind of file loads in llama.cpp, tokenizes text to ids and back, and generates.
func TestModelsRun(t *testing.T) {
	for _, shape := range []string{"qwen2-mini", "qwen3.5-mini"} {
		for _, typ := range []string{"f32", "f16", "bf16", "q8_0", "q4_0"} {
			t.Run(shape+" "+typ, func(t *testing.T) {
				s, kind := find(t, shape), parse(t, typ)
				path := filepath.Join(t.TempDir(), "model.gguf")
				if err := synth.WriteGGUF(t.Context(), s, kind, path); err != nil {
					t.Fatal(err)
				}
				generate(t, path)
			})
		}
	}
}

func generate(t *testing.T, path string) {
	t.Helper()
	m, err := engine.Load(t.Context(), path, engine.LoadOptions{GPULayers: engine.GPUNone})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	const text = "Wie viele Städte hat Peru? 你好, it's 42%\n"
	ids, err := m.TokenizeReference(text)
	if err != nil {
		t.Fatal(err)
	}
	if back, err := m.Detokenize(ids, false); back != text || err != nil {
		t.Errorf("%q became %q, %v", text, back, err)
	}
	e, err := m.NewEngine(t.Context(), engine.EngineOptions{ContextLength: 256, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	stream, err := e.Generate(t.Context(), engine.Request{Prompt: ids, MaxTokens: 8, IgnoreEnd: true})
	if err != nil {
		t.Fatal(err)
	}
	result, err := stream.Wait()
	if err != nil || len(result.Tokens) != 8 {
		t.Errorf("%d tokens, %v", len(result.Tokens), err)
	}
}

// The checkpoint is one that the converter takes, tokenizer included.
func TestCheckpointConverts(t *testing.T) {
	for _, shape := range []string{"qwen2-mini", "qwen3.5-mini"} {
		t.Run(shape, func(t *testing.T) {
			dir := filepath.Join(t.TempDir(), "checkpoint")
			if err := synth.WriteCheckpoint(t.Context(), find(t, shape), tensor.BF16, dir); err != nil {
				t.Fatal(err)
			}
			out := filepath.Join(t.TempDir(), "model.gguf")
			if _, err := convert.Convert(context.Background(), dir, out, convert.Options{Type: convert.F32}); err != nil {
				t.Fatal(err)
			}
			generate(t, out)
		})
	}
}

func TestSameBytesEachTime(t *testing.T) {
	s := find(t, "qwen2-mini")
	var files [2]string
	for i := range files {
		path := filepath.Join(t.TempDir(), "model.gguf")
		if err := synth.WriteGGUF(t.Context(), s, tensor.Q8_0, path); err != nil {
			t.Fatal(err)
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		files[i] = string(data)
	}
	if files[0] != files[1] {
		t.Error("two files of one shape and type differ")
	}
}

// The built-in shapes are those of the published models: their sizes are known.
func TestParameterCounts(t *testing.T) {
	counts := map[string]float64{"qwen2.5-0.5b": 0.494e9, "qwen2.5-3b": 3.09e9, "qwen3.5-0.8b": 0.75e9, "qwen3.5-9b": 8.95e9}
	for name, want := range counts {
		got := synth.Parameters(find(t, name))
		if r := float64(got) / want; r < 0.98 || r > 1.02 {
			t.Errorf("%s has %d parameters, want about %.3g", name, got, want)
		}
	}
}

func TestShapeOfAnyConfig(t *testing.T) {
	dir := t.TempDir()
	config := `{"architectures": ["Qwen3ForCausalLM"], "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 300, "max_position_embeddings": 512, "tie_word_embeddings": false}`
	if err := os.WriteFile(filepath.Join(dir, "config.json"), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "model.gguf")
	if err := synth.WriteGGUF(t.Context(), find(t, dir), tensor.Q4_0, path); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if f.Lookup("output.weight") == nil || f.Lookup("token_embd.weight").DType != tensor.Q4_0 {
		t.Error("an untied model has a head of its own, in the type asked for")
	}
	generate(t, path)
	for _, bad := range []string{"no-such-shape", filepath.Join(dir, "model.gguf")} {
		if _, err := synth.Find(bad); err == nil {
			t.Errorf("%s: taken for a shape", bad)
		}
	}
}

func find(t *testing.T, name string) *synth.Shape {
	t.Helper()
	s, err := synth.Find(name)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t *testing.T, name string) tensor.DType {
	t.Helper()
	kind, err := synth.ParseType(name)
	if err != nil {
		t.Fatal(err)
	}
	return kind
}
