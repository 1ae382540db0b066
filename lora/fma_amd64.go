package lora

import "golang.org/x/sys/cpu"

// hasAVX2 also stands for the half precision conversions: every processor with FMA has them.
var hasAVX2 = cpu.X86.HasAVX2 && cpu.X86.HasFMA

//go:noescape
func deltaRowsAVX2(dst *float32, stride int, b *float32, rank int, panels *float32, n int, scale float32)

//go:noescape
func addBF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats)

//go:noescape
func addF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats)

//go:noescape
func addF32AVX2(dst, base *byte, delta *float32, n int, s *laneStats)
