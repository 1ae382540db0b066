#include "cpu.h"

#ifdef QUERN_X86

namespace {

// buffer_type is how ggml's CPU backend is told of kernels beside its own. No memory is ever of this type.
struct buffer_type : ggml::cpu::extra_buffer_type {
	bool supports_op(ggml_backend_dev_t, const ggml_tensor *) override { return false; }
	ggml::cpu::tensor_traits *get_tensor_traits(const ggml_tensor *op) override {
		if (auto *kernel = product_kernel(op)) return kernel;
		return attention_kernel(op);
	}
};

} // namespace

bool qk_supported(void) {
	return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
		__builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512vnni");
}

void qk_register(void) {
	static ggml_backend_buffer_type type = {
		{
			[](ggml_backend_buffer_type_t) { return "QUERN"; },
			[](ggml_backend_buffer_type_t, size_t) { return ggml_backend_buffer_t(nullptr); },
			[](ggml_backend_buffer_type_t) { return size_t(64); },
			nullptr, nullptr, nullptr,
		},
		ggml_backend_reg_dev_get(ggml_backend_cpu_reg(), 0),
		new buffer_type,
	};
	ggml_backend_cpu_get_extra_buffer_types().push_back(&type);
}

#else

bool qk_supported(void) { return false; }
void qk_register(void) {}

#endif
