package tensor

import "math"

// F16ToF32 converts IEEE half precision bits to float32, exactly (ggml-impl.h: ggml_compute_fp16_to_fp32).
func F16ToF32(h uint16) float32 {
	sign := uint32(h&0x8000) << 16
	exp := uint32(h>>10) & 0x1f
	frac := uint32(h & 0x3ff)
	switch {
	case exp == 0x1f && frac != 0: // a NaN; a signalling one becomes quiet
		return math.Float32frombits(sign | 0x7fc00000 | frac<<13)
	case exp == 0x1f:
		return math.Float32frombits(sign | 0x7f800000)
	case exp != 0:
		return math.Float32frombits(sign | (exp+112)<<23 | frac<<13)
	default: // zero or subnormal: frac units of 2^-24, exact in float32
		f := float32(frac) * 0x1p-24
		return math.Float32frombits(sign | math.Float32bits(f))
	}
}

// F32ToF16 rounds to the nearest half precision value, ties to even; what is too large becomes infinite and every NaN
// becomes 0x7e00 with its sign (ggml-impl.h: ggml_compute_fp32_to_fp16).
func F32ToF16(f float32) uint16 {
	bits := math.Float32bits(f)
	sign := uint16(bits >> 16 & 0x8000)
	mag := bits & 0x7fffffff
	switch {
	case mag > 0x7f800000:
		return sign | 0x7e00
	case mag >= 0x477ff000: // 65520 and above
		return sign | 0x7c00
	case mag >= 0x38800000: // normal: 2^-14 and above
		mag += 0xfff + mag>>13&1
		return sign | uint16((mag-0x38000000)>>13)
	default: // subnormal: adding 0.5 leaves units of 2^-24 in the low mantissa bits, rounded by the addition
		return sign | uint16(math.Float32bits(math.Float32frombits(mag)+0.5)-0x3f000000)
	}
}

// BF16ToF32 widens bfloat16 bits, exactly.
func BF16ToF32(b uint16) float32 { return math.Float32frombits(uint32(b) << 16) }

// F32ToBF16 rounds to the nearest bfloat16, ties to even; a NaN stays one and becomes quiet
// (ggml-impl.h: ggml_compute_fp32_to_bf16).
func F32ToBF16(f float32) uint16 {
	bits := math.Float32bits(f)
	if bits&0x7fffffff > 0x7f800000 {
		return uint16(bits>>16) | 64
	}
	return uint16((bits + 0x7fff + bits>>16&1) >> 16)
}
