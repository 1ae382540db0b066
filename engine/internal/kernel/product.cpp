#include "product.h"

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

bool qk_mul_mat(const void *w, const float *x, float *out, int64_t k, int64_t rows, int64_t columns, int threads) {
	bool ok = false;
	ggml_backend_t cpu = ggml_backend_cpu_init();
	ggml_context *ctx = ggml_init({8 * ggml_tensor_overhead() + ggml_graph_overhead(), nullptr, true});
	if (cpu && ctx) {
		ggml_tensor *weights = ggml_new_tensor_2d(ctx, GGML_TYPE_Q8_0, k, rows);
		ggml_tensor *input = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, k, columns);
		ggml_tensor *product = ggml_mul_mat(ctx, weights, input);
		ggml_cgraph *graph = ggml_new_graph(ctx);
		ggml_build_forward_expand(graph, product);
		ggml_backend_cpu_set_n_threads(cpu, threads);
		if (ggml_backend_buffer_t memory = ggml_backend_alloc_ctx_tensors(ctx, cpu)) {
			ggml_backend_tensor_set(weights, w, 0, ggml_nbytes(weights));
			ggml_backend_tensor_set(input, x, 0, ggml_nbytes(input));
			ok = ggml_backend_graph_compute(cpu, graph) == GGML_STATUS_SUCCESS;
			if (ok) ggml_backend_tensor_get(product, out, 0, ggml_nbytes(product));
			ggml_backend_buffer_free(memory);
		}
	}
	if (ctx) ggml_free(ctx);
	if (cpu) ggml_backend_free(cpu);
	return ok;
}
