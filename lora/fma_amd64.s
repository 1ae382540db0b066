#include "textflag.h"

// func deltaRowsAVX2(dst *float32, stride int, b *float32, rank int, panels *float32, n int, scale float32)
//
// Four rows of scale · B · A: dst[i][j] for the n panels of 16 columns. Each element is accumulated over the rank in
// ascending order by fused multiply-adds, then multiplied once by scale.
TEXT ·deltaRowsAVX2(SB), NOSPLIT, $0-52
	MOVQ dst+0(FP), DI
	MOVQ stride+8(FP), SI
	MOVQ b+16(FP), AX
	MOVQ rank+24(FP), R10
	MOVQ panels+32(FP), R8
	MOVQ n+40(FP), R9
	VBROADCASTSS scale+48(FP), Y15
	LEAQ (AX)(R10*4), BX
	LEAQ (BX)(R10*4), CX
	LEAQ (CX)(R10*4), DX

panel:
	VXORPS Y0, Y0, Y0
	VXORPS Y1, Y1, Y1
	VXORPS Y2, Y2, Y2
	VXORPS Y3, Y3, Y3
	VXORPS Y4, Y4, Y4
	VXORPS Y5, Y5, Y5
	VXORPS Y6, Y6, Y6
	VXORPS Y7, Y7, Y7
	XORQ R11, R11

rank:
	VMOVUPS (R8), Y8
	VMOVUPS 32(R8), Y9
	VBROADCASTSS (AX)(R11*4), Y10
	VBROADCASTSS (BX)(R11*4), Y11
	VBROADCASTSS (CX)(R11*4), Y12
	VBROADCASTSS (DX)(R11*4), Y13
	VFMADD231PS Y8, Y10, Y0
	VFMADD231PS Y9, Y10, Y1
	VFMADD231PS Y8, Y11, Y2
	VFMADD231PS Y9, Y11, Y3
	VFMADD231PS Y8, Y12, Y4
	VFMADD231PS Y9, Y12, Y5
	VFMADD231PS Y8, Y13, Y6
	VFMADD231PS Y9, Y13, Y7
	ADDQ $64, R8
	INCQ R11
	CMPQ R11, R10
	JLT rank

	VMULPS Y15, Y0, Y0
	VMULPS Y15, Y1, Y1
	VMULPS Y15, Y2, Y2
	VMULPS Y15, Y3, Y3
	VMULPS Y15, Y4, Y4
	VMULPS Y15, Y5, Y5
	VMULPS Y15, Y6, Y6
	VMULPS Y15, Y7, Y7
	LEAQ (DI)(SI*2), R12
	VMOVUPS Y0, (DI)
	VMOVUPS Y1, 32(DI)
	VMOVUPS Y2, (DI)(SI*1)
	VMOVUPS Y3, 32(DI)(SI*1)
	VMOVUPS Y4, (R12)
	VMOVUPS Y5, 32(R12)
	VMOVUPS Y6, (R12)(SI*1)
	VMOVUPS Y7, 32(R12)(SI*1)
	ADDQ $64, DI
	DECQ R9
	JNZ panel
	VZEROUPPER
	RET

// What the adding loops below have in common. Y0 holds eight old elements, Y5 the new ones as stored.
#define STATS \
	VSUBPS Y0, Y5, Y6 \
	VFMADD231PS Y6, Y6, Y10 \
	VFMADD231PS Y0, Y0, Y11 \
	VPCMPEQD Y5, Y0, Y7 \
	VPSUBD Y7, Y12, Y12

#define CLEAR \
	VXORPS Y10, Y10, Y10 \
	VXORPS Y11, Y11, Y11 \
	VXORPS Y12, Y12, Y12

#define STORESTATS \
	VMOVUPS Y10, (R8) \
	VMOVUPS Y11, 32(R8) \
	VMOVDQU Y12, 64(R8) \
	VZEROUPPER

DATA half<>+0(SB)/4, $0x7fff
DATA one<>+0(SB)/4, $1
DATA quiet<>+0(SB)/4, $64
GLOBL half<>(SB), RODATA, $4
GLOBL one<>(SB), RODATA, $4
GLOBL quiet<>(SB), RODATA, $4

// func addBF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats)
TEXT ·addBF16AVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ base+8(FP), SI
	MOVQ delta+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ s+32(FP), R8
	VPBROADCASTD half<>(SB), Y13
	VPBROADCASTD one<>(SB), Y14
	VPBROADCASTD quiet<>(SB), Y15
	CLEAR

bf16:
	VPMOVZXWD (SI), Y0
	VPSLLD $16, Y0, Y0
	VADDPS (DX), Y0, Y1
	VPSRLD $16, Y1, Y2
	VPOR Y15, Y2, Y4
	VPAND Y14, Y2, Y2
	VPADDD Y13, Y2, Y2
	VPADDD Y1, Y2, Y2
	VPSRLD $16, Y2, Y2
	VCMPPS $3, Y1, Y1, Y3
	VBLENDVPS Y3, Y4, Y2, Y2
	VPSLLD $16, Y2, Y5
	STATS
	VPACKUSDW Y2, Y2, Y2
	VPERMQ $8, Y2, Y2
	VMOVDQU X2, (DI)
	ADDQ $16, SI
	ADDQ $16, DI
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ bf16
	STORESTATS
	RET

// func addF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats)
TEXT ·addF16AVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ base+8(FP), SI
	MOVQ delta+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ s+32(FP), R8
	CLEAR

f16:
	VCVTPH2PS (SI), Y0
	VADDPS (DX), Y0, Y1
	VCVTPS2PH $0, Y1, X2
	VMOVDQU X2, (DI)
	VCVTPH2PS X2, Y5
	STATS
	ADDQ $16, SI
	ADDQ $16, DI
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ f16
	STORESTATS
	RET

// func addF32AVX2(dst, base *byte, delta *float32, n int, s *laneStats)
TEXT ·addF32AVX2(SB), NOSPLIT, $0-40
	MOVQ dst+0(FP), DI
	MOVQ base+8(FP), SI
	MOVQ delta+16(FP), DX
	MOVQ n+24(FP), CX
	MOVQ s+32(FP), R8
	CLEAR

f32:
	VMOVUPS (SI), Y0
	VADDPS (DX), Y0, Y5
	VMOVUPS Y5, (DI)
	STATS
	ADDQ $32, SI
	ADDQ $32, DI
	ADDQ $32, DX
	SUBQ $8, CX
	JNZ f32
	STORESTATS
	RET
