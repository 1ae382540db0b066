package engine

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

// TestMergedGolden converts the merged checkpoints of the model oracles and compares them, run by the engine, with the
// reference's results for them: weights as merged, evaluated in float32.
func TestMergedGolden(t *testing.T) {
	files, err := filepath.Glob(filepath.Join(testenv.Oracles(t, "models", "merged"), "*", "golden-*", "golden.json"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no golden results of merged models (%v)", err)
	}
	for _, file := range files {
		golden := filepath.Dir(file)
		folder, variant := filepath.Dir(golden), strings.TrimPrefix(filepath.Base(golden), "golden-")
		t.Run(filepath.Base(folder)+"-"+variant, func(t *testing.T) {
			t.Parallel()
			changed := filepath.Join(folder, "changed-"+variant+".safetensors")
			merge := readJSON[mergeFile](t, filepath.Join(folder, "merge.json"))
			base := testenv.OracleInputs(t, "models", "checkpoints", merge.Base)
			checkpoint := mergedCheckpoint(t, base, changed, merge.Merges[variant].All)
			out := filepath.Join(t.TempDir(), "merged.gguf")
			if _, err := convert.Convert(context.Background(), checkpoint, out, convert.Options{Type: convert.F32, MTP: convert.DropMTP}); err != nil {
				t.Fatal(err)
			}
			compareGolden(t, load(t, out, LoadOptions{}), golden)
		})
	}
}

// mergeFile is a merge.json: the base, and for each variant the type of every tensor of the merged checkpoint.
type mergeFile struct {
	Base   string
	Merges map[string]struct {
		All map[string]mergedTensor `json:"all_tensors"`
	}
}

type mergedTensor struct{ DType string }

// mergedCheckpoint makes a checkpoint of a base and of the tensors that a merge has changed.
func mergedCheckpoint(t *testing.T, base, changed string, all map[string]mergedTensor) string {
	t.Helper()
	dir := t.TempDir()
	copyFiles(t, base, dir)
	over, err := safetensors.Open(changed)
	if err != nil {
		t.Fatal(err)
	}
	defer over.Close()
	under, err := safetensors.OpenCheckpoint(base)
	if err != nil {
		t.Fatal(err)
	}
	defer under.Close()
	var specs []tensor.Spec
	data := map[string][]byte{}
	add := func(s tensor.Stored) {
		if data[s.Name] != nil {
			return
		}
		if data[s.Name], err = s.ReadAll(); err != nil {
			t.Fatal(err)
		}
		if all[s.Name].DType == "bfloat16" && s.DType != tensor.BF16 { // the base was cast before the merge
			floats, err := s.ReadFloats()
			if err != nil {
				t.Fatal(err)
			}
			s.DType, data[s.Name] = tensor.BF16, make([]byte, 2*len(floats))
			if err := tensor.Encode(data[s.Name], floats, tensor.BF16); err != nil {
				t.Fatal(err)
			}
		}
		specs = append(specs, s.Spec)
	}
	for _, s := range over.Tensors {
		add(s)
	}
	for _, s := range under.Tensors {
		add(s)
	}
	out, err := os.Create(filepath.Join(dir, "model.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	if err := safetensors.Write(out, specs, nil, data); err != nil {
		t.Fatal(err)
	}
	if over.Lookup("lm_head.weight") != nil {
		untie(t, filepath.Join(dir, "config.json"))
	}
	return dir
}

// copyFiles copies what is no weight.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), "safetensors") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o600)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// untie says in a config.json that the output layer has weights of its own.
func untie(t *testing.T, path string) {
	t.Helper()
	config := readJSON[map[string]any](t, path)
	config["tie_word_embeddings"] = false
	data, err := json.Marshal(config)
	if err == nil {
		err = os.WriteFile(path, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
