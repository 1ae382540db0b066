package engine

import (
	"context"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"quern/engine/internal/llama"
	"quern/internal/testenv"
	"quern/lora"
	"quern/safetensors"
)

// exportAdapter writes the adapter of a golden merge as GGUF; "" where it cannot be applied while running.
func exportAdapter(t *testing.T, folder, base string) string {
	t.Helper()
	root := filepath.Dir(filepath.Dir(folder))
	adapter, err := lora.Open(filepath.Join(root, "adapters", filepath.Base(folder)))
	if err != nil {
		return "" // several stages
	}
	defer adapter.Close()
	b, err := lora.OpenBase(testenv.OracleInputs(t, "models", "checkpoints", base))
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	plan, err := lora.NewPlan(b, []lora.Stage{{Adapter: adapter, Scale: 1}})
	if err != nil {
		t.Logf("%s: %v", filepath.Base(folder), err)
		return ""
	}
	out := filepath.Join(t.TempDir(), "adapter.gguf")
	if _, err := plan.Export(context.Background(), out); err != nil {
		t.Logf("%s: %v", filepath.Base(folder), err)
		return ""
	}
	return out
}

// TestAdapters: a base with an adapter gives what the reference gives for the two merged.
func TestAdapters(t *testing.T) {
	ctx := context.Background()
	files, err := filepath.Glob(filepath.Join(testenv.Oracles(t, "models", "merged"), "*", "golden-f32", "golden.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden results of merged models (%v)", err)
	}
	models, tried := floatModels(t), 0
	for _, file := range files {
		folder := filepath.Dir(filepath.Dir(file))
		base := readJSON[mergeFile](t, filepath.Join(folder, "merge.json")).Base
		path := exportAdapter(t, folder, base)
		if path == "" || models[base] == "" {
			continue
		}
		tried++
		m := load(t, models[base], LoadOptions{})
		a, err := m.LoadAdapter(ctx, path)
		if err != nil {
			t.Errorf("%s: %v", filepath.Base(folder), err)
			continue
		}
		compareAdapted(t, filepath.Base(folder), m, a, file)
		if err := errors.Join(a.Close(), a.Close()); err != nil {
			t.Error(err)
		}
	}
	if tried == 0 {
		t.Fatal("no adapter could be tried")
	}
}

func compareAdapted(t *testing.T, name string, m *Model, a *Adapter, file string) {
	want := readJSON[golden](t, file)
	stored, err := safetensors.Open(filepath.Join(filepath.Dir(file), "logits.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer stored.Close()
	opt := exact
	opt.Adapters = []AdapterScale{{a, 1}}
	e := start(t, m, opt)
	defer e.Close()
	if err := a.Close(); err == nil {
		t.Error("the adapter was closed under its engine")
	}
	opt.Adapters = []AdapterScale{{a, 0}}
	off := start(t, m, opt)
	defer off.Close()
	plain := start(t, m, exact)
	defer plain.Close()
	worst := 0.0
	for prompt, p := range want.Prompts {
		logits, err := stored.Lookup(prompt).ReadFloats()
		if err != nil {
			t.Fatal(err)
		}
		r := newRaw(t, m, 1024, 1)
		if err := r.SetAdapters([]*llama.Adapter{a.llama}, []float32{1}); err != nil {
			t.Fatal(err)
		}
		worst = max(worst, difference(slices.Concat(r.read(0, p.IDs, 512, 4)...), logits))
		r.Close() // before its adapter
		req := Request{Prompt: p.IDs, MaxTokens: len(p.Greedy), IgnoreEnd: true}
		if got := generate(t, e, req); !slices.Equal(got.Tokens, p.Greedy) {
			t.Errorf("%s, %s: greedy %v, want %v", name, prompt, got.Tokens, p.Greedy)
		}
		if !slices.Equal(generate(t, off, req).Tokens, generate(t, plain, req).Tokens) {
			t.Errorf("%s, %s: scale 0 is not the base", name, prompt)
		}
	}
	t.Logf("%s: worst logit difference %.1e", name, worst)
	if worst > tolerance(m) {
		t.Errorf("more than %.0e", tolerance(m))
	}
}

// TestWrongAdapter: what is no adapter for this model is refused.
func TestWrongAdapter(t *testing.T) {
	ctx := context.Background()
	models := floatModels(t)
	m := load(t, models["qwen3-tiny"], LoadOptions{})
	folder := testenv.OracleInputs(t, "models", "merged", "q2-lora-r8")
	foreign := exportAdapter(t, folder, "qwen2-tiny")
	for _, path := range []string{foreign, models["qwen3-tiny"], "missing.gguf"} {
		if _, err := m.LoadAdapter(ctx, path); !errors.Is(err, ErrBadFile) {
			t.Errorf("%s: %v", path, err)
		} else {
			t.Log(err)
		}
	}
}
