package kernel

// #include "graph.h"
import "C"

import (
	"errors"
	"unsafe"
)

// BlockSize and BlockBytes are those of Q8_0: 32 numbers in 34 bytes.
const (
	BlockSize  = 32
	BlockBytes = 34
)

var (
	errSizes   = errors.New("kernel: the sizes of the arrays do not fit together")
	errCompute = errors.New("kernel: ggml could not compute the graph")
)

// MulMat computes w·x as a node of a graph on ggml's CPU backend, which is how models come to the kernels. It is for
// tests and benchmarks. w holds rows of k numbers as Q8_0, x columns of k numbers; the result has a number for each row,
// column by column. k is a multiple of 32.
func MulMat(w []byte, x []float32, k, threads int) ([]float32, error) {
	rowBytes := k / BlockSize * BlockBytes
	if k <= 0 || k%BlockSize != 0 || len(w) == 0 || len(w)%rowBytes != 0 || len(x) == 0 || len(x)%k != 0 || threads < 1 {
		return nil, errSizes
	}
	rows, columns := len(w)/rowBytes, len(x)/k
	out := make([]float32, rows*columns)
	if !C.qk_mul_mat(unsafe.Pointer(&w[0]), (*C.float)(&x[0]), (*C.float)(&out[0]),
		C.int64_t(k), C.int64_t(rows), C.int64_t(columns), C.int(threads)) {
		return nil, errCompute
	}
	return out, nil
}

// AttentionSizes are those of a node FLASH_ATTN_EXT.
type AttentionSizes struct {
	Key, Value int // numbers of a head's key and value
	Cells      int // of the memory, a multiple of 32
	Tokens     int
	Heads      int // of the queries, a multiple of Groups
	Groups     int // heads of keys and values
	Streams    int // memories side by side, each with Tokens tokens
}

// Attention computes the attention of q over k and v, as MulMat does a product. Arrays are laid out as llama.cpp's
// memory is: q [stream][token][head][key], k and v [stream][cell][group][key or value] and mask [stream][token][cell]
// in half precision, the mask 0 or -infinity; the result [stream][token][head][value].
func Attention(n AttentionSizes, q []float32, k, v, mask []uint16, scale float32, threads int) ([]float32, error) {
	for _, size := range []int{n.Key, n.Value, n.Cells, n.Tokens, n.Heads, n.Groups, n.Streams, threads} {
		if size < 1 {
			return nil, errSizes
		}
	}
	if n.Heads%n.Groups != 0 || n.Cells%32 != 0 || len(q) != n.Streams*n.Tokens*n.Heads*n.Key || len(mask) != n.Streams*n.Tokens*n.Cells ||
		len(k) != n.Streams*n.Cells*n.Groups*n.Key || len(v) != n.Streams*n.Cells*n.Groups*n.Value {
		return nil, errSizes
	}
	out := make([]float32, n.Streams*n.Tokens*n.Heads*n.Value)
	half := func(x []uint16) *C.uint16_t { return (*C.uint16_t)(&x[0]) }
	if !C.qk_attention((*C.float)(&q[0]), half(k), half(v), half(mask), C.float(scale), (*C.float)(&out[0]), C.struct_qk_attention_sizes{
		key: C.int64_t(n.Key), value: C.int64_t(n.Value), cells: C.int64_t(n.Cells), tokens: C.int64_t(n.Tokens),
		heads: C.int64_t(n.Heads), groups: C.int64_t(n.Groups), streams: C.int64_t(n.Streams),
	}, C.int(threads)) {
		return nil, errCompute
	}
	return out, nil
}
