// Package tensor holds what every weight format shares: element types with their sizes, shapes with checked
// arithmetic, and the codecs between stored bytes and float32.
//
// Shapes are slowest-varying first ([out, in] for a linear layer), as in safetensors and PyTorch. All stored bytes are
// little-endian. The package has no state and everything in it may be used from several goroutines at once.
package tensor

import (
	"errors"
	"fmt"
	"math/bits"
	"strings"
)

// DType is the type in which a tensor's elements are stored, of GGUF or of safetensors.
type DType uint8

// The element types. The block types are ggml's; U16 to C64 exist in safetensors only.
const (
	Invalid DType = iota
	F32
	F16
	BF16
	F64
	I8
	I16
	I32
	I64
	Q4_0
	Q4_1
	Q5_0
	Q5_1
	Q8_0
	Q8_1
	Q2_K
	Q3_K
	Q4_K
	Q5_K
	Q6_K
	Q8_K
	IQ1_S
	IQ1_M
	IQ2_XXS
	IQ2_XS
	IQ2_S
	IQ3_XXS
	IQ3_S
	IQ4_NL
	IQ4_XS
	TQ1_0
	TQ2_0
	MXFP4
	NVFP4
	Q1_0
	Q2_0
	Bool
	U8
	U16
	U32
	U64
	F8_E4M3
	F8_E5M2
	F8_E8M0
	C64
	numDTypes
)

// layouts gives each type's name and the shape of its storage: elements per block and bytes per block
// (ggml.c: type_traits, ggml-common.h: the block structs).
var layouts = [numDTypes]struct {
	name       string
	elems      int
	bytes      int
	isQuant    bool
	decodable  bool
	encodeable bool
}{
	F32:     {"F32", 1, 4, false, true, true},
	F16:     {"F16", 1, 2, false, true, true},
	BF16:    {"BF16", 1, 2, false, true, true},
	F64:     {"F64", 1, 8, false, true, false},
	I8:      {"I8", 1, 1, false, false, false},
	I16:     {"I16", 1, 2, false, false, false},
	I32:     {"I32", 1, 4, false, false, false},
	I64:     {"I64", 1, 8, false, false, false},
	Q4_0:    {"Q4_0", 32, 18, true, true, true},
	Q4_1:    {"Q4_1", 32, 20, true, true, true},
	Q5_0:    {"Q5_0", 32, 22, true, true, true},
	Q5_1:    {"Q5_1", 32, 24, true, true, true},
	Q8_0:    {"Q8_0", 32, 34, true, true, true},
	Q8_1:    {"Q8_1", 32, 36, true, false, false},
	Q2_K:    {"Q2_K", 256, 84, true, true, false},
	Q3_K:    {"Q3_K", 256, 110, true, true, false},
	Q4_K:    {"Q4_K", 256, 144, true, true, false},
	Q5_K:    {"Q5_K", 256, 176, true, true, false},
	Q6_K:    {"Q6_K", 256, 210, true, true, false},
	Q8_K:    {"Q8_K", 256, 292, true, false, false},
	IQ1_S:   {"IQ1_S", 256, 50, true, false, false},
	IQ1_M:   {"IQ1_M", 256, 56, true, false, false},
	IQ2_XXS: {"IQ2_XXS", 256, 66, true, false, false},
	IQ2_XS:  {"IQ2_XS", 256, 74, true, false, false},
	IQ2_S:   {"IQ2_S", 256, 82, true, false, false},
	IQ3_XXS: {"IQ3_XXS", 256, 98, true, false, false},
	IQ3_S:   {"IQ3_S", 256, 110, true, false, false},
	IQ4_NL:  {"IQ4_NL", 32, 18, true, false, false},
	IQ4_XS:  {"IQ4_XS", 256, 136, true, false, false},
	TQ1_0:   {"TQ1_0", 256, 54, true, false, false},
	TQ2_0:   {"TQ2_0", 256, 66, true, false, false},
	MXFP4:   {"MXFP4", 32, 17, true, false, false},
	NVFP4:   {"NVFP4", 64, 36, true, false, false},
	Q1_0:    {"Q1_0", 128, 18, true, false, false},
	Q2_0:    {"Q2_0", 64, 18, true, false, false},
	Bool:    {"BOOL", 1, 1, false, false, false},
	U8:      {"U8", 1, 1, false, false, false},
	U16:     {"U16", 1, 2, false, false, false},
	U32:     {"U32", 1, 4, false, false, false},
	U64:     {"U64", 1, 8, false, false, false},
	F8_E4M3: {"F8_E4M3", 1, 1, false, false, false},
	F8_E5M2: {"F8_E5M2", 1, 1, false, false, false},
	F8_E8M0: {"F8_E8M0", 1, 1, false, false, false},
	C64:     {"C64", 1, 8, false, false, false},
}

// ErrOverflow is what a size computation returns when the result does not fit in 63 bits.
var ErrOverflow = errors.New("size does not fit in 63 bits")

// String returns the type's name as GGUF tools and safetensors spell it: "F32", "Q4_K".
func (t DType) String() string {
	if t.valid() {
		return layouts[t].name
	}
	return fmt.Sprintf("DType(%d)", uint8(t))
}

// ParseDType reads a type's name in any case.
func ParseDType(name string) (DType, error) {
	for t := Invalid + 1; t < numDTypes; t++ {
		if strings.EqualFold(layouts[t].name, name) {
			return t, nil
		}
	}
	return Invalid, fmt.Errorf("unknown tensor type %q", name)
}

func (t DType) valid() bool { return t > Invalid && t < numDTypes }

// BlockLen returns how many elements one block holds: 1 for plain types.
func (t DType) BlockLen() int { return layouts[t].elems }

// BlockBytes returns how many bytes one block takes.
func (t DType) BlockBytes() int { return layouts[t].bytes }

// Quantized tells whether elements are stored in blocks with a common scale.
func (t DType) Quantized() bool { return layouts[t].isQuant }

// CanDecode tells whether Decode knows the type.
func (t DType) CanDecode() bool { return layouts[t].decodable }

// CanEncode tells whether Encode knows the type.
func (t DType) CanEncode() bool { return layouts[t].encodeable }

// RowBytes returns the bytes of n consecutive elements; n must be a multiple of BlockLen.
func (t DType) RowBytes(n int64) (int64, error) {
	if !t.valid() {
		return 0, fmt.Errorf("unknown tensor type %v", t)
	}
	block := int64(t.BlockLen())
	if n < 0 || n%block != 0 {
		return 0, fmt.Errorf("%d elements are not a whole number of %v blocks of %d", n, t, block)
	}
	return mul(n/block, int64(t.BlockBytes()))
}

// Bytes returns the storage size of a tensor of this type. The last dimension must be a multiple of BlockLen.
func (t DType) Bytes(s Shape) (int64, error) {
	n, err := s.Elements()
	if err != nil {
		return 0, err
	}
	if !t.valid() {
		return 0, fmt.Errorf("unknown tensor type %v", t)
	}
	if s.RowLen()%int64(t.BlockLen()) != 0 {
		return 0, fmt.Errorf("rows of %d elements are not a multiple of the %v block of %d", s.RowLen(), t, t.BlockLen())
	}
	return mul(n/int64(t.BlockLen()), int64(t.BlockBytes()))
}

// mul multiplies two numbers that are not negative.
func mul(a, b int64) (int64, error) {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	if hi != 0 || int64(lo) < 0 {
		return 0, ErrOverflow
	}
	return int64(lo), nil
}
