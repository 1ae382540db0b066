package arch

import (
	"fmt"
	"slices"
	"strings"

	"quern/tensor"
)

// Checkpoint connects a model's table with the stored tensors of a Hugging Face checkpoint.
type Checkpoint struct {
	*Model
	Skipped []string // stored tensors that are no part of the text model, as they are named in the files

	stored map[string]*tensor.Stored // by canonical name
}

// NewCheckpoint finds every tensor of the model among the stored ones and checks shapes and types. A tensor that is
// missing, unknown, or there under two spellings is an error.
func NewCheckpoint(c *Config, tensors []tensor.Stored) (*Checkpoint, error) {
	ck := &Checkpoint{stored: map[string]*tensor.Stored{}}
	var names []string
	for i := range tensors {
		name, ok := Canonical(tensors[i].Name)
		if !ok {
			ck.Skipped = append(ck.Skipped, tensors[i].Name)
			continue
		}
		if other := ck.stored[name]; other != nil {
			return nil, fmt.Errorf("tensors %s and %s are the same weight under two names", other.Name, tensors[i].Name)
		}
		ck.stored[name] = &tensors[i]
		names = append(names, name)
	}
	var err error
	if ck.Model, err = NewModel(c, names); err != nil {
		return nil, err
	}
	if err := ck.complete(names); err != nil {
		return nil, err
	}
	return ck, nil
}

// Stored returns a tensor's sources, nil when it is optional and absent.
func (ck *Checkpoint) Stored(t *Tensor) []*tensor.Stored {
	sources := make([]*tensor.Stored, len(t.Sources))
	for i, name := range t.Sources {
		if sources[i] = ck.stored[name]; sources[i] == nil {
			return nil
		}
	}
	return sources
}

func (ck *Checkpoint) complete(names []string) error {
	var unknown, missing []string
	for _, name := range names {
		if ck.ByCheckpoint(name) == nil {
			unknown = append(unknown, ck.stored[name].Name)
		}
	}
	for i := range ck.Tensors {
		t := &ck.Tensors[i]
		for _, name := range t.Sources {
			if ck.stored[name] == nil && !t.Optional {
				missing = append(missing, name)
			}
		}
	}
	switch {
	case len(missing) > 0:
		return fmt.Errorf("the checkpoint is not complete: %s missing%s", listNames(missing), headHint(missing))
	case len(unknown) > 0:
		return fmt.Errorf("%w: %s has no tensors like %s", ErrUnsupported, ck.Class, listNames(unknown))
	}
	for i := range ck.Tensors {
		t := &ck.Tensors[i]
		if sources := ck.Stored(t); sources != nil {
			if err := t.Check(sources); err != nil {
				return err
			}
		}
	}
	return nil
}

func headHint(missing []string) string {
	if slices.Equal(missing, []string{"lm_head.weight"}) {
		return "; if the head is meant to share the embedding, config.json must say tie_word_embeddings: true"
	}
	return ""
}

// listNames writes the first few names of a list, sorted, and how many more there are.
func listNames(names []string) string {
	names = slices.Sorted(slices.Values(names))
	const show = 4
	if len(names) <= show {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:show], ", "), len(names)-show)
}
