package gguf

import "quern/tensor"

// ggmlTypes maps the tensor types of a file (ggml.h: enum ggml_type) to ours. Numbers that are not here were removed
// from the format or never given out.
var ggmlTypes = map[uint32]tensor.DType{
	0: tensor.F32, 1: tensor.F16, 2: tensor.Q4_0, 3: tensor.Q4_1, 6: tensor.Q5_0, 7: tensor.Q5_1, 8: tensor.Q8_0,
	9: tensor.Q8_1, 10: tensor.Q2_K, 11: tensor.Q3_K, 12: tensor.Q4_K, 13: tensor.Q5_K, 14: tensor.Q6_K, 15: tensor.Q8_K,
	16: tensor.IQ2_XXS, 17: tensor.IQ2_XS, 18: tensor.IQ3_XXS, 19: tensor.IQ1_S, 20: tensor.IQ4_NL, 21: tensor.IQ3_S,
	22: tensor.IQ2_S, 23: tensor.IQ4_XS, 24: tensor.I8, 25: tensor.I16, 26: tensor.I32, 27: tensor.I64, 28: tensor.F64,
	29: tensor.IQ1_M, 30: tensor.BF16, 34: tensor.TQ1_0, 35: tensor.TQ2_0, 39: tensor.MXFP4, 40: tensor.NVFP4,
	41: tensor.Q1_0, 42: tensor.Q2_0,
}

var ggmlNumbers = func() map[tensor.DType]uint32 {
	m := map[tensor.DType]uint32{}
	for n, t := range ggmlTypes {
		m[t] = n
	}
	return m
}()
