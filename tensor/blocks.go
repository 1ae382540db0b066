package tensor

import (
	"encoding/binary"
	"math"
)

// The simple block types: 32 elements with one scale d (half precision), some with a minimum m. Bits of the quants
// lie as in ggml-common.h: low halves of the bytes hold elements 0-15, high halves 16-31; fifth bits apart in a word.

var blockDecoders = [numDTypes]func(dst []float32, src []byte){
	Q4_0: decodeQ4_0, Q4_1: decodeQ4_1, Q5_0: decodeQ5_0, Q5_1: decodeQ5_1, Q8_0: decodeQ8_0,
	Q2_K: decodeQ2_K, Q3_K: decodeQ3_K, Q4_K: decodeQ4_K, Q5_K: decodeQ5_K, Q6_K: decodeQ6_K,
}

var blockEncoders = [numDTypes]func(dst []byte, src []float32){
	Q4_0: encodeQ4_0, Q4_1: encodeQ4_1, Q5_0: encodeQ5_0, Q5_1: encodeQ5_1, Q8_0: encodeQ8_0,
}

func half(src []byte) float32 { return F16ToF32(binary.LittleEndian.Uint16(src)) }

func putHalf(dst []byte, f float32) { binary.LittleEndian.PutUint16(dst, F32ToF16(f)) }

func decodeQ4_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:18] {
		dst[j] = float32(int(q&0xf)-8) * d
		dst[j+16] = float32(int(q>>4)-8) * d
	}
}

func decodeQ4_1(dst []float32, src []byte) {
	d, m := half(src), half(src[2:])
	for j, q := range src[4:20] {
		dst[j] = float32(float32(q&0xf)*d) + m
		dst[j+16] = float32(float32(q>>4)*d) + m
	}
}

func decodeQ5_0(dst []float32, src []byte) {
	d, high := half(src), binary.LittleEndian.Uint32(src[2:])
	for j, q := range src[6:22] {
		dst[j] = float32(int(q&0xf|fifth(high, j))-16) * d
		dst[j+16] = float32(int(q>>4|fifth(high, j+16))-16) * d
	}
}

func decodeQ5_1(dst []float32, src []byte) {
	d, m, high := half(src), half(src[2:]), binary.LittleEndian.Uint32(src[4:])
	for j, q := range src[8:24] {
		dst[j] = float32(float32(q&0xf|fifth(high, j))*d) + m
		dst[j+16] = float32(float32(q>>4|fifth(high, j+16))*d) + m
	}
}

// fifth returns bit j of high at the place of a quant's fifth bit.
func fifth(high uint32, j int) byte { return byte(high>>j&1) << 4 }

func decodeQ8_0(dst []float32, src []byte) {
	d := half(src)
	for j, q := range src[2:34] {
		dst[j] = float32(int8(q)) * d
	}
}

func encodeQ8_0(dst []byte, src []float32) {
	var topBits uint32 // of positive numbers, which are in the order of their bits
	for _, v := range src {
		topBits = max(topBits, math.Float32bits(v)&^(1<<31))
	}
	top := math.Float32frombits(topBits)
	d := top / 127
	inv := inverse(d)
	putHalf(dst, d)
	quants := dst[2 : 2+len(src)]
	if !(top*inv < 128) { // not finite, or too small for a finite inverse
		for j, v := range src {
			quants[j] = byte(toInt8(round(v * inv)))
		}
		return
	}
	for j, v := range src {
		scaled := v * inv
		half := math.Float64frombits(0x3fe0000000000000 | uint64(math.Float32bits(scaled)>>31)<<63) // 0.5 with its sign
		quants[j] = byte(int32(float64(scaled) + half))                                             // round; the sum is exact
	}
}

func encodeQ4_0(dst []byte, src []float32) {
	d := extreme(src) / -8
	inv := inverse(d)
	putHalf(dst, d)
	quant := func(v float32) byte { return byte(min(15, toInt8(float32(v*inv)+8.5))) }
	for j := range 16 {
		dst[2+j] = quant(src[j]) | quant(src[j+16])<<4
	}
}

func encodeQ5_0(dst []byte, src []float32) {
	d := extreme(src) / -16
	inv := inverse(d)
	putHalf(dst, d)
	quant := func(v float32) byte { return byte(min(31, toInt8(float32(v*inv)+16.5))) }
	putQ5(dst[2:], src, quant)
}

func encodeQ4_1(dst []byte, src []float32) {
	low, high := span(src)
	d := (high - low) / 15
	inv := inverse(d)
	putHalf(dst, d)
	putHalf(dst[2:], low)
	quant := func(v float32) byte { return byte(min(15, toInt8(float32((v-low)*inv)+0.5))) }
	for j := range 16 {
		dst[4+j] = quant(src[j]) | quant(src[j+16])<<4
	}
}

func encodeQ5_1(dst []byte, src []float32) {
	low, high := span(src)
	d := (high - low) / 31
	inv := inverse(d)
	putHalf(dst, d)
	putHalf(dst[2:], low)
	putQ5(dst[4:], src, func(v float32) byte { return byte(toInt8(float32((v-low)*inv) + 0.5)) })
}

// putQ5 writes the word of fifth bits and the 16 bytes of low bits.
func putQ5(dst []byte, src []float32, quant func(float32) byte) {
	var high uint32
	for j := range 16 {
		a, b := quant(src[j]), quant(src[j+16])
		dst[4+j] = a&0xf | b<<4
		high |= uint32(a>>4&1)<<j | uint32(b>>4&1)<<(j+16)
	}
	binary.LittleEndian.PutUint32(dst, high)
}

// extreme returns the element with the largest magnitude, the first of equals.
func extreme(src []float32) float32 {
	var top, at float32
	for _, v := range src {
		if a := abs(v); top < a {
			top, at = a, v
		}
	}
	return at
}

func span(src []float32) (low, high float32) {
	low, high = math.MaxFloat32, -math.MaxFloat32
	for _, v := range src {
		if v < low {
			low = v
		}
		if v > high {
			high = v
		}
	}
	return low, high
}

func abs(v float32) float32 { return math.Float32frombits(math.Float32bits(v) &^ (1 << 31)) }

func inverse(d float32) float32 {
	if d == 0 {
		return 0
	}
	return 1 / d
}

// round rounds halves away from zero, as C's roundf. The sum is exact in float64.
func round(v float32) float32 {
	return float32(math.Trunc(float64(v) + math.Copysign(0.5, float64(v))))
}

// toInt8 truncates as the compiled C does on x86-64: through int32, where what does not fit leaves a zero byte. It
// happens only where the scale is so small that its inverse is infinite, or the input is not finite.
func toInt8(v float32) int8 {
	if v > -0x1p31 && v < 0x1p31 {
		return int8(int32(v))
	}
	return 0
}
