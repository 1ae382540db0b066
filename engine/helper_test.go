package engine

import (
	"bufio"
	"compress/gzip"
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// load opens a model and closes it at the end of the test.
func load(t testing.TB, path string, opt LoadOptions) *Model {
	t.Helper()
	m, err := Load(context.Background(), path, opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m
}

// start makes an engine and closes it at the end of the test.
func start(t testing.TB, m *Model, opt EngineOptions) *Engine {
	t.Helper()
	e, err := m.NewEngine(context.Background(), opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	return e
}

// exact are the options under which results can be compared with a reference that computes in float32.
var exact = EngineOptions{ContextLength: 1024, KVType: KVF32, FlashAttention: Off, Threads: 1}

// generate runs one request to its end.
func generate(t testing.TB, e *Engine, req Request) Result {
	t.Helper()
	s, err := e.Generate(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	r, err := s.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// rows reads a JSON Lines file.
func rows[T any](t testing.TB, path string) []T {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var out []T
	in := bufio.NewScanner(f)
	in.Buffer(nil, 1<<24)
	for in.Scan() {
		var row T
		if err := json.Unmarshal(in.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, row)
	}
	if len(out) == 0 || in.Err() != nil {
		t.Fatalf("%s: no rows (%v)", path, in.Err())
	}
	return out
}

// readJSON reads a JSON file.
func readJSON[T any](t testing.TB, path string) T {
	t.Helper()
	var v T
	data, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(data, &v)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return v
}

// vocabulary loads one of the vocabulary-only models of the chat oracles, "qwen2.5" or "qwen3.5".
func vocabulary(t testing.TB, name string) *Model {
	t.Helper()
	packed, err := os.Open(testenv.OracleInputs(t, "chat", "vocab", name+"-vocab.gguf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), name+".gguf")
	out, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(out, in); err != nil {
		t.Fatal(err)
	}
	if err := out.Close(); err != nil {
		t.Fatal(err)
	}
	return load(t, path, LoadOptions{VocabOnly: true})
}

// floatModels are the f32 GGUF files of the model oracles, by the name of their checkpoint.
func floatModels(t testing.TB) map[string]string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "*.f32.gguf"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no f32 models in the oracles (%v)", err)
	}
	models := make(map[string]string)
	for _, path := range paths {
		name := strings.TrimSuffix(filepath.Base(path), ".f32.gguf")
		models[strings.TrimSuffix(name, "-no-mtp")] = path
	}
	return models
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}
