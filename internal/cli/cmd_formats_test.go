package cli

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// TestConvertAndInspect goes the way of a person with a checkpoint: convert, look at the result, compare.
func TestConvertAndInspect(t *testing.T) {
	checkpoint := testenv.OracleInputs(t, "models", "checkpoints", "qwen35-vl-tiny")
	out := filepath.Join(t.TempDir(), "m.gguf")
	stdout, stderr, code := run(t, "convert", checkpoint, "--out", out, "--no-mtp", "--json")
	if code != exitOK {
		t.Fatalf("convert: code %d, %s", code, stderr)
	}
	var converted struct{ Path, Arch, Type string }
	if err := json.Unmarshal([]byte(stdout), &converted); err != nil || converted.Path != out || converted.Arch != "qwen35" || converted.Type != "bf16" {
		t.Errorf("convert --json: %s (%v)", stdout, err)
	}
	stdout, stderr, code = run(t, "inspect", out, "--json", "--tensors")
	var report struct {
		Kind       string
		TensorList []struct{ Name string } `json:"tensor_list"`
	}
	if err := json.Unmarshal([]byte(stdout), &report); code != exitOK || err != nil || report.Kind != "gguf" || len(report.TensorList) == 0 {
		t.Errorf("inspect --json: code %d, %v, %s", code, err, stderr)
	}
	stdout, _, code = run(t, "inspect", "--metadata", checkpoint)
	for _, want := range []string{"Hugging Face checkpoint", "Qwen3_5ForConditionalGeneration", "for each conversation", "qwen35.block_count", "hermes|qwen-xml"} {
		found := false
		for _, w := range strings.Split(want, "|") {
			found = found || strings.Contains(stdout, w)
		}
		if !found {
			t.Errorf("inspect (code %d) does not say %q:\n%s", code, want, stdout)
		}
	}
	a, _, _ := run(t, "inspect", "--fingerprint", checkpoint)
	b, _, _ := run(t, "inspect", out, "--fingerprint")
	if a != b || len(strings.TrimSpace(a)) < 64 {
		t.Errorf("fingerprints %q and %q", a, b)
	}
	if stdout, _, code := run(t, "inspect", out, "--diff", out); code != exitOK || !strings.Contains(stdout, "0 differ") {
		t.Errorf("diff with itself: code %d\n%s", code, stdout)
	}
	other := testenv.OracleInputs(t, "models", "gguf", "qwen35-vl-tiny.f32.gguf")
	if stdout, _, code := run(t, "inspect", out, "--diff", other); code != exitFailed || !strings.Contains(stdout, "only in") {
		t.Errorf("diff with another: code %d\n%s", code, stdout)
	}
}

func TestFormatCommandsRefuse(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "text.gguf")
	if err := os.WriteFile(text, []byte("no model at all"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"convert"}, exitUsage, "takes one checkpoint folder"},
		{[]string{"convert", dir, "--mtp", "--no-mtp"}, exitUsage, "exclude each other"},
		{[]string{"convert", dir, "--type", "q4_k_m"}, exitUsage, "quern quantize"},
		{[]string{"convert", dir, "--nonsense"}, exitUsage, "nonsense"},
		{[]string{"convert", dir}, exitFailed, "no config.json"},
		{[]string{"convert", "/no/such/folder"}, exitFailed, "no such file or folder"},
		{[]string{"inspect"}, exitUsage, "takes one file"},
		{[]string{"inspect", text}, exitFailed, "neither GGUF"},
		{[]string{"quantize", text}, exitUsage, "possible are"},
		{[]string{"quantize", text, "--type", "Q4_K_M"}, exitFailed, "quantize"},
	} {
		stdout, stderr, code := run(t, c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) || stdout != "" {
			t.Errorf("%v: code %d, want %d; stdout %q, stderr %q", c.args, code, c.code, stdout, stderr)
		}
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left behind: %v", left)
	}
}

// TestQuantizeIsConvert: llama.cpp's quantiser and the conversion must give the same Q8_0.
func TestQuantizeIsConvert(t *testing.T) {
	dir := t.TempDir()
	f32, one, two := filepath.Join(dir, "m-f32.gguf"), filepath.Join(dir, "m-Q8_0.gguf"), filepath.Join(dir, "two.gguf")
	checkpoint := testenv.OracleInputs(t, "models", "checkpoints", "qwen2-tiny")
	for _, args := range [][]string{
		{"convert", checkpoint, "-o", f32, "--type", "f32"},
		{"convert", checkpoint, "-o", two, "--type", "q8_0"},
		{"quantize", f32, "--type", "Q8_0"},
	} {
		if _, stderr, code := run(t, args...); code != exitOK {
			t.Fatalf("%v: code %d, %s", args, code, stderr)
		}
	}
	if stdout, stderr, code := run(t, "inspect", one, "--diff", two); code != exitOK {
		t.Errorf("they differ: %s%s", stdout, stderr)
	}
}

func TestQuantizedName(t *testing.T) {
	for input, want := range map[string]string{
		"/a/model-BF16.gguf": "/a/model-Q4_K_M.gguf",
		"/a/model.f16.gguf":  "/a/model-Q4_K_M.gguf",
		"/a/Qwen2.5-3B.gguf": "/a/Qwen2.5-3B-Q4_K_M.gguf",
	} {
		if got := quantizedName(input, "q4_k_m"); got != want {
			t.Errorf("%s: %s, want %s", input, got, want)
		}
	}
}

func TestSizes(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 999: "999 B", 1000: "1.0 kB", 999_960: "1.0 MB", 12_345_678: "12.3 MB", 151_000_000_000: "151 GB"} {
		if got := sizeText(n); got != want {
			t.Errorf("%d: %s, want %s", n, got, want)
		}
	}
}
