package inspect

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"quern/gguf"
	"quern/lora"
	"quern/tensor"
)

// Report is what there is to say about a Subject: the JSON of `quern inspect --json`.
type Report struct {
	Path         string `json:"path"`
	Kind         Kind   `json:"kind"`
	Files        int    `json:"files"` // that hold the tensors
	Architecture string `json:"architecture,omitempty"`
	Class        string `json:"class,omitempty"` // of a checkpoint
	Name         string `json:"name,omitempty"`

	Parameters int64     `json:"parameters"`
	Tensors    int       `json:"tensors"`
	Bytes      int64     `json:"bytes"` // of all tensors
	Types      []TypeSum `json:"types"`

	Tokenizer    *Tokenizer       `json:"tokenizer,omitempty"`
	ChatTemplate *ChatTemplate    `json:"chat_template,omitempty"`
	Lineage      json.RawMessage  `json:"lineage,omitempty"` // as `lora merge` recorded it
	Adapter      *lora.Inspection `json:"adapter,omitempty"`
	Memory       *Memory          `json:"memory,omitempty"`
	Fingerprint  string           `json:"fingerprint,omitempty"`

	Metadata   []Entry  `json:"metadata,omitempty"`
	TensorList []Tensor `json:"tensor_list,omitempty"`
	Problems   []string `json:"problems,omitempty"`
}

// TypeSum adds up the tensors of one type.
type TypeSum struct {
	Type       string `json:"type"`
	Tensors    int    `json:"tensors"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"`
}

// Tokenizer is the vocabulary in brief.
type Tokenizer struct {
	Model  string   `json:"model"`
	Pre    string   `json:"pre"`
	Tokens int      `json:"tokens"`
	Ends   []string `json:"ends"` // tokens that the metadata calls ends
}

// ChatTemplate is the template in brief. Profile is filled in by who knows the profiles.
type ChatTemplate struct {
	Profile string `json:"profile,omitempty"`
	Chars   int    `json:"chars"`
	SHA256  string `json:"sha256"`

	Text string `json:"-"`
}

// Entry is one metadata entry. Long arrays are cut to their first elements; Len is the length.
type Entry struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Value any    `json:"value"`
	Len   int    `json:"len,omitempty"`
}

// Tensor is one tensor as it is stored.
type Tensor struct {
	Name  string       `json:"name"`
	Type  string       `json:"type"`
	Shape tensor.Shape `json:"shape"` // slowest-varying first
	Bytes int64        `json:"bytes"`
}

// Options choose what costs time or space.
type Options struct {
	Tensors     bool // list them
	Fingerprint bool // reads all weights
}

// Report describes the subject.
func (s *Subject) Report(ctx context.Context, o Options) (*Report, error) {
	r := &Report{Path: s.Path, Kind: s.Kind, Files: s.Parts, Problems: s.Problems}
	r.Architecture, _ = s.Meta.Text("general.architecture")
	r.Name, _ = s.Meta.Text("general.name")
	if s.hf != nil {
		r.Class = s.hf.Class
	}
	s.addTensors(r, o.Tensors)
	s.addMetadata(r)
	if s.Adapter != nil {
		var err error
		if r.Adapter, err = s.Adapter.Inspect(); err != nil {
			return nil, err
		}
		r.Parameters = r.Adapter.Values
	}
	if s.model != nil {
		r.Memory = s.memory()
	}
	if o.Fingerprint {
		var err error
		if r.Fingerprint, err = s.fingerprint(ctx); err != nil {
			return nil, err
		}
	}
	return r, nil
}

func (s *Subject) addTensors(r *Report, list bool) {
	sums := map[tensor.DType]*TypeSum{}
	for _, t := range s.Tensors {
		n, _ := t.Shape.Elements() // checked when it was read
		r.Tensors++
		r.Parameters += n
		r.Bytes += t.Bytes()
		sum := sums[t.DType]
		if sum == nil {
			sum = &TypeSum{Type: t.DType.String()}
			sums[t.DType] = sum
		}
		sum.Tensors, sum.Parameters, sum.Bytes = sum.Tensors+1, sum.Parameters+n, sum.Bytes+t.Bytes()
		if list {
			r.TensorList = append(r.TensorList, Tensor{t.Name, t.DType.String(), append(tensor.Shape{}, t.Shape...), t.Bytes()})
		}
	}
	for _, sum := range sums {
		r.Types = append(r.Types, *sum)
	}
	slices.SortFunc(r.Types, func(a, b TypeSum) int { return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.Type, b.Type)) })
}

func (s *Subject) addMetadata(r *Report) {
	for _, kv := range s.Meta {
		r.Metadata = append(r.Metadata, entry(kv))
	}
	for _, key := range slices.Sorted(maps.Keys(s.header)) {
		r.Metadata = append(r.Metadata, entry(gguf.KV{Key: key, Value: s.header[key]}))
	}
	if text, ok := s.Meta.Text(lora.LineageKey); ok {
		if json.Valid([]byte(text)) {
			r.Lineage = json.RawMessage(text)
		} else {
			r.Problems = append(r.Problems, "the lineage record is not JSON")
		}
	}
	if text, ok := s.Meta.Text("tokenizer.chat_template"); ok {
		sum := sha256.Sum256([]byte(text))
		r.ChatTemplate = &ChatTemplate{Chars: len([]rune(text)), SHA256: hex.EncodeToString(sum[:]), Text: text}
	}
	if tokens, ok := s.Meta.Strings("tokenizer.ggml.tokens"); ok {
		r.Tokenizer = &Tokenizer{Tokens: len(tokens), Ends: []string{}}
		r.Tokenizer.Model, _ = s.Meta.Text("tokenizer.ggml.model")
		r.Tokenizer.Pre, _ = s.Meta.Text("tokenizer.ggml.pre")
		for _, key := range []string{"eos", "eot", "eom"} {
			if id, ok := s.Meta.Int("tokenizer.ggml." + key + "_token_id"); ok && id >= 0 && id < int64(len(tokens)) {
				r.Tokenizer.Ends = append(r.Tokenizer.Ends, tokens[id])
			}
		}
	}
}

// entry shortens a value for display.
func entry(kv gguf.KV) Entry {
	e := Entry{Key: kv.Key, Type: kv.TypeName(), Value: kv.Value}
	if v := reflect.ValueOf(kv.Value); v.Kind() == reflect.Slice {
		const first = 8
		e.Len = v.Len()
		values := make([]any, min(first, v.Len())) // not []uint8, which JSON writes as text
		for i := range values {
			values[i] = v.Index(i).Interface()
		}
		e.Value = values
	}
	return e
}

// fingerprint identifies a model by its weights, an adapter by its files.
func (s *Subject) fingerprint(ctx context.Context) (string, error) {
	switch s.Kind {
	case KindAdapter:
		return s.Adapter.SHA256.Weights, nil
	case KindGGUF, KindCheckpoint:
		base, err := lora.OpenBase(s.Path)
		if err != nil {
			return "", err
		}
		defer base.Close()
		f, err := base.Fingerprint(ctx)
		return f.String(), err
	}
	return "", fmt.Errorf("%s: a fingerprint is for models and adapters", s.Path)
}
