#include "graph.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

namespace {

// graph is a context for the tensors of a small graph, and the backend that computes it.
struct graph {
	ggml_backend_t cpu = ggml_backend_cpu_init();
	ggml_context *ctx = ggml_init({32 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true});
	ggml_backend_buffer_t memory = nullptr;

	~graph() {
		if (memory) ggml_backend_buffer_free(memory);
		if (ctx) ggml_free(ctx);
		if (cpu) ggml_backend_free(cpu);
	}
	bool ok() const { return cpu && ctx; }
	bool allocate() { return (memory = ggml_backend_alloc_ctx_tensors(ctx, cpu)) != nullptr; }

	bool compute(ggml_tensor *result, int threads, void *out) {
		ggml_cgraph *nodes = ggml_new_graph(ctx);
		ggml_build_forward_expand(nodes, result);
		ggml_backend_cpu_set_n_threads(cpu, threads);
		if (ggml_backend_graph_compute(cpu, nodes) != GGML_STATUS_SUCCESS) return false;
		ggml_backend_tensor_get(result, out, 0, ggml_nbytes(result));
		return true;
	}
};

void set(ggml_tensor *t, const void *data) { ggml_backend_tensor_set(t, data, 0, ggml_nbytes(t)); }

} // namespace

bool qk_mul_mat(const void *w, const float *x, float *out, int64_t k, int64_t rows, int64_t columns, int threads) {
	graph g;
	if (!g.ok()) return false;
	ggml_tensor *weights = ggml_new_tensor_2d(g.ctx, GGML_TYPE_Q8_0, k, rows);
	ggml_tensor *input = ggml_new_tensor_2d(g.ctx, GGML_TYPE_F32, k, columns);
	ggml_tensor *product = ggml_mul_mat(g.ctx, weights, input);
	if (!g.allocate()) return false;
	set(weights, w);
	set(input, x);
	return g.compute(product, threads, out);
}

bool qk_attention(const float *q, const uint16_t *k, const uint16_t *v, const uint16_t *mask, float scale, float *out,
	qk_attention_sizes n, int threads) {
	graph g;
	if (!g.ok()) return false;
	// Heads lie within tokens and cells, as in llama.cpp's memory.
	ggml_tensor *queries = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F32, n.key, n.heads, n.tokens, n.streams);
	ggml_tensor *keys = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, n.key, n.groups, n.cells, n.streams);
	ggml_tensor *values = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, n.value, n.groups, n.cells, n.streams);
	ggml_tensor *sees = ggml_new_tensor_4d(g.ctx, GGML_TYPE_F16, n.cells, n.tokens, 1, n.streams);
	const auto turned = [&](ggml_tensor *t) { return ggml_permute(g.ctx, t, 0, 2, 1, 3); };
	ggml_tensor *result = ggml_flash_attn_ext(g.ctx, turned(queries), turned(keys), turned(values), sees, scale, 0, 0);
	if (!g.allocate()) return false;
	set(queries, q);
	set(keys, k);
	set(values, v);
	set(sees, mask);
	return g.compute(result, threads, out);
}
