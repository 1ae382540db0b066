package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"quern/engine/internal/llama"
)

// Token is an id in a model's vocabulary.
type Token = int32

// Model is a loaded GGUF file: weights and vocabulary. It does not change and may be shared by several Engines.
type Model struct {
	path      string
	header    *header
	gpuLayers int
	specials  *specials
	ends      []Token
	isEnd     []bool // by id
	pieces    func() ([]string, error)

	mu     sync.RWMutex // held for reading while llama is in use
	llama  *llama.Model // nil once closed
	users  int          // open Engines and Adapters
	nfc    bool
	keys   []string
	values map[string]string
}

// Load reads a GGUF file; of a split model, name the first part.
//
// The header is checked in Go first, so a missing, cut, corrupt or hostile file is an *Error of kind ErrBadFile or
// ErrUnsupported. A model that cannot fit is refused with the numbers (ErrOutOfMemory). Ending ctx ends the load and
// gives the memory back; the error is then ctx.Err().
func Load(ctx context.Context, path string, opt LoadOptions) (*Model, error) {
	fail := func(kind, err error) (*Model, error) {
		return nil, &Error{Op: "load model", Path: path, Kind: kind, Err: err}
	}
	h, err := readHeader(path, !opt.VocabOnly)
	if err != nil {
		return fail(kindOf(err, ErrBadFile), err)
	}
	if err := opt.Engine.check(); err != nil {
		return fail(nil, err)
	}
	layers, err := planLayers(ctx, h, opt)
	if err != nil {
		return fail(kindOf(err, nil), err)
	}
	m := &Model{path: path, header: h, gpuLayers: layers}
	m.llama, err = llama.LoadModel(path, llama.ModelParams{
		GPULayers: h.llamaLayers(layers),
		Mmap:      !opt.NoMmap,
		VocabOnly: opt.VocabOnly,
		Progress: func(share float64) bool {
			if opt.Progress != nil {
				opt.Progress(share)
			}
			return ctx.Err() == nil
		},
	})
	switch {
	case errors.Is(err, llama.ErrCancelled):
		return nil, ctx.Err()
	case err != nil:
		return fail(kindOf(err, ErrBadFile), err)
	case ctx.Err() != nil: // it ended after the last progress
		m.llama.Close()
		return nil, ctx.Err()
	}
	if err := m.readVocabulary(); err != nil {
		m.llama.Close()
		return fail(ErrBadFile, err)
	}
	return m, nil
}

// kindOf tells the kind of a cause from llama.cpp or the operating system.
func kindOf(err, otherwise error) error {
	text := err.Error()
	switch {
	case errors.Is(err, errUnsupported), strings.Contains(text, "unknown model architecture"), strings.Contains(text, "unknown pre-tokenizer"), strings.Contains(text, "unknown tokenizer"):
		return ErrUnsupported
	case errors.Is(err, errNoRoom), strings.Contains(text, "out of memory"), strings.Contains(text, "failed to allocate"), strings.Contains(text, "unable to allocate"):
		return ErrOutOfMemory
	case errors.Is(err, os.ErrNotExist), errors.Is(err, os.ErrPermission):
		return ErrBadFile
	}
	return otherwise
}

func (m *Model) readVocabulary() error {
	m.keys, m.values = m.llama.Meta()
	attrs := m.llama.TokenAttrs()
	m.isEnd = make([]bool, len(attrs))
	for id, attr := range attrs {
		if attr&llama.AttrEOG != 0 {
			m.isEnd[id] = true
			m.ends = append(m.ends, Token(id))
		}
	}
	m.specials = newSpecials(m.llama, attrs, m.header.meta)
	m.nfc = normalises[m.values["tokenizer.ggml.pre"]]
	m.pieces = sync.OnceValues(m.readPieces)
	return nil
}

// readPieces reads the text of every token: "" for control tokens.
func (m *Model) readPieces() ([]string, error) {
	pieces, err := m.llama.Pieces(false)
	if err != nil {
		return nil, err
	}
	for literal, id := range m.specials.byLiteral {
		if !m.specials.control[id] {
			pieces[id] = literal
		}
	}
	return pieces, nil
}

// acquire keeps the model from being closed, for an Engine or Adapter.
func (m *Model) acquire() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.llama == nil {
		return ErrClosed
	}
	m.users++
	return nil
}

func (m *Model) release() {
	m.mu.Lock()
	m.users--
	m.mu.Unlock()
}

// Close frees the model. It is safe to call twice, and refused (an error) while an Engine or Adapter of it is open.
func (m *Model) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.users > 0 {
		return fmt.Errorf("close model %s: %d engines or adapters of it are still open", m.path, m.users)
	}
	if m.llama != nil {
		m.llama.Close()
		m.llama = nil
	}
	return nil
}

func (m *Model) Path() string         { return m.path }                           // as given to Load
func (m *Model) Architecture() string { return m.values["general.architecture"] } // "qwen2", "qwen35", …
func (m *Model) Name() string         { return m.values["general.name"] }         // or ""

// Tokenizer is the kind of pre-tokenizer ("qwen2"), or of tokenizer ("llama") where the file names none.
func (m *Model) Tokenizer() string {
	if pre := m.values["tokenizer.ggml.pre"]; pre != "" {
		return pre
	}
	return m.values["tokenizer.ggml.model"]
}

func (m *Model) FileType() string   { return m.header.fileType() }    // "Q8_0", "F16": the type of most weights
func (m *Model) ContextLength() int { return m.header.contextLength } // the length it was trained with, in tokens
func (m *Model) Parameters() uint64 { return m.header.parameters }
func (m *Model) Size() uint64       { return m.header.weightBytes } // all tensors, bytes
func (m *Model) Layers() int        { return m.header.layers }      // without layers for drafting
func (m *Model) VocabSize() int     { return len(m.isEnd) }

// Hybrid says whether the model carries recurrent state, so that a sequence cannot be cut back.
func (m *Model) Hybrid() bool {
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.llama != nil && (m.llama.IsHybrid() || m.llama.IsRecurrent())
}

// GPULayers is how many layers were put on a GPU, the output layer counted; 0 where there is no GPU.
func (m *Model) GPULayers() int { return m.gpuLayers }

// Placement says in one line where the model runs, for a person: "" where there is nothing to say, as in a build
// without GPU support.
func (m *Model) Placement() string {
	backends := llama.Backends()
	if len(backends) == 1 {
		return ""
	}
	gpu := backends[len(backends)-1]
	switch all := m.header.layers + 1; {
	case m.gpuLayers == all:
		return fmt.Sprintf("all %d layers on the GPU (%s)", all, gpu)
	case m.gpuLayers > 0:
		return fmt.Sprintf("%d of %d layers on the GPU (%s), the others on the CPU", m.gpuLayers, all, gpu)
	default:
		return fmt.Sprintf("no layer on a GPU: running on the CPU, although this build supports %s", gpu)
	}
}

// EndTokens are all ids that end a generation (end of text, end of turn, …), in ascending order.
func (m *Model) EndTokens() []Token { return slices.Clone(m.ends) }

// Metadata is a value of the file's header as text; arrays are not covered.
func (m *Model) Metadata(key string) (string, bool) {
	v, ok := m.values[key]
	return v, ok
}

// MetadataKeys are the keys that Metadata knows.
func (m *Model) MetadataKeys() []string { return slices.Clone(m.keys) }
