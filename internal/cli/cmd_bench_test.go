package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/bench"
)

func runBenchCommand(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, log bytes.Buffer
	code = Run(t.Context(), append([]string{"quern", "bench"}, args...), Env{Stdin: bytes.NewReader(nil), Stdout: &out, Stderr: &log})
	return code, out.String(), log.String()
}

func TestBenchSynthAndRun(t *testing.T) {
	dir := t.TempDir()
	model := filepath.Join(dir, "m.gguf")
	if code, _, log := runBenchCommand(t, "synth", "qwen2-mini", "--type", "f32", "-o", model); code != exitOK {
		t.Fatalf("exit %d: %s", code, log)
	}
	document := filepath.Join(dir, "report.md")
	code, out, log := runBenchCommand(t, "run", "--model", model, "--alone", "--json", "--repeats", "1", "--lanes", "1,2",
		"--prompt", "8", "--generate", "4", "--load", "demo:2", "--slots", "2", "-t", "1", "--markdown", document)
	if code != exitOK {
		t.Fatalf("exit %d: %s", code, log)
	}
	var report bench.Report
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(report.Gen.Widths) != 2 || len(report.Agent) != 1 || report.Agent[0].Questions != 2 {
		t.Errorf("%+v", report)
	}
	if data, err := os.ReadFile(document); err != nil || len(data) == 0 {
		t.Errorf("the document: %v", err)
	}
}

func TestBenchShapeIsWrittenOnce(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		code, _, log := runBenchCommand(t, "gen", "--shape", "qwen3.5-mini", "--type", "f32", "--models", dir, "--alone",
			"--repeats", "1", "--lanes", "1", "--prompt", "4", "--generate", "2", "-t", "1")
		if code != exitOK {
			t.Fatalf("exit %d: %s", code, log)
		}
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%v, %v", files, err)
	}
}

func TestBenchCheckpoint(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "checkpoint")
	if code, _, log := runBenchCommand(t, "synth", "qwen2-mini", "--hf", "-o", dir); code != exitOK {
		t.Fatalf("exit %d: %s", code, log)
	}
	for _, name := range []string{"config.json", "model.safetensors", "tokenizer.json"} {
		if _, err := os.Stat(filepath.Join(dir, name)); err != nil {
			t.Error(err)
		}
	}
}

func TestBenchMistakes(t *testing.T) {
	for _, c := range []struct {
		code int
		args []string
	}{
		{exitUsage, []string{"synth"}},
		{exitUsage, []string{"synth", "qwen2-mini", "--type", "q5_k"}},
		{exitFailed, []string{"synth", "no-such-shape"}},
		{exitFailed, []string{"synth", "qwen2-mini", "--hf", "--type", "q8_0", "-o", filepath.Join(t.TempDir(), "x")}},
		{exitUsage, []string{"gen", "model.gguf"}},
		{exitFailed, []string{"gen", "--model", "missing.gguf", "--alone"}},
		{exitUsage, []string{"gen", "--type", "q3_k", "--alone"}},
	} {
		if code, _, log := runBenchCommand(t, c.args...); code != c.code {
			t.Errorf("%v: exit %d, want %d: %s", c.args, code, c.code, log)
		}
	}
}
