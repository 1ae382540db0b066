//go:build cuda

package llama

// The driver (libcuda) is not linked: libcudart finds it at run time, and without one the binary runs on the CPU.
// Where the toolkit lies is said by the build: CGO_LDFLAGS with -L for its lib folder, and -Wl,-rpath where libcublas
// is not in a standard place.

// #cgo LDFLAGS: -lquern-jinja -lllama -lggml -lggml-cuda -lggml-cpu -lggml-base
// #cgo LDFLAGS: -lcudart_static -lcublas -lcublasLt -lstdc++ -lm -lpthread -ldl -lrt
import "C"

func init() { compiledBackends = append(compiledBackends, "CUDA") }
