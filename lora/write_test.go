package lora

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"quern/safetensors"
	"quern/tensor"
)

// writeAdapter makes an adapter of rank 2 with random values on one module of a base.
func writeAdapter(t *testing.T, b *Base, module string) string {
	t.Helper()
	w, err := b.lookup(rootless(module) + ".weight")
	if w == nil {
		w, err = b.lookup(embedKey)
	}
	if err != nil {
		t.Fatal(err)
	}
	rows, cols := w.rows, w.width
	tensors := map[string]tensor.Shape{"lora_A.weight": {2, cols}, "lora_B.weight": {rows, 2}}
	if isInputEmbedding(module) {
		tensors = map[string]tensor.Shape{"lora_embedding_A": {2, rows}, "lora_embedding_B": {cols, 2}}
	}
	dir := t.TempDir()
	files := adapterFiles(t, module, tensors)
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// adapterFiles returns the two files of an adapter.
func adapterFiles(t testing.TB, module string, tensors map[string]tensor.Shape) map[string][]byte {
	t.Helper()
	config, err := json.Marshal(map[string]any{"peft_type": "LORA", "r": 2, "lora_alpha": 4, "target_modules": []string{module},
		"base_model_name_or_path": "example/base"})
	if err != nil {
		t.Fatal(err)
	}
	rng := rand.New(rand.NewPCG(9, 9))
	var specs []tensor.Spec
	data := map[string][]byte{}
	for _, name := range sortedKeys(tensors) {
		n, err := tensors[name].Elements()
		if err != nil {
			t.Fatal(err)
		}
		values := make([]byte, 4*n)
		for i := range n {
			binary.LittleEndian.PutUint32(values[4*i:], math.Float32bits(float32(rng.NormFloat64())))
		}
		name := "base_model.model." + module + "." + name
		specs = append(specs, tensor.Spec{Name: name, DType: tensor.F32, Shape: tensors[trimModule(name, module)]})
		data[name] = values
	}
	var b bytes.Buffer
	if err := safetensors.Write(&b, specs, nil, data); err != nil {
		t.Fatal(err)
	}
	return map[string][]byte{ConfigFile: config, weightsFile: b.Bytes()}
}

func trimModule(name, module string) string { return name[len("base_model.model."+module+"."):] }
