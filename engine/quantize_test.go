package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"quern/gguf"
	"quern/internal/testenv"
	"quern/tensor"
)

func TestQuantize(t *testing.T) {
	in := testenv.OracleInputs(t, "models", "gguf", "qwen2-untied.f32.gguf")
	out := filepath.Join(t.TempDir(), "with space.gguf")
	done, total := 0, 0
	err := Quantize(context.Background(), in, out, QuantizeOptions{Type: "q8_0", Progress: func(d, n int) { done, total = d, n }})
	if err != nil || done != total || total == 0 {
		t.Fatalf("%d of %d tensors: %v", done, total, err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	if dt := f.Lookup("blk.0.attn_q.weight").DType; dt != tensor.Q8_0 {
		t.Errorf("attn_q has type %v", dt)
	}
	f.Close()
	m := load(t, out, LoadOptions{})
	if m.FileType() != "Q8_0" {
		t.Errorf("file type %s", m.FileType())
	}
	generate(t, start(t, m, exact), Request{Prompt: []Token{1, 2, 3}, MaxTokens: 3, IgnoreEnd: true})
	if len(QuantizeTypes()) < 30 {
		t.Error("types are missing")
	}
}

func TestQuantizeLeavesNothingBehind(t *testing.T) {
	in := testenv.OracleInputs(t, "models", "gguf", "qwen2-untied.f32.gguf")
	dir := t.TempDir()
	out := filepath.Join(dir, "out.gguf")
	if err := os.WriteFile(out, []byte("older file"), 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	err := Quantize(ctx, in, out, QuantizeOptions{Type: "Q8_0", Progress: func(done, _ int) {
		if done == 5 {
			cancel()
		}
	}})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
	for typ, in := range map[string]string{"Q9_9": in, "Q8_0": "/dev/null"} {
		if err := Quantize(context.Background(), in, out, QuantizeOptions{Type: typ}); err == nil {
			t.Errorf("%s of %s: no error", typ, in)
		} else {
			t.Log(err)
		}
	}
	left, _ := os.ReadDir(dir)
	if data, _ := os.ReadFile(out); string(data) != "older file" || len(left) != 1 {
		t.Errorf("the folder holds %v, the old file %q", left, data)
	}
}

// TestImatrix: the GGUF and the older format say the same, and a quantization uses what they say.
func TestImatrix(t *testing.T) {
	path := filepath.Join(t.TempDir(), "i.dat")
	legacy := "\x01\x00\x00\x00" + "\x03\x00\x00\x00abc" + "\x02\x00\x00\x00" + "\x02\x00\x00\x00" + "\x00\x00\x80\x3f" + "\x00\x00\x00\x40"
	for cut := range len(legacy) {
		os.WriteFile(path, []byte(legacy[:cut]), 0o600)
		if _, err := readImatrix(path); err == nil {
			t.Errorf("cut at %d: no error", cut)
		}
	}
	os.WriteFile(path, []byte(legacy), 0o600)
	got, err := readImatrix(path)
	if err != nil || len(got["abc"]) != 2 || got["abc"][0] != 0.5 || got["abc"][1] != 1 {
		t.Errorf("%v %v", got, err)
	}
}
