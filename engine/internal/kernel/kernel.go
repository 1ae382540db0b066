// Package kernel computes what takes most of the time on a CPU: products with Q8_0 weights, and attention over a memory in
// half precision. Its kernels are for x86-64 with AVX512-VNNI, where ggml's take several times as long as they could.
// They are handed to ggml's CPU backend, which asks for them node by node; everything else in a graph stays ggml's, as
// does all of it on other processors.
package kernel

// #cgo CPPFLAGS: -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/include -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/src
// #cgo CXXFLAGS: -std=c++17 -O2 -DNDEBUG -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/src/ggml-cpu
// #cgo LDFLAGS: -L${SRCDIR}/../../../third_party/llama.cpp/lib -lggml-cpu -lggml-base
// #cgo linux LDFLAGS: -lstdc++ -lm -lpthread
// #cgo darwin LDFLAGS: -lc++ -framework Accelerate -framework Foundation
// #include "kernel.h"
import "C"

import "sync"

// Supported says whether this processor has what the kernels need.
func Supported() bool { return bool(C.qk_supported()) }

// Names says which kernels are used on this processor.
func Names() []string {
	if !Supported() {
		return nil
	}
	return []string{"Q8_0 products", "f16 attention"}
}

// Register hands the kernels to ggml where the processor has what they need. Only the first call does something; it must
// come before any graph is computed.
var Register = sync.OnceFunc(func() {
	if Supported() {
		C.qk_register()
	}
})
