package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/gguf"
	"quern/internal/testenv"
	"quern/lora"
)

func adapterPath(t *testing.T, elem ...string) string {
	t.Helper()
	return testenv.OracleInputs(t, append([]string{"models", "adapters"}, elem...)...)
}

// TestLoraCommands goes the way of a person with the published kind of adapter: refused on the stock base, merged
// after its missing stage, verified, inspected, used as GGUF.
func TestLoraCommands(t *testing.T) {
	base := testenv.OracleInputs(t, "models", "checkpoints", "qwen35-tiny")
	stage1, archive := adapterPath(t, "q35-chain2", "stage1"), adapterPath(t, "q35-chain2", "checkpoint-1150-adapter.zip")
	dir := t.TempDir()
	out := func(name string) string { return filepath.Join(dir, name) }

	if stdout, stderr, code := run(t, "lora", "inspect", archive); code != exitOK || !strings.Contains(stdout, "no hub id") {
		t.Errorf("inspect: code %d, %s%s", code, stdout, stderr)
	}
	_, stderr, code := run(t, "lora", "merge", "--base", base, "--adapter", archive, "--out", out("no"))
	if code != exitFailed || !strings.Contains(stderr, "intended  = private intermediate") {
		t.Errorf("merge into the stock base: code %d, %s", code, stderr)
	}
	fingerprint, _, _ := run(t, "inspect", "--fingerprint", base)
	merge := []string{"lora", "merge", "--base", base, "--adapter", stage1, "--adapter", archive, "--base-fingerprint", strings.TrimSpace(fingerprint)}
	stdout, stderr, code := run(t, append(merge, "--out", out("merged"), "--json")...)
	var report lora.Report
	if err := json.Unmarshal([]byte(stdout), &report); code != exitOK || err != nil || len(report.Stages) != 2 || len(report.Changed) == 0 {
		t.Fatalf("merge: code %d, %v, %s", code, err, stderr)
	}
	if _, stderr, code := run(t, append(merge, "--out", out("merged"))...); code != exitFailed || !strings.Contains(stderr, "exists already") {
		t.Errorf("merge over an existing folder: code %d, %s", code, stderr)
	}

	// A GGUF of the merge, in one step and in two.
	if _, stderr, code := run(t, append(merge, "--out", out("one.gguf"), "--type", "q8_0", "--no-mtp")...); code != exitOK {
		t.Fatalf("merge to GGUF: code %d, %s", code, stderr)
	}
	if _, stderr, code := run(t, "convert", out("merged"), "--out", out("two.gguf"), "--type", "q8_0", "--no-mtp"); code != exitOK {
		t.Fatalf("convert: code %d, %s", code, stderr)
	}
	if stdout, _, _ := run(t, "inspect", out("one.gguf"), "--diff", out("two.gguf")); !strings.Contains(stdout, "0 differ") {
		t.Errorf("one step and two differ:\n%s", stdout)
	}
	verify := []string{"lora", "verify", "--adapter", stage1, "--adapter", archive, "--merged", out("one.gguf"), "--base", base}
	if stdout, _, code := run(t, verify...); code != exitOK || !strings.Contains(stdout, "is this base + the adapters") {
		t.Errorf("verify: code %d, %s", code, stdout)
	}
	if stdout, _, code := run(t, "lora", "verify", "--adapter", archive, "--merged", out("one.gguf"), "--base", base); code != exitFailed || !strings.Contains(stdout, "is not this base") {
		t.Errorf("verify with a stage missing: code %d, %s", code, stdout)
	}
	if stdout, _, code := run(t, "lora", "verify", "--adapter", archive, "--base", base); code != exitFailed || !strings.Contains(stdout, "every tensor has its place") {
		t.Errorf("verify without output: code %d, %s", code, stdout)
	}
	if _, stderr, code := run(t, "lora", "convert", "--adapter", stage1, "--base", out("two.gguf"), "--out", out("adapter.gguf")); code != exitOK {
		t.Errorf("convert: code %d, %s", code, stderr)
	}
	left, err := filepath.Glob(out(".*"))
	if err != nil || len(left) > 0 {
		t.Errorf("left behind: %v %v", left, err)
	}
}

// TestLoraBadAdapters: every faulty adapter is refused on the command line too, and nothing is written.
func TestLoraBadAdapters(t *testing.T) {
	root := testenv.Oracles(t, "models", "bad")
	expects, _ := filepath.Glob(filepath.Join(root, "*", "expect.json"))
	if len(expects) == 0 {
		t.Fatalf("no cases in %s", root)
	}
	for _, expect := range expects {
		var c struct{ Base, Reason string }
		data, err := os.ReadFile(expect)
		if err == nil {
			err = json.Unmarshal(data, &c)
		}
		if err != nil {
			t.Fatal(err)
		}
		adapter := filepath.Dir(expect)
		if zips, _ := filepath.Glob(filepath.Join(adapter, "*.zip")); len(zips) == 1 {
			adapter = zips[0]
		}
		dir := t.TempDir()
		_, stderr, code := run(t, "lora", "merge", "--base", testenv.OracleInputs(t, "models", "checkpoints", c.Base),
			"--adapter", adapter, "--accept-base-mismatch", "--out", filepath.Join(dir, "merged"))
		entries, _ := os.ReadDir(dir)
		if code != exitFailed || len(stderr) < 40 || len(entries) > 0 {
			t.Errorf("%s: code %d, %q, %d files; it should be refused: %s", filepath.Base(filepath.Dir(expect)), code, stderr, len(entries), c.Reason)
		}
	}
}

func TestLoraUsage(t *testing.T) {
	for _, args := range [][]string{
		{"lora", "merge"}, {"lora", "merge", "--base", "x"}, {"lora", "merge", "--base", "x", "--adapter", "y"},
		{"lora", "merge", "--base", "x", "--adapter", "y", "--out", "z", "--scale", "1", "--scale", "2"},
		{"lora", "merge", "--base", "x", "--base", "y", "--adapter", "a", "--out", "z"},
		{"lora", "merge", "--base", "x", "--adapter", "a", "--out", "z", "extra"},
		{"lora", "inspect"}, {"lora", "verify", "--base", "x"}, {"lora", "convert", "--base", "x", "--adapter", "y"},
	} {
		if _, stderr, code := run(t, args...); code != exitUsage {
			t.Errorf("%v: code %d, %s", args, code, stderr)
		}
	}
}

// TestDemoModel: the model inside the binary is what convert and lora merge make of its parts, tensor by tensor and key
// by key. The record of the merge may name another version of the program.
func TestDemoModel(t *testing.T) {
	parts := filepath.Join(testenv.Root(), "testdata", "demo-model")
	dir := t.TempDir()
	base := filepath.Join(dir, "demo-base")
	if err := os.CopyFS(base, os.DirFS(filepath.Join(parts, "base"))); err != nil {
		t.Fatal(err)
	}
	fingerprint, _, _ := run(t, "inspect", "--fingerprint", base)
	merged, made := filepath.Join(dir, "quern-demo"), filepath.Join(dir, "made.gguf")
	if _, stderr, code := run(t, "lora", "merge", "--base", base, "--base-fingerprint", strings.TrimSpace(fingerprint),
		"--adapter", filepath.Join(parts, "adapters", "stage1"), "--adapter", filepath.Join(parts, "adapters", "checkpoint-1066-adapter.zip"),
		"--type", "f32", "--out", merged); code != exitOK {
		t.Fatalf("merge: %s", stderr)
	}
	if _, stderr, code := run(t, "convert", merged, "--type", "f16", "--name", "Quern demo", "--out", made); code != exitOK {
		t.Fatalf("convert: %s", stderr)
	}
	embedded := filepath.Join(testenv.Root(), "internal", "demo", "model.gguf")
	if stdout, _, _ := run(t, "inspect", embedded, "--diff", made); !strings.Contains(stdout, "0 differ, 0 only in one") {
		t.Errorf("the embedded model is not what its parts make; run make demo-model:\n%s", stdout)
	}
	a, b := metadataOf(t, embedded), metadataOf(t, made)
	for i := range a {
		if a[i].Key != lora.LineageKey && toJSON(t, a[i]) != toJSON(t, b[i]) {
			t.Errorf("%s differs; run make demo-model", a[i].Key)
		}
	}
}

func metadataOf(t *testing.T, path string) gguf.Metadata {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	return f.Meta
}

func toJSON(t *testing.T, v any) string {
	t.Helper()
	data, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
