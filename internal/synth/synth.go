// Package synth writes models of any shape with random weights, so that speed can be measured without real ones: what a
// step costs depends on the sizes and types of the weights, not on their values.
//
// The tokenizer is a byte-level BPE of our own, padded to the shape's vocabulary; any text can be tokenized with it.
package synth

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"quern/arch"
	"quern/gguf"
	"quern/internal/atomicfile"
	"quern/safetensors"
	"quern/tensor"
)

//go:embed shapes/*.json
var shapeFiles embed.FS

// Shape is the dimensions of a model, as a checkpoint's config.json gives them.
type Shape struct {
	Name   string
	JSON   []byte
	Config *arch.Config
}

// Names are the shapes that are built in.
func Names() []string {
	files, _ := shapeFiles.ReadDir("shapes")
	var names []string
	for _, f := range files {
		names = append(names, strings.TrimSuffix(f.Name(), ".json"))
	}
	return names
}

// Find returns a built-in shape, or that of a config.json or of the checkpoint folder that holds one.
func Find(name string) (*Shape, error) {
	s := &Shape{Name: strings.ToLower(name)}
	var err error
	if s.JSON, err = shapeFiles.ReadFile(path.Join("shapes", s.Name+".json")); err != nil {
		if s.Name, s.JSON, err = readShape(name); err != nil {
			return nil, err
		}
	}
	if s.Config, err = arch.ParseConfig(s.JSON); err != nil {
		return nil, fmt.Errorf("shape %s: %w", name, err)
	}
	if s.Config.Vocab < smallest {
		return nil, fmt.Errorf("shape %s: a vocabulary of %d is too small for all bytes and the control tokens (%d)", name, s.Config.Vocab, smallest)
	}
	s.Config.MTPLayers = 0 // drafting is not measured
	return s, nil
}

func readShape(file string) (name string, data []byte, err error) {
	if info, err := os.Stat(file); err == nil && info.IsDir() {
		file = filepath.Join(file, "config.json")
	}
	data, err = os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return "", nil, fmt.Errorf("shape %s: neither a config.json nor one of %s", file, strings.Join(Names(), ", "))
	}
	return filepath.Base(filepath.Dir(file)), data, err
}

// types are what the matrices of a GGUF can be stored as, with the number that general.file_type has for it.
var types = map[tensor.DType]uint32{tensor.F32: 0, tensor.F16: 1, tensor.Q4_0: 2, tensor.Q8_0: 7, tensor.BF16: 32}

// ParseType reads the name of a type that WriteGGUF can write.
func ParseType(name string) (tensor.DType, error) {
	t, err := tensor.ParseDType(name)
	if _, ok := types[t]; err != nil || !ok {
		return 0, fmt.Errorf("type %q: possible are f32, f16, bf16, q8_0, q4_0", name)
	}
	return t, nil
}

// WriteGGUF writes a model of the shape to out, which appears when it is complete. All matrices have type t, where
// their rows are whole blocks of it; vectors are F32.
func WriteGGUF(ctx context.Context, s *Shape, t tensor.DType, out string) error {
	m, err := arch.NewModel(s.Config, nil)
	if err != nil {
		return err
	}
	var specs []tensor.Spec
	constants := map[string]float32{}
	for i := range m.Tensors {
		row := &m.Tensors[i]
		if row.Optional { // the head of a tied model
			continue
		}
		specs = append(specs, tensor.Spec{Name: row.GGUF, DType: storedType(row, t), Shape: row.Shape})
		if value, ok := constant(row); ok {
			constants[row.GGUF] = applied(row.Op, value)
		}
	}
	layout, err := gguf.NewLayout(s.metadata(m, t), specs)
	if err != nil {
		return err
	}
	f, err := atomicfile.Create(out)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := f.Reserve(layout.Size); err != nil {
		return err
	}
	if err := layout.WriteHeader(f); err != nil {
		return f.Explain(err)
	}
	if err := fill(ctx, f, specs, layout.Offsets, constants); err != nil {
		return f.Explain(err)
	}
	return f.Commit()
}

func storedType(t *arch.Tensor, matrix tensor.DType) tensor.DType {
	switch {
	case t.F32:
		return tensor.F32
	case t.Shape.RowLen()%int64(matrix.BlockLen()) != 0:
		return tensor.F16
	}
	return matrix
}

func (s *Shape) metadata(m *arch.Model, t tensor.DType) gguf.Metadata {
	var meta gguf.Metadata
	meta.Set("general.architecture", m.Arch)
	meta.Set("general.type", "model")
	meta.Set("general.name", s.Name+" with random weights")
	for _, e := range m.Metadata(0, types[t]) {
		meta.Set(e.Key, e.Value)
	}
	meta.Set("general.quantization_version", uint32(2)) // ggml.h: GGML_QNT_VERSION
	v := newVocabulary(int(m.Vocab))
	meta.Set("tokenizer.ggml.model", "gpt2")
	meta.Set("tokenizer.ggml.pre", v.pre(m.Arch))
	meta.Set("tokenizer.ggml.tokens", v.tokens)
	meta.Set("tokenizer.ggml.token_type", v.types)
	meta.Set("tokenizer.ggml.merges", v.merges)
	meta.Set("tokenizer.ggml.eos_token_id", uint32(v.endOfTurn))
	meta.Set("tokenizer.ggml.padding_token_id", uint32(v.endOfText))
	meta.Set("tokenizer.ggml.add_bos_token", false)
	meta.Set("tokenizer.chat_template", chatTemplate)
	return meta
}

// WriteCheckpoint writes a Hugging Face checkpoint of the shape to the folder dir, which appears when it is complete:
// config.json, safetensors, tokenizer. t is F32, F16 or BF16.
func WriteCheckpoint(ctx context.Context, s *Shape, t tensor.DType, dir string) error {
	if !slices.Contains([]tensor.DType{tensor.F32, tensor.F16, tensor.BF16}, t) {
		return fmt.Errorf("a checkpoint has type f32, f16 or bf16, not %v", t)
	}
	m, err := arch.NewModel(s.Config, nil)
	if err != nil {
		return err
	}
	folder, err := atomicfile.CreateDir(dir)
	if err != nil {
		return err
	}
	defer folder.Discard()
	if err := writeWeights(ctx, m, t, filepath.Join(folder.Path, "model.safetensors")); err != nil {
		return err
	}
	files, err := newVocabulary(int(m.Vocab)).checkpointFiles(m.Arch)
	if err != nil {
		return err
	}
	files["config.json"] = s.JSON
	for name, data := range files {
		if err := os.WriteFile(filepath.Join(folder.Path, name), data, 0o644); err != nil {
			return err
		}
	}
	return folder.Commit()
}

func writeWeights(ctx context.Context, m *arch.Model, t tensor.DType, out string) error {
	var specs []tensor.Spec
	constants := map[string]float32{}
	seen := map[string]bool{}
	for i := range m.Tensors {
		row := &m.Tensors[i]
		for _, name := range row.Sources {
			if row.Optional || seen[name] {
				continue
			}
			seen[name] = true
			specs = append(specs, tensor.Spec{Name: name, DType: t, Shape: row.SourceShape})
			if value, ok := constant(row); ok {
				constants[name] = value
			}
		}
	}
	layout, err := safetensors.NewLayout(specs, map[string]string{"format": "pt"})
	if err != nil {
		return err
	}
	f, err := os.Create(out)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := layout.WriteHeader(f); err != nil {
		return err
	}
	if err := fill(ctx, f, layout.Tensors, layout.Offsets, constants); err != nil {
		return err
	}
	return f.Close()
}

// Parameters is the number of values in all tensors of a shape.
func Parameters(s *Shape) int64 {
	m, err := arch.NewModel(s.Config, nil)
	if err != nil {
		return 0
	}
	total := int64(0)
	for i := range m.Tensors {
		if n, err := m.Tensors[i].Shape.Elements(); err == nil && !m.Tensors[i].Optional {
			total += n
		}
	}
	return total
}
