package lora

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestOtherFiles: everything beside the weights travels along, other forms of the base's weights do not.
func TestOtherFiles(t *testing.T) {
	base, adapter := plainCase(t)
	from := t.TempDir()
	if err := os.CopyFS(from, os.DirFS(base)); err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string]string{"LICENSE": "text", "pytorch_model.bin": "old", "sub/notes.txt": "deep", ".cache/x": "no"} {
		os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o755)
		if err := os.WriteFile(filepath.Join(from, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out := merge(t, from, MergeOptions{}, adapter)
	for _, name := range []string{"LICENSE", "sub/notes.txt", "tokenizer.json", "tokenizer_config.json", LineageFile} {
		if !isFile(filepath.Join(out, name)) {
			t.Errorf("%s is missing", name)
		}
	}
	for _, name := range []string{"pytorch_model.bin", ".cache/x"} {
		if isFile(filepath.Join(out, name)) {
			t.Errorf("%s was copied", name)
		}
	}
	before, _ := os.ReadFile(filepath.Join(base, "tokenizer.json"))
	after, _ := os.ReadFile(filepath.Join(out, "tokenizer.json"))
	if string(before) != string(after) {
		t.Error("tokenizer.json changed")
	}
}

// TestEnds: a base model whose chat template ends turns with another token than the base stops at both.
func TestEnds(t *testing.T) {
	base, stages := chainCase(t)
	from := t.TempDir()
	if err := os.CopyFS(from, os.DirFS(base)); err != nil {
		t.Fatal(err)
	}
	tokens := addedTokens(base)
	endOfText, turn := tokens["<|endoftext|>"], tokens[endOfTurn]
	for name, text := range map[string]any{generationFile: map[string]any{"eos_token_id": endOfText, "top_k": 20}, "tokenizer_config.json": map[string]any{"eos_token": "<|endoftext|>"}} {
		data, _ := json.Marshal(text)
		if err := os.WriteFile(filepath.Join(from, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var config map[string]any
	readJSON(t, filepath.Join(from, "config.json"), &config)
	config["eos_token_id"] = endOfText
	data, _ := json.Marshal(config)
	if err := os.WriteFile(filepath.Join(from, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	var got struct {
		EOS  []int `json:"eos_token_id"`
		TopK int   `json:"top_k"`
	}
	readJSON(t, filepath.Join(merge(t, from, MergeOptions{}, stages[0]), generationFile), &got)
	if !slices.Equal(got.EOS, []int{endOfText, turn}) || got.TopK != 20 {
		t.Errorf("%+v, want ends %d and %d", got, endOfText, turn)
	}
}

// TestUntied: with a head of its own the configuration says so, at both levels.
func TestUntied(t *testing.T) {
	config, err := parseObject([]byte(`{"b":1,"text_config":{"tie_word_embeddings":true,"z":2},"tie_word_embeddings":true}`))
	if err != nil {
		t.Fatal(err)
	}
	out := rewriteConfig(config, map[string]json.RawMessage{"tie_word_embeddings": json.RawMessage("false")})
	if strings.Count(string(out), `"tie_word_embeddings": false`) != 2 || strings.Index(string(out), `"b"`) > strings.Index(string(out), `"text_config"`) {
		t.Errorf("%s", out)
	}
	config, _ = parseObject([]byte(`{"b":1}`))
	out = rewriteConfig(config, map[string]json.RawMessage{"tie_word_embeddings": json.RawMessage("false")})
	if !strings.Contains(string(out), `"tie_word_embeddings": false`) {
		t.Errorf("%s", out)
	}
}

// TestTiedHead: an adapter on the head of a base without one leaves the embedding as it is, and one on the embedding
// leaves the head.
func TestTiedHead(t *testing.T) {
	for _, c := range checkpoints(t) {
		b, err := OpenBase(c)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if !b.tied() {
			continue
		}
		for _, on := range []string{"lm_head", "model.embed_tokens"} {
			adapter := writeAdapter(t, b, on)
			out := merge(t, c, MergeOptions{}, adapter)
			if on == "lm_head" && checkpointHash(t, out, "model.embed_tokens.weight") != checkpointHash(t, c, "model.embed_tokens.weight") {
				t.Errorf("%s: the embedding changed with the head", filepath.Base(c))
			}
			if on != "lm_head" && checkpointHash(t, out, "lm_head.weight") != checkpointHash(t, c, "model.embed_tokens.weight") {
				t.Errorf("%s: the head changed with the embedding", filepath.Base(c))
			}
			if checkpointHash(t, out, "lm_head.weight") == checkpointHash(t, out, "model.embed_tokens.weight") {
				t.Errorf("%s: head and embedding are still alike", filepath.Base(c))
			}
			merged, err := OpenBase(out)
			if err != nil {
				t.Fatal(err)
			}
			defer merged.Close()
			if merged.tied() || merged.Model.Tied {
				t.Errorf("%s: the merged configuration says that they are tied", filepath.Base(c))
			}
		}
	}
}
