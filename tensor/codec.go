package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
	"unsafe"
)

// Decode converts stored elements to float32 in dst. src must be the bytes of exactly len(dst) elements, whole blocks.
// F64 is rounded to nearest; all other types convert as ggml's dequantize_row_* do, bit for bit.
func Decode(dst []float32, src []byte, t DType) error {
	if err := checkSizes(len(dst), len(src), t); err != nil {
		return fmt.Errorf("decode %v: %w", t, err)
	}
	switch t {
	case F32:
		if native := floatBytes(dst); native != nil {
			copy(native, src)
			return nil
		}
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			h := uint16(src[0]) | uint16(src[1])<<8
			src = src[2:]
			if h&0x7fff-0x400 < 0x7800 { // a normal number, as nearly all are
				dst[i] = math.Float32frombits(uint32(h&0x8000)<<16 | (uint32(h&0x7fff)<<13 + 0x38000000))
			} else {
				dst[i] = F16ToF32(h)
			}
		}
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(uint16(src[0]) | uint16(src[1])<<8)
			src = src[2:]
		}
	case F64:
		for i := range dst {
			dst[i] = float32(math.Float64frombits(binary.LittleEndian.Uint64(src[8*i:])))
		}
	default:
		decode := blockDecoders[t]
		if decode == nil {
			return fmt.Errorf("decode %v: not supported; types that can be read as numbers: %s", t, codecNames(DType.CanDecode))
		}
		elems, size := t.BlockLen(), t.BlockBytes()
		for len(dst) > 0 {
			decode(dst[:elems:elems], src[:size:size])
			dst, src = dst[elems:], src[size:]
		}
	}
	return nil
}

// Encode converts float32 to the stored form in dst, which must have the bytes of exactly len(src) elements, whole
// blocks. Rounding is ggml's reference quantisers', bit for bit (quantize_row_*_ref), without fused multiply-add.
func Encode(dst []byte, src []float32, t DType) error {
	if err := checkSizes(len(src), len(dst), t); err != nil {
		return fmt.Errorf("encode %v: %w", t, err)
	}
	switch t {
	case F32:
		if native := floatBytes(src); native != nil {
			copy(dst, native)
			return nil
		}
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for _, v := range src {
			bits := math.Float32bits(v)
			mag := bits & 0x7fffffff
			var h uint16
			if mag-0x38800000 < 0x477ff000-0x38800000 { // a normal number, as nearly all are
				h = uint16(bits>>16&0x8000 | (mag+0xfff+mag>>13&1-0x38000000)>>13)
			} else {
				h = F32ToF16(v)
			}
			dst[0], dst[1] = byte(h), byte(h>>8)
			dst = dst[2:]
		}
	case BF16:
		for _, v := range src {
			h := F32ToBF16(v)
			dst[0], dst[1] = byte(h), byte(h>>8)
			dst = dst[2:]
		}
	default:
		encode := blockEncoders[t]
		if encode == nil {
			return fmt.Errorf("encode %v: not supported; types that can be written: %s", t, codecNames(DType.CanEncode))
		}
		elems, size := t.BlockLen(), t.BlockBytes()
		for len(src) > 0 {
			encode(dst[:size:size], src[:elems:elems])
			dst, src = dst[size:], src[elems:]
		}
	}
	return nil
}

// floatBytes returns the memory of x, which is its stored form on little-endian machines; nil on others.
func floatBytes(x []float32) []byte {
	if len(x) == 0 || binary.NativeEndian.Uint16([]byte{1, 0}) != 1 {
		return nil
	}
	return unsafe.Slice((*byte)(unsafe.Pointer(&x[0])), 4*len(x))
}

func checkSizes(elems, size int, t DType) error {
	want, err := t.RowBytes(int64(elems))
	if err == nil && want != int64(size) {
		err = fmt.Errorf("%d elements take %d bytes, not %d", elems, want, size)
	}
	return err
}

func codecNames(can func(DType) bool) string {
	names := ""
	for t := Invalid + 1; t < numDTypes; t++ {
		if can(t) {
			names += " " + t.String()
		}
	}
	return names[1:]
}
