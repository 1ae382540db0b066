package engine

import "context"

// Adapter is a LoRA adapter in GGUF form, applied while running; the model's weights stay as they are.
type Adapter struct{}

// AdapterScale is an adapter with its strength: 1 applies it as it was trained, 0 not at all.
type AdapterScale struct {
	Adapter *Adapter
	Scale   float32
}

// LoadAdapter reads a LoRA adapter (GGUF) made for m. An adapter for another architecture, or one whose tensors do not
// fit m's, is refused with ErrBadFile.
func (m *Model) LoadAdapter(ctx context.Context, path string) (*Adapter, error) { return nil, errStub }

// Close frees the adapter; refused while an Engine uses it. Safe to call twice.
func (a *Adapter) Close() error { return errStub }
