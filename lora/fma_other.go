//go:build !amd64

package lora

var hasAVX2 = false

func deltaRowsAVX2(dst *float32, stride int, b *float32, rank int, panels *float32, n int, scale float32) {
	panic("not reached")
}

func addBF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats) { panic("not reached") }
func addF16AVX2(dst, base *byte, delta *float32, n int, s *laneStats)  { panic("not reached") }
func addF32AVX2(dst, base *byte, delta *float32, n int, s *laneStats)  { panic("not reached") }
