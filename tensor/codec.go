package tensor

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Decode converts stored elements to float32 in dst. src must be the bytes of exactly len(dst) elements, whole blocks.
// F64 is rounded to nearest; all other types convert as ggml's dequantize_row_* do, bit for bit.
func Decode(dst []float32, src []byte, t DType) error {
	if err := checkSizes(len(dst), len(src), t); err != nil {
		return fmt.Errorf("decode %v: %w", t, err)
	}
	switch t {
	case F32:
		for i := range dst {
			dst[i] = math.Float32frombits(binary.LittleEndian.Uint32(src[4*i:]))
		}
	case F16:
		for i := range dst {
			dst[i] = F16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
		}
	case BF16:
		for i := range dst {
			dst[i] = BF16ToF32(binary.LittleEndian.Uint16(src[2*i:]))
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
		for i, v := range src {
			binary.LittleEndian.PutUint32(dst[4*i:], math.Float32bits(v))
		}
	case F16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToF16(v))
		}
	case BF16:
		for i, v := range src {
			binary.LittleEndian.PutUint16(dst[2*i:], F32ToBF16(v))
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
