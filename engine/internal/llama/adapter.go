package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import "unsafe"

// Adapter is llama_adapter_lora. The model must outlive it.
type Adapter struct{ c *C.struct_llama_adapter_lora }

// LoadAdapter reads a LoRA adapter in GGUF form (llama_adapter_lora_init). The header must have been vetted.
func LoadAdapter(m *Model, path string) (*Adapter, error) {
	cpath := C.CString(path)
	defer C.free(unsafe.Pointer(cpath))
	a := &Adapter{}
	_, err := takeReport(C.qn_adapter_load(m.c, cpath, &a.c))
	if err != nil {
		return nil, err
	}
	return a, nil
}

// Close frees the adapter (llama_adapter_lora_free). No Context may use it any more.
func (a *Adapter) Close() {
	if a.c != nil {
		C.llama_adapter_lora_free(a.c)
		a.c = nil
	}
}
