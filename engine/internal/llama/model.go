package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"runtime/cgo"
	"unsafe"
)

// ErrCancelled: a progress function asked for the end.
var ErrCancelled = errors.New("cancelled")

// ModelParams are the members of llama_model_params that Quern sets.
type ModelParams struct {
	GPULayers int  // n_gpu_layers; negative: all
	Mmap      bool // LLAMA_LOAD_MODE_MMAP, else NONE
	VocabOnly bool
	NoAlloc   bool // plan only: no weights are read, sizes are logged
	Progress  func(share float64) (goOn bool)
}

// Model is llama_model: weights and vocabulary. Its methods may be called from any goroutine.
type Model struct {
	c     *C.struct_llama_model
	vocab *C.struct_llama_vocab
	sizes string
}

// LoadModel reads a GGUF file (llama_model_load_from_file). The header must have been vetted: llama.cpp asserts on
// many things that a hostile one can say. ErrCancelled: Progress returned false.
func LoadModel(path string, p ModelParams) (*Model, error) {
	Init()
	params := C.llama_model_default_params()
	params.n_gpu_layers = C.int32_t(p.GPULayers)
	params.load_mode = C.LLAMA_LOAD_MODE_NONE
	if p.Mmap {
		params.load_mode = C.LLAMA_LOAD_MODE_MMAP
	}
	params.vocab_only = C.bool(p.VocabOnly)
	params.no_alloc = C.bool(p.NoAlloc)
	params.load_mtp = false

	stopped := false
	var handle cgo.Handle
	if p.Progress != nil {
		handle = cgo.NewHandle(func(share float64) bool {
			stopped = stopped || !p.Progress(share)
			return !stopped
		})
		defer handle.Delete()
	}
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	m := &Model{}
	sizes, err := takeReport(C.qn_model_load(cpath, params, C.uintptr_t(handle), &m.c))
	if stopped {
		m.Close()
		return nil, ErrCancelled
	}
	if err != nil {
		return nil, err
	}
	m.vocab, m.sizes = C.llama_model_get_vocab(m.c), sizes
	return m, nil
}

// Close frees the model (llama_model_free).
func (m *Model) Close() {
	if m.c != nil {
		C.llama_model_free(m.c)
		m.c = nil
	}
}

// Sizes are the log lines of the load that name buffer sizes.
func (m *Model) Sizes() string { return m.sizes }

func (m *Model) IsHybrid() bool    { return bool(C.llama_model_is_hybrid(m.c)) }
func (m *Model) IsRecurrent() bool { return bool(C.llama_model_is_recurrent(m.c)) }
func (m *Model) IsDiffusion() bool { return bool(C.llama_model_is_diffusion(m.c)) }
func (m *Model) HasEncoder() bool  { return bool(C.llama_model_has_encoder(m.c)) }
func (m *Model) HasDecoder() bool  { return bool(C.llama_model_has_decoder(m.c)) }

// Meta are the scalar values of the file's header as text, in the file's order (llama_model_meta_…_by_index).
func (m *Model) Meta() (keys []string, values map[string]string) {
	values = make(map[string]string)
	for i := range int(C.llama_model_meta_count(m.c)) {
		key := fill(func(buf *C.char, n C.size_t) C.int32_t {
			return C.llama_model_meta_key_by_index(m.c, C.int32_t(i), buf, n)
		})
		value := fill(func(buf *C.char, n C.size_t) C.int32_t {
			return C.llama_model_meta_val_str_by_index(m.c, C.int32_t(i), buf, n)
		})
		keys = append(keys, key)
		values[key] = value
	}
	return keys, values
}

// fill calls a C function that writes a text and returns its length, again with more room where the text is longer.
func fill(call func(buf *C.char, n C.size_t) C.int32_t) string {
	size := C.size_t(256)
	for {
		buf := (*C.char)(C.malloc(size))
		n := call(buf, size)
		if n >= 0 && C.size_t(n) >= size {
			C.free(unsafe.Pointer(buf))
			size = C.size_t(n) + 1
			continue
		}
		text := ""
		if n > 0 {
			text = C.GoStringN(buf, n)
		}
		C.free(unsafe.Pointer(buf))
		return text
	}
}
