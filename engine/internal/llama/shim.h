// What C++ is needed between Go and llama.cpp: calls that may throw, wrapped so that nothing crosses into Go but a
// message, and llama.cpp's Jinja engine, which has no C interface.
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "llama.h"

#ifdef __cplusplus
extern "C" {
#endif

// qn_report is how a wrapped call ended. Both texts are malloc'ed, or NULL: error says why it failed, log holds the
// lines in which llama.cpp names the size of its buffers.
struct qn_report {
	char *error;
	char *log;
};

// qn_init starts llama.cpp, once per process. min_level: lines below it (enum ggml_log_level) do not go to Go.
void qn_init(void);
void qn_log_level(int min_level);

// progress is the handle of a Go function, or 0; see callbacks.go.
struct qn_report qn_model_load(const char *path, struct llama_model_params params, uintptr_t progress, struct llama_model **out);
struct qn_report qn_context_new(struct llama_model *model, struct llama_context_params params, struct llama_context **out);
struct qn_report qn_adapter_load(struct llama_model *model, const char *path, struct llama_adapter_lora **out);
struct qn_report qn_quantize(const char *in, const char *out, const llama_model_quantize_params *params, uintptr_t progress);
struct qn_report qn_set_sampler(struct llama_context *ctx, llama_seq_id seq, struct llama_sampler *chain, bool *accepted);
struct qn_report qn_set_adapters(struct llama_context *ctx, struct llama_adapter_lora **adapters, size_t n, float *scales);

// qn_decode is llama_decode. *error (malloc'ed) is set only where C++ threw; the result is then INT32_MIN.
int32_t qn_decode(struct llama_context *ctx, struct llama_batch batch, char **error);

// qn_abort is the abort callback; its data is a flag that qn_set_abort sets.
bool qn_abort(void *flag);
void qn_set_abort(bool *flag);

// qn_tokenize is llama_tokenize; INT32_MIN: it threw.
int32_t qn_tokenize(const struct llama_vocab *vocab, const char *text, int32_t len, llama_token *out, int32_t max, bool parse_special);

// qn_sample is llama_sampler_sample; LLAMA_TOKEN_NULL: it threw.
llama_token qn_sample(struct llama_sampler *chain, struct llama_context *ctx, int32_t row);

// qn_argmax is the first index of the largest of n numbers.
int32_t qn_argmax(const float *x, int32_t n);
// qn_log_sum_exp is ln(sum(exp(x))), summed in double precision.
double qn_log_sum_exp(const float *x, int32_t n);
// qn_top writes the indices of the k largest of n numbers, largest first.
void qn_top(const float *x, int32_t n, int32_t *out, int32_t k);

// qn_attrs writes llama_vocab_get_attr of all tokens, with bit 31 set where llama_vocab_is_eog holds.
void qn_attrs(const struct llama_vocab *vocab, uint32_t *out);

// qn_pieces writes the pieces of all tokens behind one another, and where each ends. Both arrays are malloc'ed.
char *qn_pieces(const struct llama_vocab *vocab, bool special, uint32_t *ends);

// Chat templates.
struct qn_template;
struct qn_part { // of a rendered text
	size_t end;  // where it ends in the text, bytes
	bool input;  // it came from the marked variables
};
struct qn_rendered {
	char *text; // malloc'ed
	size_t len;
	struct qn_part *parts; // malloc'ed
	size_t n_parts;
	char *raised; // malloc'ed: the message given to raise_exception, or NULL
};

// qn_template_parse gives NULL and *error (malloc'ed) where the source does not parse.
struct qn_template *qn_template_parse(const char *source, size_t len, char **error);
void qn_template_free(struct qn_template *t);

// qn_template_render renders with the variables of two JSON objects; strings of the first are marked as input.
// It returns NULL, or the error (malloc'ed). now is in seconds since 1970.
char *qn_template_render(const struct qn_template *t, const char *input, size_t input_len, const char *plain,
	size_t plain_len, int64_t now, struct qn_rendered *out);

#ifdef __cplusplus
}
#endif
