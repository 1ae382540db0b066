package lora

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"quern/arch"
	"quern/gguf"
	"quern/safetensors"
	"quern/tensor"
)

// Base is an open model that adapters can be merged into: a checkpoint folder or a GGUF file. Close it after use.
type Base struct {
	Path    string
	Weights []*Weight   // in file order
	Origin  Origin      // what its metadata says it is
	Model   *arch.Model // nil for a checkpoint of an architecture without a table

	gguf   *gguf.File // nil for a checkpoint
	config []member   // of a checkpoint
	closer io.Closer
	byKey  map[string][]*Weight
}

// Weight is one tensor of a base.
type Weight struct {
	tensor.Stored
	Key string // its name below the root: layers.0.self_attn.q_proj.weight

	layout
	rows, width int64 // as edits see it
	part        part
	row         *arch.Tensor // of the architecture's table, nil without one
	slab        int64        // which part of a GGUF tensor that stacks several (experts)
}

// part is the part of a model that a tensor belongs to.
type part string

const (
	partText   part = "text"
	partMTP    part = "mtp"
	partVision part = "vision"
)

// IsGGUF tells whether the base is a GGUF file.
func (b *Base) IsGGUF() bool { return b.gguf != nil }

// Name returns the base's file or folder name, for messages and records.
func (b *Base) Name() string { return filepath.Base(b.Path) }

// Close closes the files; the weights can no longer be read.
func (b *Base) Close() error { return b.closer.Close() }

// OpenBase opens a checkpoint folder or a GGUF file.
func OpenBase(path string) (*Base, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("no base model: %w", err)
	}
	path, err = filepath.Abs(path)
	if err != nil {
		return nil, err
	}
	b := &Base{Path: path, byKey: map[string][]*Weight{}}
	if info.IsDir() {
		err = b.openCheckpoint()
	} else {
		err = b.openGGUF()
	}
	if err == nil {
		err = b.readOrigin()
	}
	if err != nil {
		if b.closer != nil {
			b.closer.Close()
		}
		return nil, fmt.Errorf("base model: %w", err)
	}
	return b, nil
}

func (b *Base) openCheckpoint() error {
	data, err := os.ReadFile(filepath.Join(b.Path, "config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s is no checkpoint folder: it has no config.json", b.Path)
	}
	if err != nil {
		return err
	}
	if b.config, err = parseObject(data); err != nil {
		return fmt.Errorf("%s: config.json: %w", b.Path, err)
	}
	checkpoint, err := safetensors.OpenCheckpoint(b.Path)
	if err != nil {
		return err
	}
	b.closer = checkpoint
	if err := b.findModel(data, checkpoint.Tensors); err != nil {
		return fmt.Errorf("%s: %w", b.Path, err)
	}
	for _, t := range checkpoint.Tensors {
		w := newWeight(t, rootless(t.Name))
		w.row = b.tableRow(w.Key)
		b.add(w)
	}
	return nil
}

func (b *Base) openGGUF() error {
	f, err := gguf.Open(b.Path)
	if err != nil {
		return err
	}
	b.gguf, b.closer = f, f
	if kind, _ := f.Meta.Text("general.type"); kind == "adapter" {
		return fmt.Errorf("%s is an adapter, not a model", b.Path)
	}
	if b.Model, err = arch.FromGGUF(f.Meta, f.Tensors); err != nil {
		return fmt.Errorf("%s: %w", b.Path, err)
	}
	for _, t := range f.Tensors {
		row := b.Model.ByGGUF(t.Name) // there is one: FromGGUF has checked
		if len(row.Sources) == 1 {
			w := newWeight(t, rootless(row.Sources[0]))
			w.row, w.layout = row, newLayout(row)
			b.add(w)
			continue
		}
		for i, source := range row.Sources {
			b.add(expertOf(t, row, source, int64(i)))
		}
	}
	return nil
}

// expertOf is one expert's part of a GGUF tensor that stacks those of all experts.
func expertOf(t tensor.Stored, row *arch.Tensor, source string, i int64) *Weight {
	size := t.Data.Size() / int64(len(row.Sources))
	part := tensor.Stored{Spec: t.Spec, Data: io.NewSectionReader(t.Data, i*size, size)}
	part.Shape = row.SourceShape
	w := newWeight(part, rootless(source))
	w.row, w.slab = row, i
	return w
}

// findModel gets the architecture's table. A checkpoint without one can be merged into all the same.
func (b *Base) findModel(config []byte, tensors []tensor.Stored) error {
	c, err := arch.ParseConfig(config)
	if errors.Is(err, arch.ErrUnsupported) && !strings.Contains(string(config), "quantization_config") {
		return nil
	}
	if err != nil {
		return err
	}
	var names []string
	for _, t := range tensors {
		if name, ok := arch.Canonical(t.Name); ok {
			names = append(names, name)
		}
	}
	b.Model, err = arch.NewModel(c, names)
	return err
}

func newWeight(t tensor.Stored, key string) *Weight {
	w := &Weight{Stored: t, Key: key, width: rowWidth(t.Shape), rows: 1, part: partText}
	if len(t.Shape) > 1 {
		w.rows = t.Shape[0]
	}
	switch {
	case strings.HasPrefix(key, "mtp."):
		w.part = partMTP
	case strings.HasPrefix(key, "visual.") || strings.HasPrefix(key, "vision_"):
		w.part = partVision
	}
	return w
}

func (b *Base) add(w *Weight) {
	b.Weights = append(b.Weights, w)
	b.byKey[w.Key] = append(b.byKey[w.Key], w)
}

// tableRow returns the architecture table's row for a tensor, nil without one.
func (b *Base) tableRow(key string) *arch.Tensor {
	if b.Model == nil {
		return nil
	}
	if row := b.Model.ByCheckpoint("model." + key); row != nil {
		return row
	}
	return b.Model.ByCheckpoint(key)
}

// lookup returns the one tensor of that key, nil if there is none.
func (b *Base) lookup(key string) (*Weight, error) {
	switch found := b.byKey[key]; len(found) {
	case 0:
		return nil, nil
	case 1:
		return found[0], nil
	default:
		return nil, fmt.Errorf("%s could be %s or %s of the base: ambiguous", key, found[0].Name, found[1].Name)
	}
}

// The keys of the two tensors that may be one.
const (
	embedKey = "embed_tokens.weight"
	headKey  = "lm_head.weight"
)

// tied tells whether the output head is the embedding.
func (b *Base) tied() bool { return len(b.byKey[headKey]) == 0 && len(b.byKey[embedKey]) == 1 }

// isLinear tells whether a tensor is the weight of a linear layer of the language model, embedding and head aside.
func (w *Weight) isLinear() bool {
	return w.part == partText && len(w.Shape) == 2 && strings.HasPrefix(w.Key, "layers.") && strings.HasSuffix(w.Key, ".weight")
}
