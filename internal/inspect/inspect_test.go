package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/gguf"
	"quern/internal/testenv"
	"quern/tensor"
)

func open(t *testing.T, path string) *Subject {
	t.Helper()
	s, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func report(t *testing.T, s *Subject, o Options) *Report {
	t.Helper()
	r, err := s.Report(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := json.Marshal(r); err != nil {
		t.Fatalf("the report cannot be written as JSON: %v", err)
	}
	return r
}

// TestKinds opens one of each kind among the references.
func TestKinds(t *testing.T) {
	input := func(elem ...string) string { return testenv.OracleInputs(t, append([]string{"models"}, elem...)...) }
	adapters := testenv.Oracles(t, "models", "adapters")
	zips, _ := filepath.Glob(filepath.Join(adapters, "*", "*.zip"))
	folders, _ := filepath.Glob(filepath.Join(adapters, "*", "adapter_config.json"))
	if len(folders) == 0 {
		t.Fatal("no case found")
	}
	cases := map[string]Kind{
		input("checkpoints", "qwen2-untied"):                    KindCheckpoint,
		input("checkpoints", "qwen2-tiny", "model.safetensors"): KindSafetensors,
		input("gguf", "qwen35-vl-tiny.bf16.gguf"):               KindGGUF,
		filepath.Dir(folders[0]):                                KindAdapter,
	}
	for _, path := range zips {
		cases[path] = KindAdapter
	}
	for path, want := range cases {
		s := open(t, path)
		r := report(t, s, Options{Tensors: true})
		if r.Kind != want || r.Parameters == 0 || s.Adapter == nil && (r.Tensors == 0 || len(r.TensorList) != r.Tensors) {
			t.Errorf("%s: %s, %d tensors, %d listed; want %s", path, r.Kind, r.Tensors, len(r.TensorList), want)
		}
	}
}

// TestReportOfCheckpointAndGGUF: what is said about a checkpoint and about its GGUF must agree.
func TestReportOfCheckpointAndGGUF(t *testing.T) {
	dirs, _ := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "checkpoints"), "*"))
	if len(dirs) == 0 {
		t.Fatal("no case found")
	}
	for _, dir := range dirs {
		file := filepath.Join(t.TempDir(), "model.gguf")
		if _, err := convert.Convert(context.Background(), dir, file, convert.Options{Type: convert.F32}); err != nil {
			t.Fatal(err)
		}
		a := report(t, open(t, dir), Options{Fingerprint: true})
		b := report(t, open(t, file), Options{Fingerprint: true})
		if a.Fingerprint != b.Fingerprint || a.Fingerprint == "" {
			t.Errorf("%s: fingerprints %q and %q", dir, a.Fingerprint, b.Fingerprint)
		}
		if a.Memory.KVPerToken != b.Memory.KVPerToken || a.Memory.StatePerLane != b.Memory.StatePerLane || a.Memory.KVPerToken == 0 {
			t.Errorf("%s: memory %+v and %+v", dir, a.Memory, b.Memory)
		}
		if hybrid := strings.HasPrefix(a.Architecture, "qwen35"); hybrid != (a.Memory.StatePerLane > 0) {
			t.Errorf("%s: recurrent state of %d bytes", dir, a.Memory.StatePerLane)
		}
		if a.ChatTemplate == nil || *a.ChatTemplate != *b.ChatTemplate || a.Tokenizer == nil || a.Tokenizer.Tokens != b.Tokenizer.Tokens {
			t.Errorf("%s: template or tokenizer differ", dir)
		}
		if len(a.Problems)+len(b.Problems) > 0 {
			t.Errorf("%s: %q, %q", dir, a.Problems, b.Problems)
		}
	}
}

func TestDiff(t *testing.T) {
	ctx := context.Background()
	input := func(elem ...string) string { return testenv.OracleInputs(t, append([]string{"models"}, elem...)...) }
	checkpoint := input("checkpoints", "qwen35-vl-tiny")
	f32, bf16 := input("gguf", "qwen35-vl-tiny.f32.gguf"), input("gguf", "qwen35-vl-tiny.bf16.gguf")
	compare := func(a, b string) *Diff {
		d, err := Compare(ctx, open(t, a), open(t, b))
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	if d := compare(f32, f32); !d.Equal || d.Same == 0 || d.Metadata != nil {
		t.Errorf("a file and itself: %+v", d)
	}
	d := compare(checkpoint, bf16)
	for _, x := range d.Tensors { // the exponential may differ in its last bit
		if !x.Equal && !(strings.HasSuffix(x.Name, ".ssm_a") && x.Max < 1e-6) {
			t.Errorf("checkpoint and its GGUF: %+v", x)
		}
	}
	if d.Layout != "gguf" || len(d.OnlyA)+len(d.OnlyB) > 0 {
		t.Errorf("checkpoint and its GGUF: layout %s, only in one %v %v", d.Layout, d.OnlyA, d.OnlyB)
	}
	if d := compare(f32, bf16); !d.Equal || len(d.Metadata) != 1 || d.Metadata[0].Key != "general.file_type" {
		t.Errorf("f32 and bf16 of a bf16 model: equal %v, metadata %+v", d.Equal, d.Metadata)
	}
	if d := compare(input("gguf", "qwen35-vl-tiny-no-mtp.bf16.gguf"), bf16); d.Equal || len(d.OnlyB) == 0 || len(d.OnlyA) > 0 {
		t.Errorf("without and with multi-token prediction: %+v", d)
	}
	if d := compare(input("checkpoints", "qwen2-tiny"), input("checkpoints", "qwen2-untied")); d.Equal || d.Changed == 0 {
		t.Errorf("two models: %+v", d)
	}
}

// TestDiffNumbers compares tensors whose differences are known.
func TestDiffNumbers(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	write := func(name string, values ...float32) string {
		data := make([]byte, 4*len(values))
		if err := tensor.Encode(data, values, tensor.F32); err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		spec := tensor.Spec{Name: "x", DType: tensor.F32, Shape: tensor.Shape{int64(len(values))}}
		if err := gguf.Write(&b, gguf.Metadata{{Key: "general.architecture", Value: "test"}}, []tensor.Spec{spec}, map[string][]byte{"x": data}); err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(t.TempDir(), name)
		if err := os.WriteFile(path, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, c := range []struct {
		name      string
		a, b      []float32
		differ    int64
		max, mean float64
	}{
		{"equal", []float32{1, nan, inf}, []float32{1, nan, inf}, 0, 0, 0},
		{"signed zero", []float32{0}, []float32{float32(math.Copysign(0, -1))}, 0, 0, 0},
		{"some", []float32{1, 2, 3, 4}, []float32{1, 2.5, 3, 3}, 2, 1, 0.375},
		{"a number on one side", []float32{1, 2}, []float32{1, nan}, 1, math.MaxFloat64, math.MaxFloat64 / 2},
	} {
		d, err := Compare(context.Background(), open(t, write("a.gguf", c.a...)), open(t, write("b.gguf", c.b...)))
		if err != nil {
			t.Fatal(err)
		}
		if x := d.Tensors[0]; x.Differ != c.differ || x.Max != c.max || x.Mean != c.mean || x.Equal != (c.differ == 0) {
			t.Errorf("%s: %+v", c.name, x)
		}
		if _, err := json.Marshal(d); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	d, err := Compare(context.Background(), open(t, write("a.gguf", 1, 2)), open(t, write("b.gguf", 1)))
	if err != nil || d.Tensors[0].Problem == "" || d.Equal {
		t.Errorf("other shape: %+v, %v", d, err)
	}
}

func TestNotAModel(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.gguf")
	if err := os.WriteFile(text, []byte("hello, this is no model"), 0o644); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{text: "neither GGUF nor safetensors", filepath.Join(dir, "none"): "no such file"} {
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", path, err)
		}
	}
	if _, err := Open(dir); err == nil {
		t.Error("an empty folder was opened")
	}
}
