package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func quern(args ...string) (code int, stdout, stderr string) {
	var out, err bytes.Buffer
	code = Run(context.Background(), append([]string{"quern"}, args...), Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &err})
	return code, out.String(), err.String()
}

func TestPromptCommand(t *testing.T) {
	code, out, errText := quern("prompt", "list")
	if code != 0 || !strings.Contains(out, "hermes") || !strings.Contains(out, "qwen-xml") {
		t.Fatalf("list: %d %s %s", code, out, errText)
	}
	folder := filepath.Join(t.TempDir(), "my pack")
	if code, _, errText := quern("prompt", "export", "qwen-xml", folder); code != 0 {
		t.Fatalf("export: %s", errText)
	}
	code, builtin, _ := quern("prompt", "show", "--json", "qwen-xml")
	if code2, exported, errText := quern("prompt", "show", "--json", folder); code != 0 || code2 != 0 || builtin != exported {
		t.Errorf("the exported pack is another: %s", errText)
	}
	var doc packDocument
	if err := json.Unmarshal([]byte(builtin), &doc); err != nil || doc.Hash == "" || doc.Files["pack.json"] == "" || len(doc.Policies) != 2 {
		t.Errorf("%v: %+v", err, doc)
	}
	if code, _, errText := quern("prompt", "export", "qwen-xml", folder); code != 1 || !strings.Contains(errText, "already") {
		t.Errorf("export over a pack: %d %s", code, errText)
	}
	if err := os.WriteFile(filepath.Join(folder, "system.txt"), []byte("one\n{{shema}}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if code, _, errText := quern("prompt", "show", folder); code != 1 || !strings.Contains(errText, "system.txt:2: {{shema}}") {
		t.Errorf("broken pack: %d %s", code, errText)
	}
	if code, _, errText := quern("prompt", "show", "no such"); code != 1 || !strings.Contains(errText, "hermes, qwen-xml") {
		t.Errorf("unknown pack: %d %s", code, errText)
	}
	for _, args := range [][]string{{"prompt", "show"}, {"prompt", "export", "hermes"}} {
		if code, _, _ := quern(args...); code != 2 {
			t.Errorf("%v: exit code %d", args, code)
		}
	}
}

func TestTranscriptCommand(t *testing.T) {
	const line = `{"version": 1, "id": "7", "question": "How many?", "profile": "hermes", "turns": [{"tokens": 5, "content": "hm", "finish": "eog"}], "final_sql": "SELECT 1", "stop": "final_sql"}` + "\n"
	file := filepath.Join(t.TempDir(), "run.jsonl")
	if err := os.WriteFile(file, []byte(line+line[:40]), 0o644); err != nil {
		t.Fatal(err)
	}
	code, out, errText := quern("transcript", "show", file)
	if code != 0 || !strings.Contains(out, "How many?") || !strings.Contains(out, "final_sql SELECT 1") || !strings.Contains(errText, "line 2") {
		t.Errorf("%d %s %s", code, out, errText)
	}
	page := filepath.Join(t.TempDir(), "run.html")
	if code, _, errText := quern("transcript", "show", "--html", page, "--id", "7", file); code != 0 {
		t.Error(errText)
	}
	if text, err := os.ReadFile(page); err != nil || !strings.Contains(string(text), "How many?") {
		t.Errorf("%v %s", err, text)
	}
	if code, _, errText := quern("transcript", "show", "--id", "8", file); code != 1 || !strings.Contains(errText, `"8"`) {
		t.Errorf("%d %s", code, errText)
	}
	if code, _, _ := quern("transcript", "show", file+".no"); code != 1 {
		t.Errorf("missing file: %d", code)
	}
}
