#pragma once

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

// Graphs of one node on ggml's CPU backend, which is how models come to the kernels. False: out of memory.

// qk_mul_mat: see MulMat in graph.go.
bool qk_mul_mat(const void *w, const float *x, float *out, int64_t k, int64_t rows, int64_t columns, int threads);

struct qk_attention_sizes {
	int64_t key, value, cells, tokens, heads, groups, streams;
};

// qk_attention: see Attention in graph.go.
bool qk_attention(const float *q, const uint16_t *k, const uint16_t *v, const uint16_t *mask, float scale, float *out,
	struct qk_attention_sizes n, int threads);

#ifdef __cplusplus
}
#endif
