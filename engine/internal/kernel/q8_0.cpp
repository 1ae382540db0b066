// Products of Q8_0 weights and columns of activations, for processors with AVX512-VNNI.
//
// ggml's own routine multiplies one block of 32 weights by one block of activations at a time and then spends as much on
// the scales as on the product. Here 16 rows of weights are turned so that one instruction multiplies four numbers of
// each by four of a column, and the scales are applied once for 16 blocks. Few columns are multiplied at once, as soon as
// the weights are turned; for many, which read them several times, turned weights go to the cache. In memory they stay as
// they lie in the file: nothing is copied at load, and a mapped file stays mapped.
//
// Activations are rounded to Q8_0 as ggml rounds them, products of a block are exact integers, and blocks are added up
// in order in single precision: results differ from ggml's in that order of addition alone, and do not depend on how
// many columns there are.
#include "cpu.h"

#ifdef QUERN_X86

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <utility>

namespace {

constexpr int64_t block_size = 32;   // numbers with one scale
constexpr int64_t panel_rows = 16;   // numbers in a vector of 512 bits
constexpr int64_t tile_rows = 2 * panel_rows;
constexpr int64_t few_columns = 16;  // 16 sums and 8 turned vectors leave 8 of the 32 registers for operands,
constexpr int64_t tile_columns = 6;  // as do 2×6 sums and 2×6 products

struct weights { // block_q8_0
	ggml_fp16_t scale;
	int8_t q[block_size];
};
static_assert(sizeof(weights) == 34, "the layout of Q8_0 in a file");

struct panel { // one block of 16 rows, turned
	uint8_t q[block_size / 4][panel_rows][4]; // with 128 added
	float scale[panel_rows];
};

struct column { // one block of activations
	float scale;
	int32_t correction; // -128 times the sum of q, for what was added to the weights
	int8_t q[block_size];
};

struct product { // out = w·x; out[c*out_stride + r] is the product of row r of w and column c of x
	int64_t blocks, rows, columns;
	const char *w;
	int64_t w_stride; // bytes between rows
	float *out;
	int64_t out_stride; // numbers between columns
	const column *x;
	int64_t ahead; // bytes from what a thread turns to what it is likely to turn next
};

// sixteen_scales are the scales of 16 blocks that lie at in[r] + at.
INLINE __m512 sixteen_scales(const char *const *in, int64_t at) {
	__m128i v[panel_rows];
	UNROLL
	for (int r = 0; r < panel_rows; r++) v[r] = _mm_loadu_si32(in[r] + at);
	UNROLL
	for (int r = 0; r < 8; r++) v[r] = _mm_unpacklo_epi16(v[2 * r], v[2 * r + 1]);
	UNROLL
	for (int r = 0; r < 4; r++) v[r] = _mm_unpacklo_epi32(v[2 * r], v[2 * r + 1]);
	const __m128i low = _mm_unpacklo_epi64(v[0], v[1]), high = _mm_unpacklo_epi64(v[2], v[3]);
	return _mm512_cvtph_ps(_mm256_set_m128i(high, low));
}

INLINE __m512i two_rows(const char *low, const char *high) {
	const __m256i a = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(low));
	const __m256i b = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(high));
	return _mm512_inserti64x4(_mm512_castsi256_si512(a), b, 1);
}

// turned is a panel in registers.
struct turned {
	__m512i q[block_size / 4];
	__m512 scale;
};

// turn turns one block of 16 rows; row r is at in[r] + at. It is a transposition of 16×8 groups of four numbers. Vectors
// begin as rows that lie four apart, so that their quarters meet in order.
INLINE turned turn(const char *const *in, int64_t at) {
	turned out;
	out.scale = sixteen_scales(in, at);
	at += offsetof(weights, q);
	__m512i quads[2][4]; // [rows 0–7 or 8–15][group i and i+4 of the block]
	UNROLL
	for (int half = 0; half < 2; half++) {
		const char *const *row = in + 8 * half;
		const __m512i a = two_rows(row[0] + at, row[4] + at), b = two_rows(row[1] + at, row[5] + at);
		const __m512i c = two_rows(row[2] + at, row[6] + at), d = two_rows(row[3] + at, row[7] + at);
		const __m512i ab_low = _mm512_unpacklo_epi32(a, b), ab_high = _mm512_unpackhi_epi32(a, b);
		const __m512i cd_low = _mm512_unpacklo_epi32(c, d), cd_high = _mm512_unpackhi_epi32(c, d);
		quads[half][0] = _mm512_unpacklo_epi64(ab_low, cd_low);
		quads[half][1] = _mm512_unpackhi_epi64(ab_low, cd_low);
		quads[half][2] = _mm512_unpacklo_epi64(ab_high, cd_high);
		quads[half][3] = _mm512_unpackhi_epi64(ab_high, cd_high);
	}
	const __m512i sign = _mm512_set1_epi8(static_cast<char>(0x80));
	UNROLL
	for (int i = 0; i < 4; i++) {
		const __m512i low = _mm512_shuffle_i32x4(quads[0][i], quads[1][i], 0x88);
		const __m512i high = _mm512_shuffle_i32x4(quads[0][i], quads[1][i], 0xdd);
		out.q[i] = _mm512_xor_si512(low, sign);
		out.q[i + 4] = _mm512_xor_si512(high, sign);
	}
	return out;
}

// panel_of finds 16 rows from `row` on; the last one stands in for those that are missing.
void panel_of(const product &p, int64_t row, const char **in) {
	for (int64_t r = 0; r < panel_rows; r++) in[r] = p.w + p.w_stride * std::min(row + r, p.rows - 1);
}

// fetch has the processor bring one block of the rows that this thread is likely to turn next into the second cache. They
// are read side by side, which its own guesses do not foresee.
INLINE void fetch(const product &p, const char *const *in, int64_t at) {
	UNROLL
	for (int r = 0; r < panel_rows; r++) _mm_prefetch(in[r] + at + p.ahead, _MM_HINT_T1);
}

INLINE __m512i four_numbers(const column &x, int q) {
	int32_t four;
	memcpy(&four, x.q + 4 * q, 4);
	return _mm512_set1_epi32(four);
}

// add brings the product of a block into a sum.
INLINE __m512 add(__m512 sum, __m512i dot, __m512 scale, const column &x) {
	return _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(scale, _mm512_set1_ps(x.scale)), sum);
}

// write stores the sums of a panel's rows, as many as there are.
INLINE void write(const product &p, int64_t row, int64_t column, __m512 sum) {
	const __mmask16 rows = static_cast<__mmask16>((1u << std::min(p.rows - row, panel_rows)) - 1);
	_mm512_mask_storeu_ps(p.out + column * p.out_stride + row, rows, sum);
}

// multiply_once computes a panel of rows times all C columns, and turns the weights in registers.
template <int C> AVX512 void multiply_once(const product &p, int64_t row) {
	const char *in[panel_rows];
	panel_of(p, row, in);
	__m512 sum[C];
	UNROLL
	for (int c = 0; c < C; c++) sum[c] = _mm512_setzero_ps();
	for (int64_t b = 0; b < p.blocks; b++) {
		fetch(p, in, b * sizeof(weights));
		const turned w = turn(in, b * sizeof(weights));
		UNROLL
		for (int c = 0; c < C; c++) {
			const column &x = p.x[c * p.blocks + b];
			__m512i dot = _mm512_set1_epi32(x.correction);
			UNROLL
			for (int q = 0; q < block_size / 4; q++) dot = _mm512_dpbusd_epi32(dot, w.q[q], four_numbers(x, q));
			sum[c] = add(sum[c], dot, w.scale, x);
		}
	}
	UNROLL
	for (int c = 0; c < C; c++) write(p, row, c, sum[c]);
}

// turn_rows turns 16 rows from `row` on.
AVX512 void turn_rows(const product &p, int64_t row, panel *out) {
	const char *in[panel_rows];
	panel_of(p, row, in);
	for (int64_t b = 0; b < p.blocks; b++) {
		fetch(p, in, b * sizeof(weights));
		const turned w = turn(in, b * sizeof(weights));
		UNROLL
		for (int q = 0; q < block_size / 4; q++) _mm512_store_si512(out[b].q[q], w.q[q]);
		_mm512_store_ps(out[b].scale, w.scale);
	}
}

// multiply computes P panels times C columns. A panel is `blocks` blocks long, as is a column.
template <int P, int C> AVX512 void multiply(const product &p, const panel *w, int64_t row, int64_t first) {
	const column *x = p.x + first * p.blocks;
	__m512 sum[P][C];
	UNROLL
	for (int i = 0; i < P; i++) {
		UNROLL
		for (int c = 0; c < C; c++) sum[i][c] = _mm512_setzero_ps();
	}
	for (int64_t b = 0; b < p.blocks; b++) {
		__m512i dot[P][C];
		UNROLL
		for (int c = 0; c < C; c++) {
			UNROLL
			for (int i = 0; i < P; i++) dot[i][c] = _mm512_set1_epi32(x[c * p.blocks + b].correction);
		}
		UNROLL
		for (int q = 0; q < block_size / 4; q++) {
			UNROLL
			for (int c = 0; c < C; c++) {
				const __m512i four = four_numbers(x[c * p.blocks + b], q);
				UNROLL
				for (int i = 0; i < P; i++) dot[i][c] = _mm512_dpbusd_epi32(dot[i][c], _mm512_load_si512(w[i * p.blocks + b].q[q]), four);
			}
		}
		UNROLL
		for (int i = 0; i < P; i++) {
			const __m512 scale = _mm512_load_ps(w[i * p.blocks + b].scale);
			UNROLL
			for (int c = 0; c < C; c++) sum[i][c] = add(sum[i][c], dot[i][c], scale, x[c * p.blocks + b]);
		}
	}
	UNROLL
	for (int i = 0; i < P; i++) {
		UNROLL
		for (int c = 0; c < C; c++) write(p, row + i * panel_rows, first + c, sum[i][c]);
	}
}

template <int P> AVX512 void multiply_columns(const product &p, const panel *w, int64_t row, int64_t first, int64_t n) {
	switch (n) {
		case 1: return multiply<P, 1>(p, w, row, first);
		case 2: return multiply<P, 2>(p, w, row, first);
		case 3: return multiply<P, 3>(p, w, row, first);
		case 4: return multiply<P, 4>(p, w, row, first);
		case 5: return multiply<P, 5>(p, w, row, first);
		default: return multiply<P, 6>(p, w, row, first);
	}
}

// once[n-1] is multiply_once for n columns.
using multiply_panel = void (*)(const product &, int64_t);
template <int... C> constexpr std::array<multiply_panel, sizeof...(C)> by_columns(std::integer_sequence<int, C...>) {
	return {multiply_once<C + 1>...};
}
constexpr auto once = by_columns(std::make_integer_sequence<int, few_columns>());

// multiply_tile computes up to two panels of rows from `row` on, times the columns [first, last).
AVX512 void multiply_tile(const product &p, int64_t row, int64_t first, int64_t last, panel *scratch) {
	const int64_t panels = p.rows - row > panel_rows ? 2 : 1;
	if (p.columns <= few_columns) {
		for (int64_t i = 0; i < panels; i++) once[p.columns - 1](p, row + i * panel_rows);
		return;
	}
	for (int64_t i = 0; i < panels; i++) turn_rows(p, row + i * panel_rows, scratch + i * p.blocks);
	// Columns are spread evenly over the parts: one column alone would not keep the processor busy.
	const int64_t n = last - first, parts = (n + tile_columns - 1) / tile_columns;
	for (int64_t part = 0; part < parts; part++) {
		const int64_t from = first + n * part / parts, to = first + n * (part + 1) / parts;
		if (panels == 2) multiply_columns<2>(p, scratch, row, from, to - from);
		else multiply_columns<1>(p, scratch, row, from, to - from);
	}
}

// round_block makes one block of activations of one that ggml has rounded.
AVX512 inline void round_block(const weights &in, column *out) {
	const __m256i q = _mm256_loadu_si256(reinterpret_cast<const __m256i *>(in.q));
	const __m256i sums = _mm256_dpbusd_epi32(_mm256_setzero_si256(), _mm256_set1_epi8(1), q);
	__m128i s = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
	s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
	out->scale = _mm_cvtss_f32(_mm_cvtph_ps(_mm_cvtsi32_si128(in.scale)));
	out->correction = -128 * _mm_cvtsi128_si32(s);
	_mm256_storeu_si256(reinterpret_cast<__m256i *>(out->q), q);
}

// round_columns is thread ith's share of rounding the activations.
void round_columns(const ggml_tensor *x, column *out, int ith, int nth) {
	const auto from_float = ggml_get_type_traits_cpu(GGML_TYPE_Q8_0)->from_float;
	const int64_t blocks = x->ne[0] / block_size, total = blocks * ggml_nrows(x);
	constexpr int64_t step = 32;
	weights rounded[step];
	for (int64_t at = total * ith / nth, end = total * (ith + 1) / nth; at < end;) {
		const int64_t c = at / blocks, b = at % blocks, n = std::min({step, blocks - b, end - at});
		const char *in = static_cast<const char *>(x->data) + c * x->nb[1];
		from_float(reinterpret_cast<const float *>(in) + b * block_size, rounded, n * block_size);
		for (int64_t i = 0; i < n; i++) round_block(rounded[i], out + at + i);
		at += n;
	}
}

constexpr size_t aligned(size_t n) { return (n + 63) / 64 * 64; }

size_t rounded_size(const ggml_tensor *x) { return aligned(ggml_nelements(x) / block_size * sizeof(column)); }
size_t scratch_size(const ggml_tensor *w) { return aligned(2 * (w->ne[0] / block_size) * sizeof(panel)); }

struct traits : ggml::cpu::tensor_traits {
	bool work_size(int threads, const ggml_tensor *op, size_t &size) override {
		size = 64 + rounded_size(op->src[1]) + threads * scratch_size(op->src[0]);
		return true;
	}

	// Called by all threads at once.
	bool compute_forward(ggml_compute_params *params, ggml_tensor *op) override {
		const ggml_tensor *w = op->src[0], *x = op->src[1];
		char *work = align(params->wdata);
		column *rounded = reinterpret_cast<column *>(work);
		panel *scratch = reinterpret_cast<panel *>(work + rounded_size(x) + params->ith * scratch_size(w));
		round_columns(x, rounded, params->ith, params->nth);
		if (params->ith == 0) ggml_threadpool_chunk_set(params->threadpool, params->nth);
		ggml_barrier(params->threadpool);

		const product p{
			w->ne[0] / block_size, w->ne[1], ggml_nrows(x), static_cast<const char *>(w->data), static_cast<int64_t>(w->nb[1]),
			static_cast<float *>(op->data), static_cast<int64_t>(op->nb[1] / sizeof(float)), rounded,
			static_cast<int64_t>(params->nth * tile_rows * w->nb[1]),
		};
		// The work is cut into tiles of rows, and where those are few for the threads, into ranges of columns as well.
		const int64_t tiles = (p.rows + tile_rows - 1) / tile_rows;
		const int64_t ranges = std::clamp(4 * params->nth / tiles, int64_t(1), std::max(p.columns / 48, int64_t(1)));
		for (int64_t i = params->ith; i < tiles * ranges; i = ggml_threadpool_chunk_add(params->threadpool, 1)) {
			const int64_t range = i / tiles;
			multiply_tile(p, i % tiles * tile_rows, p.columns * range / ranges, p.columns * (range + 1) / ranges, scratch);
		}
		return true;
	}
};

// flat says that the columns of t lie at equal distances over all its dimensions.
bool flat(const ggml_tensor *t) {
	return t->nb[0] == sizeof(float) && t->nb[2] == t->nb[1] * t->ne[1] && t->nb[3] == t->nb[2] * t->ne[2];
}

} // namespace

// One matrix of weights, in ordinary memory, for all columns.
ggml::cpu::tensor_traits *product_kernel(const ggml_tensor *op) {
	static traits kernel;
	if (op->op != GGML_OP_MUL_MAT) return nullptr;
	const ggml_tensor *w = op->src[0], *x = op->src[1];
	const bool types = w->type == GGML_TYPE_Q8_0 && x->type == GGML_TYPE_F32;
	const bool shapes = ggml_n_dims(w) <= 2 && w->nb[0] == sizeof(weights) && flat(x) && flat(op);
	return types && shapes && w->buffer && ggml_backend_buft_is_host(w->buffer->buft) ? &kernel : nullptr;
}

#endif
