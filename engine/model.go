package engine

import (
	"context"
	"errors"
)

// Token is an id in a model's vocabulary.
type Token = int32

var errStub = errors.New("not built yet")

// Model is a loaded GGUF file: weights and vocabulary. It does not change and may be shared by several Engines.
type Model struct{}

// Load reads a GGUF file. Of a split model any part may be named; the others must lie beside it.
//
// The header is checked in Go first, so a missing, cut, corrupt or hostile file is an *Error of kind ErrBadFile or
// ErrUnsupported. A model that cannot fit is refused with the numbers (ErrOutOfMemory). Ending ctx ends the load and
// gives the memory back; the error is then ctx.Err().
func Load(ctx context.Context, path string, opt LoadOptions) (*Model, error) { return nil, errStub }

// Close frees the model. It is safe to call twice, and refused (an error) while an Engine or Adapter of it is open.
func (m *Model) Close() error { return errStub }

func (m *Model) Path() string         { return "" } // as given to Load
func (m *Model) Architecture() string { return "" } // "qwen2", "qwen35", …
func (m *Model) Name() string         { return "" } // general.name, or ""
func (m *Model) Tokenizer() string    { return "" } // tokenizer.ggml.pre, or tokenizer.ggml.model where there is none
func (m *Model) FileType() string     { return "" } // "Q8_0", "F16", …
func (m *Model) ContextLength() int   { return 0 }  // the length it was trained with, in tokens
func (m *Model) Parameters() uint64   { return 0 }
func (m *Model) Size() uint64         { return 0 } // all tensors, bytes
func (m *Model) Layers() int          { return 0 }
func (m *Model) VocabSize() int       { return 0 }

// Hybrid says whether the model carries recurrent state, so that a sequence cannot be cut back.
func (m *Model) Hybrid() bool { return false }

// GPULayers is how many layers were put on a GPU.
func (m *Model) GPULayers() int { return 0 }

// EndTokens are all ids that end a generation (end of text, end of turn, …), in ascending order.
func (m *Model) EndTokens() []Token { return nil }

// Metadata is a value of the file's header as text; arrays are not covered.
func (m *Model) Metadata(key string) (string, bool) { return "", false }

// MetadataKeys are the keys that Metadata knows, in the file's order.
func (m *Model) MetadataKeys() []string { return nil }
