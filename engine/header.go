package engine

import (
	"errors"
	"fmt"
	"hash/maphash"
	"math/bits"
	"strings"

	"quern/gguf"
	"quern/tensor"
)

var (
	errUnsupported = errors.New("this llama.cpp cannot run it")
	errNoRoom      = errors.New("it does not fit")
)

// header is what the engine needs to know of a GGUF file before llama.cpp sees it.
type header struct {
	path          string
	arch          string
	meta          gguf.Metadata
	tensors       []tensor.Spec
	layers        int // without those for drafting, which are not loaded
	draftLayers   int
	contextLength int
	parameters    uint64
	weightBytes   uint64
}

// readHeader reads and vets a model file. Package gguf has checked that the file is consistent; this checks what
// llama.cpp takes for granted beyond that: it divides by some numbers, indexes with others, and ends the process from
// a compute thread where a tensor has a type that its kernels lack. With weights false only the vocabulary is vetted.
func readHeader(path string, weights bool) (*header, error) {
	if strings.ContainsRune(path, 0) {
		return nil, errors.New("the path holds a zero byte")
	}
	f, err := gguf.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	h := &header{path: path, arch: f.Architecture(), meta: f.Meta}
	if h.arch == "" {
		return nil, errors.New("general.architecture is missing: this is no model")
	}
	if kind, ok := f.Meta.Text("general.type"); ok && kind != "model" {
		return nil, fmt.Errorf("general.type is %q: this is no model", kind)
	}
	if err := h.vetVocabulary(); err != nil {
		return nil, err
	}
	if !weights {
		return h, nil
	}
	for _, t := range f.Tensors {
		if err := vetTensor(t.Spec); err != nil {
			return nil, err
		}
		elements, err := t.Shape.Elements()
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		h.weightBytes += uint64(t.Bytes())
		h.parameters += uint64(elements)
		h.tensors = append(h.tensors, t.Spec)
	}
	return h, h.vetParameters()
}

// vetVocabulary checks the arrays that llama.cpp reads side by side with one index.
func (h *header) vetVocabulary() error {
	tokens, ok := h.meta.Strings("tokenizer.ggml.tokens")
	if !ok || len(tokens) < 16 { // llama.cpp's default ids of special tokens are below 16
		return errors.New("tokenizer.ggml.tokens is missing or too short: this model has no vocabulary")
	}
	for key, n := range map[string]int{
		"tokenizer.ggml.scores":     arrayLen[float32](h.meta, "tokenizer.ggml.scores"),
		"tokenizer.ggml.token_type": arrayLen[int32](h.meta, "tokenizer.ggml.token_type"),
	} {
		if n != absent && n != len(tokens) {
			return fmt.Errorf("%s does not fit the %d tokens (length or type)", key, len(tokens))
		}
	}
	if id := firstDuplicate(tokens); id >= 0 {
		return fmt.Errorf("tokenizer.ggml.tokens holds %q twice, the second time as %d", tokens[id], id)
	}
	if _, ok := h.meta.Text("tokenizer.ggml.model"); !ok {
		return errors.New("tokenizer.ggml.model is missing")
	}
	for _, kv := range h.meta {
		if id, ok := h.meta.Int(kv.Key); ok && strings.HasPrefix(kv.Key, "tokenizer.ggml.") && strings.HasSuffix(kv.Key, "_token_id") {
			if id < 0 || id >= int64(len(tokens)) {
				return fmt.Errorf("%s is %d, outside the %d tokens", kv.Key, id, len(tokens))
			}
		}
	}
	return nil
}

// firstDuplicate is the index of the first text that stands in list a second time, -1 without one. A vocabulary has a
// quarter of a million, so this takes the place of a map, in a fifth of the time.
func firstDuplicate(list []string) int {
	seed := maphash.MakeSeed()
	mask := uint64(1)<<bits.Len(uint(2*len(list))) - 1
	table := make([]int32, mask+1) // open addressing: index in list + 1
	for i, text := range list {
		at := maphash.String(seed, text) & mask
		for ; table[at] != 0; at = (at + 1) & mask {
			if list[table[at]-1] == text {
				return i
			}
		}
		table[at] = int32(i + 1)
	}
	return -1
}

const absent = -1

// arrayLen is the length of an array, absent where there is none, and another negative number where it has another type.
func arrayLen[T any](meta gguf.Metadata, key string) int {
	v, ok := meta.Get(key)
	if !ok {
		return absent
	}
	list, ok := v.([]T)
	if !ok {
		return -2
	}
	return len(list)
}

// vetTensor checks that llama.cpp's kernels can take the tensor's type.
func vetTensor(t tensor.Spec) error {
	switch t.DType {
	case tensor.I8, tensor.I16, tensor.I32, tensor.I64, tensor.F64, tensor.Q8_1, tensor.Q8_K:
		return fmt.Errorf("tensor %s has type %v, which no weight can have", t.Name, t.DType)
	}
	vector := len(t.Shape) < 2 || strings.Contains(t.Name, "ssm_conv1d")
	if vector && t.DType != tensor.F32 {
		return fmt.Errorf("tensor %s has type %v: vectors must be F32", t.Name, t.DType)
	}
	return nil
}

// Bounds for the whole numbers of a header. llama.cpp asserts on the first (LLAMA_MAX_LAYERS).
const (
	maxLayers = 512
	maxSize   = 1 << 24
)

// positive are the keys, below the architecture's name, that llama.cpp divides by or takes the remainder of.
var positive = []string{
	"block_count", "context_length", "embedding_length", "feed_forward_length", "attention.head_count",
	"attention.head_count_kv", "attention.key_length", "attention.value_length", "rope.dimension_count",
	"full_attention_interval", "ssm.conv_kernel", "ssm.state_size", "ssm.group_count", "ssm.inner_size",
	"ssm.time_step_rank",
}

// number is an integer below the architecture's name, or otherwise.
func (h *header) number(key string, otherwise int64) int64 {
	if n, ok := h.meta.Int(h.arch + "." + key); ok {
		return n
	}
	return otherwise
}

func (h *header) vetParameters() error {
	for _, kv := range h.meta {
		name, ours := strings.CutPrefix(kv.Key, h.arch+".")
		if n, ok := h.meta.Int(kv.Key); ours && ok && (n < -maxSize || n > maxSize) && name != "context_length" {
			return fmt.Errorf("%s is %d, which no model has", kv.Key, n)
		}
		if x, ok := h.meta.Float(kv.Key); ours && ok && !(x >= 0 && x <= 1e30) {
			return fmt.Errorf("%s is %v, which no model has", kv.Key, x)
		}
	}
	for _, key := range positive {
		if n := h.number(key, 1); n < 1 || n > 1<<31-1 {
			return fmt.Errorf("%s.%s is %d, which no model has", h.arch, key, n)
		}
	}
	h.layers, h.contextLength = int(h.number("block_count", 0)), int(h.number("context_length", 0))
	if h.layers < 1 || h.layers > maxLayers || h.contextLength < 1 {
		return fmt.Errorf("%[1]s.block_count is %[2]d and %[1]s.context_length %[3]d: the model's size is not given, or impossible", h.arch, h.layers, h.contextLength)
	}
	if h.draftLayers = int(h.number("nextn_predict_layers", 0)); h.draftLayers < 0 || h.draftLayers >= h.layers {
		return fmt.Errorf("%s.nextn_predict_layers is %d of %d layers", h.arch, h.draftLayers, h.layers)
	}
	h.layers -= h.draftLayers
	for _, vet := range []func() error{h.vetHeads, h.vetRope, h.vetRecurrent} {
		if err := vet(); err != nil {
			return err
		}
	}
	return nil
}

func (h *header) vetHeads() error {
	heads, kv := h.number("attention.head_count", 1), h.number("attention.head_count_kv", h.number("attention.head_count", 1))
	width := h.number("embedding_length", 0)
	if heads%kv != 0 {
		return fmt.Errorf("%d attention heads cannot share %d key/value heads", heads, kv)
	}
	if _, own := h.meta.Get(h.arch + ".attention.key_length"); !own && width%heads != 0 {
		return fmt.Errorf("%d attention heads cannot share a width of %d", heads, width)
	}
	return nil
}

// vetRope checks the split of the rotated dimensions among the axes of a position (mrope): the kernel divides by their sum.
func (h *header) vetRope() error {
	head := h.number("attention.key_length", h.number("embedding_length", 0)/h.number("attention.head_count", 1))
	if rot := h.number("rope.dimension_count", 2); rot > head && head > 0 || rot%2 != 0 {
		return fmt.Errorf("%s.rope.dimension_count is %d, heads have %d dimensions", h.arch, rot, head)
	}
	key := h.arch + ".rope.dimension_sections"
	v, ok := h.meta.Get(key)
	if !ok {
		return nil
	}
	sections, ok := v.([]int32)
	sum := int32(0)
	for _, n := range sections {
		if n < 0 || n > 1<<16 {
			return fmt.Errorf("%s holds %d", key, n)
		}
		sum += n
	}
	if !ok || sum == 0 || len(sections) != 4 || int64(sum) > head {
		return fmt.Errorf("%s: want four numbers with a sum above 0 and within the %d dimensions of a head", key, head)
	}
	return nil
}

// vetRecurrent checks the sizes of linear attention: value heads share key heads, and make up the inner width.
func (h *header) vetRecurrent() error {
	inner, rank, groups := h.number("ssm.inner_size", 0), h.number("ssm.time_step_rank", 1), h.number("ssm.group_count", 1)
	if inner > 0 && (inner%rank != 0 || rank%groups != 0) {
		return fmt.Errorf("%s.ssm: %d value heads do not fit an inner width of %d and %d key heads", h.arch, rank, inner, groups)
	}
	return nil
}

// layerOf is the layer that a tensor belongs to: blk.LAYER.…
func layerOf(tensor string) (layer int, ok bool) {
	n, err := fmt.Sscanf(tensor, "blk.%d.", &layer)
	return layer, err == nil && n == 1
}

// loaded are the tensors that llama.cpp loads: layers for drafting stay in the file.
func (h *header) loaded(yield func(t tensor.Spec, layer int) bool) {
	for _, t := range h.tensors {
		layer, ok := layerOf(t.Name)
		if !ok {
			layer = -1
		}
		if layer < h.layers && !yield(t, layer) {
			return
		}
	}
}

// fileType is the type of most of the weights.
func (h *header) fileType() string {
	elements := map[tensor.DType]int64{}
	var most tensor.DType
	for _, t := range h.tensors {
		n, _ := t.Shape.Elements() // readHeader has checked it
		if elements[t.DType] += n; elements[t.DType] > elements[most] {
			most = t.DType
		}
	}
	return most.String()
}
