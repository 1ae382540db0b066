package llama

// The libraries that scripts/llama.sh builds, in the order that a linker wants: each before what it uses.

// #cgo CPPFLAGS: -I${SRCDIR}/../../../third_party/llama.cpp/src/include -I${SRCDIR}/../../../third_party/llama.cpp/src/ggml/include
// #cgo CXXFLAGS: -std=c++17 -O2 -DNDEBUG -I${SRCDIR}/../../../third_party/llama.cpp/src/common -I${SRCDIR}/../../../third_party/llama.cpp/src/vendor
// #cgo LDFLAGS: -L${SRCDIR}/../../../third_party/llama.cpp/lib
// #cgo !cuda LDFLAGS: -lquern-jinja -lllama -lggml -lggml-cpu -lggml-base
// #cgo linux,!cuda LDFLAGS: -lstdc++ -lm -lpthread
// #cgo darwin LDFLAGS: -lggml-metal -lggml-blas -lc++ -framework Accelerate -framework Foundation -framework Metal -framework MetalKit
import "C"
