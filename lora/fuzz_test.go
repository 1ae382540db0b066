package lora

import (
	"archive/zip"
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/tensor"
)

func FuzzConfig(f *testing.F) {
	f.Add([]byte(`{"peft_type":"LORA","r":8,"lora_alpha":16,"target_modules":["q_proj"],"rank_pattern":{"q":4}}`))
	f.Add([]byte(`{"peft_type":"LORA","target_modules":".*\\.(q|v)_proj","layers_to_transform":null,"trainable_token_indices":{"embed_tokens":[1]}}`))
	f.Add([]byte(`{"peft_type":"LORA","target_modules":"(?!.*x)(a+)+b","exclude_modules":["x"],"layers_pattern":["h"],"layers_to_transform":[1]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := ParseConfig(data)
		if err != nil {
			return
		}
		c.Hits("model.layers.1.self_attn.q_proj")
		if rank := c.RankOf("model.layers.1.mlp.up_proj"); rank < 1 {
			t.Errorf("rank %d", rank)
		}
	})
}

func FuzzKey(f *testing.F) {
	f.Add("base_model.model.model.layers.0.self_attn.q_proj.lora_A.default.weight")
	f.Add("base_model.model.model.embed_tokens.token_adapter.trainable_tokens_delta")
	f.Add("lora_magnitude_vector.a.weight")
	f.Fuzz(func(t *testing.T, name string) {
		k, err := parseKey(name)
		if err == nil && (k.module == "" || k.role == "" || !strings.Contains(name, strings.SplitN(k.module, ".", 2)[0])) {
			t.Errorf("%q: %+v", name, k)
		}
		if tail := rootless(name); !strings.HasSuffix(name, tail) {
			t.Errorf("%q is not the end of %q", tail, name)
		}
	})
}

// FuzzArchive feeds whole archives. Whatever is in them, nothing is written but the one file without a name.
func FuzzArchive(f *testing.F) {
	files := adapterFiles(f, "model.layers.0.self_attn.q_proj", map[string]tensor.Shape{"lora_A.weight": {2, 8}, "lora_B.weight": {4, 2}})
	var good bytes.Buffer
	w := zip.NewWriter(&good)
	for _, name := range sortedKeys(files) {
		e, err := w.Create("checkpoint-1/" + name)
		if err != nil {
			f.Fatal(err)
		}
		if _, err := e.Write(files[name]); err != nil {
			f.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		f.Fatal(err)
	}
	f.Add(good.Bytes())
	f.Fuzz(func(t *testing.T, data []byte) {
		r, err := zip.NewReader(bytes.NewReader(data), int64(len(data)))
		if err != nil {
			return
		}
		s, err := readArchive(r.File)
		if err != nil {
			return
		}
		defer s.Close()
		a := &Adapter{Path: "fuzz.zip", source: s}
		_ = a.load() // must not panic
	})
}

func FuzzLineage(f *testing.F) {
	f.Add([]byte(`{"format":"quern-lineage-1","root":{"name":"b"},"stages":[{"adapter":"a"}],"output":{"name":"o"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		if l, err := ParseLineage(data); err == nil {
			l.Mismatched()
			lineageEvidence(l, "x/y")
		}
	})
}

// TestArchiveShapes: an adapter is found at any depth, beside other files; not where two could be meant.
func TestArchiveShapes(t *testing.T) {
	files := adapterFiles(t, "model.layers.0.self_attn.q_proj", map[string]tensor.Shape{"lora_A.weight": {2, 8}, "lora_B.weight": {4, 2}})
	config, weights := string(files[ConfigFile]), string(files[weightsFile])
	for _, c := range []struct {
		name    string
		entries map[string]string
		want    string // in the error; "" for none
	}{
		{"at the top", map[string]string{ConfigFile: config, weightsFile: weights}, ""},
		{"nested", map[string]string{"a/b/c/" + ConfigFile: config, "a/b/c/" + weightsFile: weights, "a/readme.md": "x"}, ""},
		{"beside what macOS adds", map[string]string{"a/" + ConfigFile: config, "a/" + weightsFile: weights, "__MACOSX/a/" + ConfigFile: "x"}, ""},
		{"two", map[string]string{ConfigFile: config, weightsFile: weights, "old/" + ConfigFile: config, "old/" + weightsFile: weights}, "2 adapters"},
		{"apart", map[string]string{"a/" + ConfigFile: config, "b/" + weightsFile: weights}, "2 adapters"},
		{"without weights", map[string]string{"a/" + ConfigFile: config}, weightsFile},
		{"a pickle", map[string]string{"a/" + ConfigFile: config, "a/" + pickleFile: "x"}, "pickle"},
		{"an absolute path", map[string]string{ConfigFile: config, weightsFile: weights, "/etc/x": "x"}, "path"},
		{"a drive", map[string]string{ConfigFile: config, weightsFile: weights, "C:x": "x"}, "character"},
		{"a step up inside", map[string]string{ConfigFile: config, weightsFile: weights, "a/../../x": "x"}, "path"},
	} {
		file := filepath.Join(t.TempDir(), "adapter.zip")
		var b bytes.Buffer
		w := zip.NewWriter(&b)
		for _, name := range sortedKeys(c.entries) {
			e, err := w.Create(name)
			if err != nil {
				t.Fatal(err)
			}
			e.Write([]byte(c.entries[name]))
		}
		w.Close()
		if err := os.WriteFile(file, b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
		a, err := Open(file)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: %v; want a complaint about %q", c.name, err, c.want)
		}
		if a != nil {
			a.Close()
		}
	}
}
