// Package ggmltest lets tests call ggml's own codecs, to compare ours with them. Nothing but tests imports it.
package ggmltest

/*
#cgo CFLAGS: -I${SRCDIR}/../../third_party/llama.cpp/src/ggml/include
#cgo LDFLAGS: -L${SRCDIR}/../../third_party/llama.cpp/lib -lggml-base -lstdc++ -lm -lpthread
#include <ggml.h>

static void to_float(int type, const void *x, float *y, int64_t k) {
	ggml_get_type_traits(type)->to_float(x, y, k);
}
*/
import "C"

import "unsafe"

// NumTypes is the end of ggml's type numbers (GGML_TYPE_COUNT).
const NumTypes = C.GGML_TYPE_COUNT

// Type describes a type by its ggml number: name (ggml_type_name), elements and bytes of a block; zero elements for
// numbers that are not in use.
func Type(number int) (name string, elems, bytes int) {
	t := C.enum_ggml_type(number)
	elems = int(C.ggml_blck_size(t))
	if elems > 0 {
		bytes = int(C.ggml_type_size(t))
	}
	return C.GoString(C.ggml_type_name(t)), elems, bytes
}

// Decode converts whole blocks to float32 (to_float of ggml_get_type_traits).
func Decode(number int, dst []float32, src []byte) {
	C.to_float(C.int(number), unsafe.Pointer(&src[0]), (*C.float)(&dst[0]), C.int64_t(len(dst)))
}

// Encode quantises one row without an importance matrix (ggml_quantize_chunk).
func Encode(number int, dst []byte, src []float32) {
	n := C.int64_t(len(src))
	C.ggml_quantize_chunk(C.enum_ggml_type(number), (*C.float)(&src[0]), unsafe.Pointer(&dst[0]), 0, 1, n, nil)
}
