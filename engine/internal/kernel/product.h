#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// qk_mul_mat computes one product as a graph of one node; see MulMat in kernel.go. False: out of memory.
bool qk_mul_mat(const void *w, const float *x, float *out, int64_t k, int64_t rows, int64_t columns, int threads);

#ifdef __cplusplus
}
#endif
