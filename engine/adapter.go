package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	"quern/engine/internal/llama"
	"quern/gguf"
)

// Adapter is a LoRA adapter in GGUF form, applied while running; the model's weights stay as they are.
type Adapter struct {
	model *Model
	path  string

	mu    sync.Mutex
	llama *llama.Adapter // nil once closed
	users int            // Engines that use it
}

// AdapterScale is an adapter with its strength: 1 applies it as it was trained, 0 not at all.
type AdapterScale struct {
	Adapter *Adapter
	Scale   float32
}

// LoadAdapter reads a LoRA adapter (GGUF) made for m. An adapter for another architecture, or one whose tensors do not
// fit m's, is refused with ErrBadFile.
func (m *Model) LoadAdapter(ctx context.Context, path string) (*Adapter, error) {
	fail := func(kind, err error) (*Adapter, error) {
		return nil, &Error{Op: "load adapter", Path: path, Kind: kind, Err: err}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := vetAdapter(path, m.header); err != nil {
		return fail(ErrBadFile, err)
	}
	if err := m.acquire(); err != nil {
		return fail(ErrClosed, err)
	}
	a, err := llama.LoadAdapter(m.llama, path)
	if err != nil {
		m.release()
		return fail(kindOf(err, ErrBadFile), err)
	}
	return &Adapter{model: m, path: path, llama: a}, nil
}

// vetAdapter checks what llama.cpp would take for granted, or pass over in silence: that the file is an adapter for this
// architecture, that its tensors come in pairs, and that each pair has a weight of the model to go to.
func vetAdapter(path string, h *header) error {
	f, err := gguf.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if kind, _ := f.Meta.Text("general.type"); kind != "adapter" {
		return fmt.Errorf("general.type is %q: this is no adapter", kind)
	}
	if kind, _ := f.Meta.Text("adapter.type"); kind != "lora" {
		return fmt.Errorf("adapter.type is %q: only lora can be applied", kind)
	}
	if arch := f.Architecture(); arch != h.arch {
		return fmt.Errorf("it was made for architecture %q, the model is %q", arch, h.arch)
	}
	if alpha, _ := f.Meta.Get("adapter.lora.alpha"); !isFloat32(alpha) {
		return errors.New("adapter.lora.alpha is missing, or no FLOAT32")
	}
	if _, ok := f.Meta.Get("adapter.alora.invocation_tokens"); ok {
		return errors.New("it is an activated LoRA (aLoRA), which works behind certain tokens only: not supported")
	}
	if len(f.Tensors) == 0 {
		return errors.New("it holds no tensors: nothing would be adapted")
	}
	shapes := make(map[string]bool, len(h.tensors))
	for _, t := range h.tensors {
		shapes[t.Name] = true
	}
	for _, t := range f.Tensors {
		if err := vetTensor(t.Spec); err != nil {
			return err
		}
		base, ok := loraBase(t.Name)
		if !ok || !shapes[base] {
			return fmt.Errorf("tensor %s has no weight in the model to go to", t.Name)
		}
	}
	return nil
}

func isFloat32(v any) bool { _, ok := v.(float32); return ok }

// loraBase is the name of the weight that a tensor of an adapter belongs to: NAME.lora_a, NAME.lora_b.
func loraBase(name string) (string, bool) {
	for _, suffix := range []string{".lora_a", ".lora_b"} {
		if base, ok := strings.CutSuffix(name, suffix); ok {
			return base, true
		}
	}
	return "", false
}

// Close frees the adapter; refused while an Engine uses it. Safe to call twice.
func (a *Adapter) Close() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.users > 0 {
		return fmt.Errorf("close adapter %s: %d engines still use it", a.path, a.users)
	}
	if a.llama != nil {
		a.llama.Close()
		a.llama = nil
		a.model.release()
	}
	return nil
}

func (a *Adapter) acquire(m *Model) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	switch {
	case a.llama == nil:
		return fmt.Errorf("adapter %s: %w", a.path, ErrClosed)
	case a.model != m:
		return fmt.Errorf("adapter %s was loaded for another model", a.path)
	}
	a.users++
	return nil
}

func (a *Adapter) release() {
	a.mu.Lock()
	a.users--
	a.mu.Unlock()
}

// useAdapters applies the engine's adapters to its context.
func (e *Engine) useAdapters() error {
	wanted := e.opt.Adapters
	e.opt.Adapters = nil // filled again as they are acquired, so that stop releases these alone
	var list []*llama.Adapter
	var scales []float32
	for _, w := range wanted {
		if w.Adapter == nil || w.Scale != w.Scale {
			return errors.New("an adapter of the options is nil, or its scale is not a number")
		}
		if err := w.Adapter.acquire(e.model); err != nil {
			return err
		}
		e.opt.Adapters = append(e.opt.Adapters, w)
		list, scales = append(list, w.Adapter.llama), append(scales, w.Scale)
	}
	if len(list) == 0 {
		return nil
	}
	return e.context.SetAdapters(list, scales)
}
