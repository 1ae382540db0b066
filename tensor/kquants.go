package tensor

import "encoding/binary"

// The K-quants: superblocks of 256 elements, whose groups of 16 or 32 have small integer scales (and minima) that
// share a half precision d (and dmin). Layout and order of operations follow ggml-quants.c: dequantize_row_q*_K.
// Every product here is exact in float32, so the results do not depend on fused multiply-add.

func decodeQ2_K(dst []float32, src []byte) {
	scales, q := src[:16], src[16:80]
	d, dmin := half(src[80:]), half(src[82:])
	for n := range 2 { // 128 elements from 32 bytes
		for j := range 4 { // two bits of each byte
			for h := range 2 { // 16 elements with one scale
				sc := scales[n*8+j*2+h]
				dl, ml := d*float32(sc&0xf), dmin*float32(sc>>4)
				out := dst[n*128+j*32+h*16:][:16]
				for l := range out {
					out[l] = float32(dl*float32(q[n*32+h*16+l]>>(2*j)&3)) - ml
				}
			}
		}
	}
}

func decodeQ3_K(dst []float32, src []byte) {
	high, q, packed := src[:32], src[32:96], src[96:108]
	d := half(src[108:])
	scales := unpackQ3Scales(packed)
	for n := range 2 {
		for j := range 4 {
			mask := byte(1) << (n*4 + j)
			for h := range 2 {
				dl := d * float32(int(scales[n*8+j*2+h])-32)
				out := dst[n*128+j*32+h*16:][:16]
				for l := range out {
					v := int(q[n*32+h*16+l] >> (2 * j) & 3)
					if high[h*16+l]&mask == 0 {
						v -= 4
					}
					out[l] = dl * float32(v)
				}
			}
		}
	}
}

// unpackQ3Scales spreads sixteen 6-bit scales out of 12 bytes: low four bits in bytes 0-7, high two bits in 8-11.
func unpackQ3Scales(packed []byte) (scales [16]byte) {
	for i := range 16 {
		low := packed[i%8] >> (i / 8 * 4) & 0xf
		high := packed[8+i%4] >> (i / 4 * 2) & 3
		scales[i] = low | high<<4
	}
	return scales
}

func decodeQ4_K(dst []float32, src []byte) {
	d, dmin := half(src), half(src[2:])
	scales, q := src[4:16], src[16:144]
	for j := range 4 { // 64 elements from 32 bytes
		for h := range 2 { // low, high half of each byte
			sc, m := scaleMin(scales, j*2+h)
			dl, ml := d*float32(sc), dmin*float32(m)
			out := dst[j*64+h*32:][:32]
			for l := range out {
				out[l] = float32(dl*float32(q[j*32+l]>>(4*h)&0xf)) - ml
			}
		}
	}
}

func decodeQ5_K(dst []float32, src []byte) {
	d, dmin := half(src), half(src[2:])
	scales, high, q := src[4:16], src[16:48], src[48:176]
	for j := range 4 {
		for h := range 2 {
			sc, m := scaleMin(scales, j*2+h)
			dl, ml := d*float32(sc), dmin*float32(m)
			out := dst[j*64+h*32:][:32]
			for l := range out {
				v := q[j*32+l]>>(4*h)&0xf | high[l]>>(j*2+h)&1<<4
				out[l] = float32(dl*float32(v)) - ml
			}
		}
	}
}

// scaleMin unpacks the 6-bit scale and minimum of group j (ggml-quants.c: get_scale_min_k4).
func scaleMin(packed []byte, j int) (scale, m byte) {
	if j < 4 {
		return packed[j] & 63, packed[j+4] & 63
	}
	return packed[j+4]&0xf | packed[j-4]>>6<<4, packed[j+4]>>4 | packed[j]>>6<<4
}

func decodeQ6_K(dst []float32, src []byte) {
	low, high, scales := src[:128], src[128:192], src[192:208]
	d := F16ToF32(binary.LittleEndian.Uint16(src[208:]))
	for n := range 2 { // 128 elements
		for k := range 4 { // 32 elements: which half of low, which two bits of high
			for l := range 32 {
				v := low[n*64+k%2*32+l]>>(k/2*4)&0xf | high[n*32+l]>>(2*k)&3<<4
				sc := int8(scales[n*8+k*2+l/16])
				dst[n*128+k*32+l] = float32(d*float32(sc)) * float32(int(v)-32)
			}
		}
	}
}
