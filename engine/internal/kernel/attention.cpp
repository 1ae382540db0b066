// Attention over keys and values in half precision, for processors with AVX512.
//
// Many lanes share one memory of cells, of which a token sees its own conversation's. Here the cells that a few
// neighbouring tokens see are listed once for all heads that share keys and values; they are converted to single
// precision once, 32 at a time, and multiplied by all of those heads' queries. Softmax is computed as one goes along
// (Milakov and Gimelshein, arXiv:1805.02867). All sums are in single precision.
#include "cpu.h"

#ifdef QUERN_X86

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

namespace {

constexpr int64_t tile = 32;       // cells at a time
constexpr int64_t most_rows = 64;  // queries that share a tile: tokens times heads
constexpr int64_t most_tokens = 8; // of those
constexpr float infinity = std::numeric_limits<float>::infinity();

// attention is a node FLASH_ATTN_EXT. Query heads that share keys and values make a group.
struct attention {
	const ggml_tensor *q, *k, *v, *mask, *out;
	int64_t key_size, value_size, cells, tokens, groups, streams, group_size;
	float scale;

	explicit attention(const ggml_tensor *op)
		: q(op->src[0]), k(op->src[1]), v(op->src[2]), mask(op->src[3]), out(op), key_size(k->ne[0]), value_size(v->ne[0]),
		  cells(k->ne[1]), tokens(q->ne[1]), groups(k->ne[2]), streams(q->ne[3]), group_size(q->ne[2] / k->ne[2]) {
		memcpy(&scale, op->op_params, sizeof scale);
	}

	const char *key(int64_t cell, int64_t group, int64_t stream) const { return at(k, cell, group, stream); }
	const char *value(int64_t cell, int64_t group, int64_t stream) const { return at(v, cell, group, stream); }
	const float *query(int64_t token, int64_t head, int64_t stream) const {
		return reinterpret_cast<const float *>(at(q, token, head, stream));
	}
	const ggml_fp16_t *sees(int64_t token, int64_t stream) const {
		return reinterpret_cast<const ggml_fp16_t *>(at(mask, token, 0, stream));
	}
	float *result(int64_t token, int64_t head, int64_t stream) const {
		return reinterpret_cast<float *>(const_cast<char *>(at(out, head, token, stream)));
	}

private:
	static const char *at(const ggml_tensor *t, int64_t i1, int64_t i2, int64_t i3) {
		return static_cast<const char *>(t->data) + i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
	}
};

// share is what is computed in one go: some tokens, and some heads of one group. A row is one head of one token.
struct share {
	int64_t stream, group, first_head, heads, first_token, tokens;
	int64_t rows() const { return tokens * heads; }
};

// workspace is one thread's memory.
struct workspace {
	float *keys, *values;    // [key_size][tile] and [tile][value_size], of the tile at hand
	float *mask;             // [tile], of one token
	float *queries, *scores; // [most_rows][key_size] and [most_rows][tile]
	float *sums;             // [most_rows][value_size]: of values, weighted
	float *weight, *largest; // [most_rows]: the sum of the weights, and the largest score so far
	int32_t *cells;          // that the tokens see; as many as there are, and a tile
	size_t bytes;

	workspace(const attention &a, uintptr_t memory) {
		uintptr_t at = memory;
		const auto take = [&](int64_t numbers) {
			const uintptr_t taken = at;
			at += (numbers * 4 + 63) / 64 * 64;
			return reinterpret_cast<float *>(taken);
		};
		keys = take(a.key_size * tile);
		values = take(tile * a.value_size);
		mask = take(tile);
		queries = take(most_rows * a.key_size);
		scores = take(most_rows * tile);
		sums = take(most_rows * a.value_size);
		weight = take(most_rows);
		largest = take(most_rows);
		cells = reinterpret_cast<int32_t *>(take(a.cells + tile));
		bytes = at - memory;
	}
	static size_t size(const attention &a) { return workspace(a, 0).bytes; }
};

INLINE __m512 load_half(const void *p) {
	return _mm512_cvtph_ps(_mm256_loadu_si256(static_cast<const __m256i *>(p)));
}

// exponential is e^x for x ≤ 0, to about one unit in the last place; what lies below the normal numbers gives 0.
INLINE __m512 exponential(__m512 x) {
	x = _mm512_max_ps(x, _mm512_set1_ps(-200));
	const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
	__m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693145752f), x); // ln 2 in two parts
	r = _mm512_fnmadd_ps(n, _mm512_set1_ps(1.42860677e-6f), r);
	__m512 p = _mm512_set1_ps(1.0f / 720);
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 120));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 24));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1.0f / 6));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(0.5f));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
	p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(1));
	return _mm512_scalef_ps(p, n);
}

// list_cells lists what any of the tokens sees, in order, and returns how many there are.
AVX512 int64_t list_cells(const attention &a, const share &s, int32_t *out) {
	const __m512i hidden = _mm512_set1_epi16(static_cast<short>(0xfc00)); // -infinity
	const __m512i step = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
	const ggml_fp16_t *sees = a.sees(s.first_token, s.stream);
	const int64_t stride = a.mask->nb[1] / sizeof *sees;
	int64_t n = 0;
	for (int64_t c = 0; c < a.cells; c += tile) {
		__mmask32 seen = 0;
		for (int64_t t = 0; t < s.tokens; t++) seen |= _mm512_cmpneq_epi16_mask(_mm512_loadu_si512(sees + t * stride + c), hidden);
		for (int64_t half = 0; seen != 0; half++, seen >>= 16) {
			const __mmask16 low = static_cast<__mmask16>(seen);
			const __m512i cell = _mm512_add_epi32(step, _mm512_set1_epi32(static_cast<int>(c + 16 * half)));
			_mm512_storeu_si512(out + n, _mm512_maskz_compress_epi32(low, cell));
			n += __builtin_popcount(low);
		}
	}
	return n;
}

// transpose swaps rows and columns of 16×16 numbers.
INLINE void transpose(__m512 *v) {
	__m512 a[16], b[16];
	UNROLL
	for (int i = 0; i < 16; i += 2) {
		a[i] = _mm512_unpacklo_ps(v[i], v[i + 1]);
		a[i + 1] = _mm512_unpackhi_ps(v[i], v[i + 1]);
	}
	UNROLL
	for (int i = 0; i < 16; i += 4) {
		UNROLL
		for (int j = 0; j < 2; j++) {
			const __m512d x = _mm512_castps_pd(a[i + j]), y = _mm512_castps_pd(a[i + j + 2]);
			b[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
			b[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
		}
	}
	// b[4i+j] holds columns j, j+4, j+8 and j+12 of rows 4i to 4i+3, in four quarters.
	UNROLL
	for (int j = 0; j < 4; j++) {
		const __m512 low = _mm512_shuffle_f32x4(b[j], b[j + 4], 0x44), high = _mm512_shuffle_f32x4(b[j], b[j + 4], 0xee);
		const __m512 low2 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0x44), high2 = _mm512_shuffle_f32x4(b[j + 8], b[j + 12], 0xee);
		v[j] = _mm512_shuffle_f32x4(low, low2, 0x88);
		v[j + 4] = _mm512_shuffle_f32x4(low, low2, 0xdd);
		v[j + 8] = _mm512_shuffle_f32x4(high, high2, 0x88);
		v[j + 12] = _mm512_shuffle_f32x4(high, high2, 0xdd);
	}
}

// load_tile converts the keys, turned, and the values of a tile.
AVX512 void load_tile(const attention &a, const share &s, const int32_t *cells, const workspace &w) {
	for (int64_t half = 0; half < tile; half += 16) {
		const char *keys[16];
		for (int64_t i = 0; i < 16; i++) keys[i] = a.key(cells[half + i], s.group, s.stream);
		for (int64_t d = 0; d < a.key_size; d += 16) {
			__m512 v[16];
			UNROLL
			for (int i = 0; i < 16; i++) v[i] = load_half(keys[i] + d * sizeof(ggml_fp16_t));
			transpose(v);
			UNROLL
			for (int i = 0; i < 16; i++) _mm512_store_ps(w.keys + (d + i) * tile + half, v[i]);
		}
	}
	for (int64_t i = 0; i < tile; i++) {
		const char *value = a.value(cells[i], s.group, s.stream);
		for (int64_t d = 0; d < a.value_size; d += 16) {
			_mm512_store_ps(w.values + i * a.value_size + d, load_half(value + d * sizeof(ggml_fp16_t)));
		}
	}
}

// load_mask writes what a token's mask adds to the scores of a tile, of which the first n cells count. False: it sees none.
AVX512 bool load_mask(const ggml_fp16_t *sees, const int32_t *cells, int64_t n, float *out) {
	alignas(64) ggml_fp16_t picked[tile];
	for (int64_t i = 0; i < tile; i++) picked[i] = sees[cells[i]];
	const uint32_t valid = n < tile ? (1u << n) - 1 : ~0u;
	const __m512 none = _mm512_set1_ps(-infinity);
	const __m512 low = _mm512_mask_blend_ps(static_cast<__mmask16>(valid), none, load_half(picked));
	const __m512 high = _mm512_mask_blend_ps(static_cast<__mmask16>(valid >> 16), none, load_half(picked + 16));
	_mm512_store_ps(out, low);
	_mm512_store_ps(out + 16, high);
	return _mm512_reduce_max_ps(_mm512_max_ps(low, high)) > -infinity;
}

// multiply_keys gives N rows' scores.
template <int N> AVX512 void multiply_keys(const float *q, const float *keys, int64_t size, float *scores) {
	__m512 sum[N][2];
	UNROLL
	for (int i = 0; i < N; i++) sum[i][0] = sum[i][1] = _mm512_setzero_ps();
	for (int64_t d = 0; d < size; d++) {
		const __m512 low = _mm512_load_ps(keys + d * tile), high = _mm512_load_ps(keys + d * tile + 16);
		UNROLL
		for (int i = 0; i < N; i++) {
			const __m512 x = _mm512_set1_ps(q[i * size + d]);
			sum[i][0] = _mm512_fmadd_ps(x, low, sum[i][0]);
			sum[i][1] = _mm512_fmadd_ps(x, high, sum[i][1]);
		}
	}
	UNROLL
	for (int i = 0; i < N; i++) {
		_mm512_store_ps(scores + i * tile, sum[i][0]);
		_mm512_store_ps(scores + i * tile + 16, sum[i][1]);
	}
}

// add_values adds N rows' weighted values to their sums, 16·J numbers of each.
template <int N, int J> AVX512 void add_values(const float *scores, const float *values, int64_t size, float *sums) {
	__m512 sum[N][J];
	UNROLL
	for (int i = 0; i < N; i++) {
		UNROLL
		for (int j = 0; j < J; j++) sum[i][j] = _mm512_load_ps(sums + i * size + 16 * j);
	}
	for (int64_t c = 0; c < tile; c++) {
		__m512 value[J];
		UNROLL
		for (int j = 0; j < J; j++) value[j] = _mm512_load_ps(values + c * size + 16 * j);
		UNROLL
		for (int i = 0; i < N; i++) {
			const __m512 x = _mm512_set1_ps(scores[i * tile + c]);
			UNROLL
			for (int j = 0; j < J; j++) sum[i][j] = _mm512_fmadd_ps(x, value[j], sum[i][j]);
		}
	}
	UNROLL
	for (int i = 0; i < N; i++) {
		UNROLL
		for (int j = 0; j < J; j++) _mm512_store_ps(sums + i * size + 16 * j, sum[i][j]);
	}
}

template <int N> AVX512 void add_all_values(const float *scores, const float *values, int64_t size, float *sums) {
	int64_t d = 0;
	for (; d + 64 <= size; d += 64) add_values<N, 4>(scores, values + d, size, sums + d);
	for (; d < size; d += 16) add_values<N, 1>(scores, values + d, size, sums + d);
}

// soften turns a row's scores into weights, relative to the largest score so far, to which its sums are brought as well.
AVX512 void soften(const attention &a, const workspace &w, int64_t row) {
	float *scores = w.scores + row * tile;
	const __m512 scale = _mm512_set1_ps(a.scale);
	const __m512 low = _mm512_fmadd_ps(_mm512_load_ps(scores), scale, _mm512_load_ps(w.mask));
	const __m512 high = _mm512_fmadd_ps(_mm512_load_ps(scores + 16), scale, _mm512_load_ps(w.mask + 16));
	const float largest = std::max(w.largest[row], _mm512_reduce_max_ps(_mm512_max_ps(low, high)));
	if (largest > w.largest[row]) {
		const float fade = std::exp(w.largest[row] - largest);
		float *sums = w.sums + row * a.value_size;
		for (int64_t d = 0; d < a.value_size; d += 16) {
			_mm512_store_ps(sums + d, _mm512_mul_ps(_mm512_load_ps(sums + d), _mm512_set1_ps(fade)));
		}
		w.weight[row] *= fade;
		w.largest[row] = largest;
	}
	const __m512 top = _mm512_set1_ps(largest);
	const __m512 p = exponential(_mm512_sub_ps(low, top)), p2 = exponential(_mm512_sub_ps(high, top));
	_mm512_store_ps(scores, p);
	_mm512_store_ps(scores + 16, p2);
	w.weight[row] += _mm512_reduce_add_ps(_mm512_add_ps(p, p2));
}

// attend_tile brings the tile and the mask in the workspace into the rows of one token.
AVX512 void attend_tile(const attention &a, const workspace &w, int64_t first, int64_t rows) {
	for (int64_t r = first, left = rows; left > 0; r += 8, left -= 8) {
		const float *q = w.queries + r * a.key_size;
		float *scores = w.scores + r * tile;
		switch (left) {
			case 1: multiply_keys<1>(q, w.keys, a.key_size, scores); break;
			case 2: multiply_keys<2>(q, w.keys, a.key_size, scores); break;
			case 3: multiply_keys<3>(q, w.keys, a.key_size, scores); break;
			case 4: multiply_keys<4>(q, w.keys, a.key_size, scores); break;
			case 5: multiply_keys<5>(q, w.keys, a.key_size, scores); break;
			case 6: multiply_keys<6>(q, w.keys, a.key_size, scores); break;
			case 7: multiply_keys<7>(q, w.keys, a.key_size, scores); break;
			default: multiply_keys<8>(q, w.keys, a.key_size, scores);
		}
	}
	for (int64_t r = first; r < first + rows; r++) soften(a, w, r);
	for (int64_t r = first, left = rows; left > 0; r += 4, left -= 4) {
		const float *scores = w.scores + r * tile;
		float *sums = w.sums + r * a.value_size;
		switch (left) {
			case 1: add_all_values<1>(scores, w.values, a.value_size, sums); break;
			case 2: add_all_values<2>(scores, w.values, a.value_size, sums); break;
			case 3: add_all_values<3>(scores, w.values, a.value_size, sums); break;
			default: add_all_values<4>(scores, w.values, a.value_size, sums);
		}
	}
}

AVX512 void attend(const attention &a, const share &s, const workspace &w) {
	const int64_t n = list_cells(a, s, w.cells);
	for (int64_t i = n; i % tile != 0; i++) w.cells[i] = w.cells[n - 1]; // masked, but read
	for (int64_t r = 0; r < s.rows(); r++) {
		const float *q = a.query(s.first_token + r / s.heads, s.group * a.group_size + s.first_head + r % s.heads, s.stream);
		memcpy(w.queries + r * a.key_size, q, a.key_size * sizeof *q);
		w.largest[r] = -infinity;
	}
	memset(w.weight, 0, s.rows() * sizeof(float));
	memset(w.sums, 0, s.rows() * a.value_size * sizeof(float));
	for (int64_t c = 0; c < n; c += tile) {
		load_tile(a, s, w.cells + c, w);
		for (int64_t t = 0; t < s.tokens; t++) {
			const bool seen = load_mask(a.sees(s.first_token + t, s.stream), w.cells + c, n - c, w.mask);
			if (seen) attend_tile(a, w, t * s.heads, s.heads);
		}
	}
	for (int64_t r = 0; r < s.rows(); r++) {
		float *out = a.result(s.first_token + r / s.heads, s.group * a.group_size + s.first_head + r % s.heads, s.stream);
		const float inverse = w.weight[r] == 0 ? 0 : 1 / w.weight[r];
		for (int64_t d = 0; d < a.value_size; d++) out[d] = w.sums[r * a.value_size + d] * inverse;
	}
}

int64_t divide_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// plan cuts the work so that each thread gets a few shares: as many tokens at once as that allows, and where there are
// few tokens for the threads, not all heads of a group.
struct plan {
	int64_t tokens_at_once, heads_at_once, runs, parts;

	plan(const attention &a, int threads) {
		const int64_t wanted = 4 * threads, all = a.tokens * a.groups * a.streams;
		const int64_t most = std::clamp(most_rows / a.group_size, int64_t(1), most_tokens);
		tokens_at_once = std::clamp(all / wanted, int64_t(1), most);
		const int64_t split = std::clamp(divide_up(threads, all), divide_up(a.group_size, most_rows), a.group_size);
		heads_at_once = divide_up(a.group_size, split);
		runs = divide_up(a.tokens, tokens_at_once);
		parts = divide_up(a.group_size, heads_at_once);
	}
	int64_t shares(const attention &a) const { return runs * parts * a.groups * a.streams; }

	share get(const attention &a, int64_t i) const {
		const int64_t head = i % parts * heads_at_once;
		const int64_t group = i / parts % a.groups;
		const int64_t token = i / parts / a.groups % runs * tokens_at_once;
		const int64_t stream = i / parts / a.groups / runs;
		return {stream, group, head, std::min(heads_at_once, a.group_size - head), token, std::min(tokens_at_once, a.tokens - token)};
	}
};

struct traits : ggml::cpu::tensor_traits {
	bool work_size(int threads, const ggml_tensor *op, size_t &size) override {
		size = 64 + threads * workspace::size(attention(op));
		return true;
	}

	// Called by all threads at once.
	bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override {
		const attention a(op);
		const plan p(a, params->nth);
		const workspace w(a, reinterpret_cast<uintptr_t>(align(params->wdata)) + params->ith * workspace::size(a));
		if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
		ggml_barrier(params->threadpool);
		for (int64_t i = params->ith; i < p.shares(a); i = ggml_threadpool_chunk_add(params->threadpool, 1)) attend(a, p.get(a, i), w);
		return true;
	}
};

} // namespace

ggml::cpu::tensor_traits *attention_kernel(const ggml_tensor *op) {
	static traits kernel;
	if (op->op != GGML_OP_FLASH_ATTN_EXT) return nullptr;
	const ggml_tensor *q = op->src[0], *k = op->src[1], *v = op->src[2], *mask = op->src[3], *sinks = op->src[4];
	const float *params = reinterpret_cast<const float *>(op->op_params);
	const bool plain = params[1] == 0 && params[2] == 0 && !sinks; // no position-dependent bias, no cap
	const bool types = q->type == GGML_TYPE_F32 && k->type == GGML_TYPE_F16 && v->type == GGML_TYPE_F16;
	const bool rows = q->nb[0] == sizeof(float) && k->nb[0] == sizeof(ggml_fp16_t) && v->nb[0] == sizeof(ggml_fp16_t);
	if (!plain || !types || !rows || !mask || mask->ne[2] != 1) return nullptr;
	const bool sizes = k->ne[0] % 16 == 0 && v->ne[0] % 16 == 0 && k->ne[1] % tile == 0;
	const bool heads = k->ne[2] == v->ne[2] && k->ne[3] == q->ne[3] && v->ne[3] == q->ne[3] && mask->ne[3] == q->ne[3];
	return sizes && heads ? &kernel : nullptr;
}

#endif
