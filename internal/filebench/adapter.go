package filebench

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"

	"quern/safetensors"
	"quern/tensor"
)

// rank of the adapter: what people train most.
const rank = 16

var projections = []string{"q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"}

// WriteAdapter writes an adapter of rank 16 with small random weights in F32 for all seven projections of every layer
// of a checkpoint, in the form of PEFT, to the folder dir. The same one every time.
func WriteAdapter(checkpoint, dir string) error {
	base, err := safetensors.OpenCheckpoint(checkpoint)
	if err != nil {
		return err
	}
	defer base.Close()
	var specs []tensor.Spec
	for _, t := range base.Tensors {
		module, ok := projection(t.Name)
		if !ok || len(t.Shape) != 2 {
			continue
		}
		module = "base_model.model." + module
		specs = append(specs,
			tensor.Spec{Name: module + ".lora_A.weight", DType: tensor.F32, Shape: tensor.Shape{rank, t.Shape[1]}},
			tensor.Spec{Name: module + ".lora_B.weight", DType: tensor.F32, Shape: tensor.Shape{t.Shape[0], rank}})
	}
	if len(specs) == 0 {
		return fmt.Errorf("%s has none of the projections %s: there is nothing for an adapter to change", checkpoint, strings.Join(projections, ", "))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	return errors.Join(writeConfig(dir), writeRandom(filepath.Join(dir, "adapter_model.safetensors"), specs))
}

// projection returns the module of a weight that the adapter changes.
func projection(name string) (module string, ok bool) {
	module, ok = strings.CutSuffix(name, ".weight")
	for _, p := range projections {
		if ok && strings.HasSuffix(module, "."+p) {
			return module, true
		}
	}
	return "", false
}

func writeConfig(dir string) error {
	config, err := json.MarshalIndent(map[string]any{
		"peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "random-weights",
		"r": rank, "lora_alpha": 2 * rank, "lora_dropout": 0, "bias": "none", "inference_mode": true,
		"fan_in_fan_out": false, "target_modules": projections,
	}, "", "  ")
	return errors.Join(err, os.WriteFile(filepath.Join(dir, "adapter_config.json"), config, 0o644))
}

func writeRandom(path string, specs []tensor.Spec) error {
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := layout.WriteHeader(f); err != nil {
		return err
	}
	random := rand.New(rand.NewPCG(16, 7))
	for i, spec := range layout.Tensors {
		data := make([]byte, 0, 4*spec.Shape[0]*spec.Shape[1])
		for len(data) < cap(data) {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(float32(0.02*random.NormFloat64())))
		}
		if _, err := f.WriteAt(data, layout.Offsets[i]); err != nil {
			return err
		}
	}
	return f.Close()
}
