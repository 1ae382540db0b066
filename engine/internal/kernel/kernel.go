// Package kernel holds matrix products of our own for processors where ggml's take several times as long as they could.
// They are handed to ggml's CPU backend, which asks for them node by node; everything else in a graph stays ggml's.
//
// One there is: Q8_0 weights on x86-64 with AVX512-VNNI, for four columns of activations or more. That is what reading
// prompts and decoding several lanes at once consist of.
package kernel

// #cgo CPPFLAGS: -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/include -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/src
// #cgo CXXFLAGS: -std=c++17 -O2 -DNDEBUG -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/src/ggml-cpu
// #cgo LDFLAGS: -L${SRCDIR}/../../../third_party/llama.cpp/lib -lggml-cpu -lggml-base
// #cgo linux LDFLAGS: -lstdc++ -lm -lpthread
// #cgo darwin LDFLAGS: -lc++ -framework Accelerate -framework Foundation
// #include <stdlib.h>
// #include "q8_0.h"
// #include "product.h"
import "C"

import (
	"errors"
	"sync"
	"unsafe"
)

// Supported says whether this processor has what a kernel needs.
func Supported() bool { return bool(C.qk_q8_0_supported()) }

// Register hands the kernels to ggml where the processor has what they need. Only the first call does something; it must
// come before any graph is computed.
var Register = sync.OnceFunc(func() {
	if Supported() {
		C.qk_q8_0_register()
	}
})

// BlockSize and BlockBytes are those of Q8_0: 32 numbers in 34 bytes.
const (
	BlockSize  = 32
	BlockBytes = 34
)

// MulMat computes w·x as a node of a graph on ggml's CPU backend, which is how models come to the kernels. It is for
// tests and benchmarks. w holds rows of k numbers as Q8_0, x columns of k numbers; the result has a number for each row,
// column by column. k is a multiple of 32.
func MulMat(w []byte, x []float32, k, threads int) ([]float32, error) {
	rowBytes := k / BlockSize * BlockBytes
	if k <= 0 || k%BlockSize != 0 || len(w) == 0 || len(w)%rowBytes != 0 || len(x) == 0 || len(x)%k != 0 || threads < 1 {
		return nil, errors.New("MulMat: w and x must hold whole rows and columns of k numbers, k a multiple of 32")
	}
	rows, columns := len(w)/rowBytes, len(x)/k
	out := make([]float32, rows*columns)
	ok := C.qk_mul_mat(unsafe.Pointer(&w[0]), (*C.float)(&x[0]), (*C.float)(&out[0]),
		C.int64_t(k), C.int64_t(rows), C.int64_t(columns), C.int(threads))
	if !ok {
		return nil, errors.New("MulMat: ggml could not compute the product")
	}
	return out, nil
}
