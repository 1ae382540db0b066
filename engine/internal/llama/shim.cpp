#include "shim.h"

#include <algorithm>
#include <atomic>
#include <climits>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <new>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "ggml-cpu.h"

extern "C" {
// Defined in callbacks.go.
void quernLog(int level, char *text);
bool quernProgress(uintptr_t handle, float share);
bool quernTensor(uintptr_t handle, int done, int total);
}

namespace {

char *dup(const std::string &s) {
	char *out = static_cast<char *>(malloc(s.size() + 1));
	if (out) memcpy(out, s.c_str(), s.size() + 1);
	return out;
}

struct cancelled : std::runtime_error {
	cancelled() : std::runtime_error("cancelled") {}
};

// scope is one wrapped call on this thread. While it lasts, what llama.cpp logs is kept here too, because its C
// functions say why they failed in the log alone; and a failed assertion throws instead of ending the process.
struct scope {
	std::string errors, sizes, line;
	uintptr_t tensors = 0; // handle for quernTensor
	scope *outer;

	scope();
	~scope();
	void log(int level, const char *text);
	void whole_line(int level);
};

thread_local scope *current = nullptr;
std::atomic<int> go_level{GGML_LOG_LEVEL_CONT + 1}; // above all: nothing goes to Go

scope::scope() : outer(current) { current = this; }
scope::~scope() { current = outer; }

void scope::log(int level, const char *text) {
	line += text;
	if (line.empty() || line.back() != '\n') return;
	line.pop_back();
	whole_line(level);
	line.clear();
}

void scope::whole_line(int level) {
	if (level == GGML_LOG_LEVEL_ERROR) {
		if (!errors.empty()) errors += "\n";
		errors += line;
	} else if (line.find(" MiB") != std::string::npos) {
		sizes += line + "\n";
	}
	int done, total;
	if (tensors && sscanf(line.c_str(), "[%d/%d]", &done, &total) == 2 && !quernTensor(tensors, done, total)) {
		throw cancelled();
	}
}

void on_log(ggml_log_level level, const char *text, void *) {
	if (level >= go_level && level != GGML_LOG_LEVEL_CONT) quernLog(level, const_cast<char *>(text));
	if (current) current->log(level, text);
}

// on_abort is called by a failed GGML_ASSERT just before abort(). The checks on our side keep such calls from being
// made; this is the second line of defence. Inside a wrapped call the exception unwinds to it.
void on_abort(const char *message) {
	const char *file = strrchr(message, '/'); // the path of the build is of no use to the reader
	if (current) throw std::runtime_error(std::string("llama.cpp's own check failed: ") + (file ? file + 1 : message));
	fprintf(stderr, "%s\n", message);
}

template <class F> qn_report wrapped(uintptr_t tensors, F &&call) noexcept {
	scope s;
	s.tensors = tensors;
	std::string error;
	try {
		if (call()) return {nullptr, s.sizes.empty() ? nullptr : dup(s.sizes)};
		error = s.errors;
	} catch (const std::bad_alloc &) {
		error = "out of memory";
	} catch (const std::exception &e) {
		error = e.what();
	} catch (...) {
		error = "unknown C++ exception";
	}
	return {dup(error), s.sizes.empty() ? nullptr : dup(s.sizes)};
}

} // namespace

void qn_init(void) {
	llama_log_set(on_log, nullptr);
	ggml_set_abort_callback(on_abort);
	llama_backend_init();
}

void qn_log_level(int min_level) { go_level = min_level; }

qn_report qn_model_load(const char *path, llama_model_params params, uintptr_t progress, llama_model **out) {
	params.progress_callback_user_data = &progress;
	params.progress_callback = [](float share, void *p) {
		uintptr_t handle = *static_cast<uintptr_t *>(p);
		return handle == 0 || quernProgress(handle, share);
	};
	return wrapped(0, [&] { return (*out = llama_model_load_from_file(path, params)) != nullptr; });
}

qn_report qn_context_new(llama_model *model, llama_context_params params, llama_context **out) {
	return wrapped(0, [&] { return (*out = llama_init_from_model(model, params)) != nullptr; });
}

qn_report qn_adapter_load(llama_model *model, const char *path, llama_adapter_lora **out) {
	return wrapped(0, [&] { return (*out = llama_adapter_lora_init(model, path)) != nullptr; });
}

qn_report qn_quantize(const char *in, const char *out, const llama_model_quantize_params *params, uintptr_t progress) {
	return wrapped(progress, [&] { return llama_model_quantize(in, out, params) == 0; });
}

qn_report qn_set_sampler(llama_context *ctx, llama_seq_id seq, llama_sampler *chain, bool *accepted) {
	return wrapped(0, [&] { *accepted = llama_set_sampler(ctx, seq, chain); return true; });
}

qn_report qn_set_adapters(llama_context *ctx, llama_adapter_lora **adapters, size_t n, float *scales) {
	return wrapped(0, [&] { return llama_set_adapters_lora(ctx, adapters, n, scales) == 0; });
}

int32_t qn_decode(llama_context *ctx, llama_batch batch, char **error) {
	scope s;
	std::string what;
	try {
		int32_t code = llama_decode(ctx, batch);
		if (code < 0 && !s.errors.empty()) *error = dup(s.errors);
		return code;
	} catch (const std::bad_alloc &) {
		what = "out of memory";
	} catch (const std::exception &e) {
		what = e.what();
	} catch (...) {
		what = "unknown C++ exception";
	}
	*error = dup(what);
	return INT32_MIN;
}

bool qn_abort(void *flag) { return __atomic_load_n(static_cast<bool *>(flag), __ATOMIC_RELAXED); }

void qn_set_abort(bool *flag) { __atomic_store_n(flag, true, __ATOMIC_RELAXED); }

int32_t qn_tokenize(const llama_vocab *vocab, const char *text, int32_t len, llama_token *out, int32_t max, bool parse_special) {
	scope s;
	try {
		return llama_tokenize(vocab, text, len, out, max, false, parse_special);
	} catch (...) {
		return INT32_MIN;
	}
}

llama_token qn_sample(llama_sampler *chain, llama_context *ctx, int32_t row) {
	scope s;
	try {
		return llama_sampler_sample(chain, ctx, row);
	} catch (...) {
		return LLAMA_TOKEN_NULL;
	}
}

// max_of has four running maxima, so that no comparison waits for the one before it.
static float max_of(const float *x, int32_t n) {
	float m[4] = {x[0], x[0], x[0], x[0]};
	int32_t i = 0;
	for (; i + 4 <= n; i += 4) {
		for (int k = 0; k < 4; k++) m[k] = x[i + k] > m[k] ? x[i + k] : m[k];
	}
	for (; i < n; i++) m[0] = x[i] > m[0] ? x[i] : m[0];
	return std::max(std::max(m[0], m[1]), std::max(m[2], m[3]));
}

int32_t qn_argmax(const float *x, int32_t n) {
	// Block by block, so that the place of the maximum is looked for in one block only.
	const int32_t block = 1024;
	float best = x[0];
	int32_t from = 0;
	for (int32_t i = 0; i < n; i += block) {
		const float m = max_of(x + i, std::min(block, n - i));
		if (m > best) best = m, from = i;
	}
	for (int32_t i = from; i < n; i++) {
		if (x[i] == best) return i;
	}
	return 0; // all are NaN
}

double qn_log_sum_exp(const float *x, int32_t n) {
	const double max = *std::max_element(x, x + n);
	double sum = 0;
	for (int32_t i = 0; i < n; i++) sum += std::exp(x[i] - max);
	return max + std::log(sum);
}

void qn_top(const float *x, int32_t n, int32_t *out, int32_t k) {
	std::vector<int32_t> ids(n);
	std::iota(ids.begin(), ids.end(), 0);
	std::partial_sort(ids.begin(), ids.begin() + k, ids.end(),
		[x](int32_t a, int32_t b) { return x[a] > x[b] || (x[a] == x[b] && a < b); });
	std::copy(ids.begin(), ids.begin() + k, out);
}

void qn_attrs(const llama_vocab *vocab, uint32_t *out) {
	const int32_t n = llama_vocab_n_tokens(vocab);
	for (int32_t id = 0; id < n; id++) {
		out[id] = uint32_t(llama_vocab_get_attr(vocab, id)) | (llama_vocab_is_eog(vocab, id) ? 1u << 31 : 0);
	}
}

char *qn_pieces(const llama_vocab *vocab, bool special, uint32_t *ends) {
	scope s;
	try {
		std::string all;
		char buf[256];
		const int32_t n = llama_vocab_n_tokens(vocab);
		for (int32_t id = 0; id < n; id++) {
			int32_t len = llama_token_to_piece(vocab, id, buf, sizeof buf, 0, special);
			if (len >= 0) {
				all.append(buf, len);
			} else {
				std::string big(-len, '\0');
				len = llama_token_to_piece(vocab, id, &big[0], -len, 0, special);
				if (len > 0) all.append(big, 0, len);
			}
			ends[id] = all.size();
		}
		return dup(all);
	} catch (...) {
		return nullptr;
	}
}
