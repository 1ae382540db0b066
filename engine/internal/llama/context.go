package llama

// #include <stdlib.h>
// #include "ggml-cpu.h"
// #include "shim.h"
import "C"

import (
	"errors"
	"fmt"
	"unsafe"
)

// The results of Context.Decode beside success. Any other error is fatal for the sequences of that batch: finished
// micro-batches stay in memory.
var (
	ErrNoSlot  = errors.New("no room in the memory for this batch") // 1: memory is as before the call
	ErrAborted = errors.New("aborted")                              // 2: finished micro-batches stay in memory
)

// FlashAttention is enum llama_flash_attn_type.
type FlashAttention int32

const (
	FlashAuto FlashAttention = C.LLAMA_FLASH_ATTN_TYPE_AUTO
	FlashOff  FlashAttention = C.LLAMA_FLASH_ATTN_TYPE_DISABLED
	FlashOn   FlashAttention = C.LLAMA_FLASH_ATTN_TYPE_ENABLED
)

// kvTypes are the ggml types that the key/value memory can have.
var kvTypes = map[string]C.enum_ggml_type{
	"f32": C.GGML_TYPE_F32, "f16": C.GGML_TYPE_F16, "bf16": C.GGML_TYPE_BF16,
	"q8_0": C.GGML_TYPE_Q8_0, "q5_1": C.GGML_TYPE_Q5_1, "q5_0": C.GGML_TYPE_Q5_0,
	"q4_1": C.GGML_TYPE_Q4_1, "q4_0": C.GGML_TYPE_Q4_0,
}

// ContextParams are the members of llama_context_params that Quern sets.
type ContextParams struct {
	Ctx          int // n_ctx: tokens of the whole memory
	Batch        int // n_batch: rows of one Decode
	Ubatch       int // n_ubatch: rows of one graph, at most Batch
	Seqs         int // n_seq_max, at most MaxSeqs
	Rollback     int // n_rs_seq: tail tokens a hybrid memory can drop
	Outputs      int // n_outputs_max: rows with logits in one Decode
	Threads      int // n_threads
	BatchThreads int // n_threads_batch
	Flash        FlashAttention
	KVType       string // "f16", "f32", "q8_0", …
	Unified      bool   // kv_unified
}

// MaxSeqs is LLAMA_MAX_SEQ.
const MaxSeqs = 256

// Context is llama_context: the memory of sequences and the forward pass. One goroutine at a time may use it; Abort
// may be called from any.
type Context struct {
	c      *C.struct_llama_context
	mem    C.llama_memory_t
	model  *Model
	batch  C.struct_llama_batch
	err    **C.char // C memory, so that Decode allocates nothing
	abort  *C.bool  // C memory: read by llama.cpp's abort callback
	pool   C.ggml_threadpool_t
	nBatch int
	nOut   int
	seqs   int
	vocab  int
	sizes  string
}

// NewContext makes a context (llama_init_from_model). The model must outlive it.
func NewContext(m *Model, p ContextParams) (*Context, error) {
	kv, known := kvTypes[p.KVType]
	switch {
	case !known:
		return nil, fmt.Errorf("key/value type %q: want f16, f32, bf16, q8_0, q5_1, q5_0, q4_1 or q4_0", p.KVType)
	case p.Seqs < 1 || p.Seqs > MaxSeqs:
		return nil, fmt.Errorf("%d sequences: want 1 to %d", p.Seqs, MaxSeqs)
	case p.Ctx < 1 || p.Batch < 1 || p.Ubatch < 1 || p.Ubatch > p.Batch || p.Outputs < 1 || p.Threads < 1 || p.BatchThreads < 1:
		return nil, fmt.Errorf("context parameters out of range: %+v", p)
	}
	params := C.llama_context_default_params()
	params.n_ctx = C.uint32_t(p.Ctx)
	params.n_batch = C.uint32_t(p.Batch)
	params.n_ubatch = C.uint32_t(p.Ubatch)
	params.n_seq_max = C.uint32_t(p.Seqs)
	params.n_rs_seq = C.uint32_t(p.Rollback)
	params.n_outputs_max = C.uint32_t(p.Outputs)
	params.n_threads = C.int32_t(p.Threads)
	params.n_threads_batch = C.int32_t(p.BatchThreads)
	params.flash_attn_type = C.enum_llama_flash_attn_type(p.Flash)
	params.type_k, params.type_v = kv, kv
	params.kv_unified = C.bool(p.Unified)
	params.no_perf = true

	c := &Context{model: m, nBatch: p.Batch, nOut: p.Outputs, seqs: p.Seqs, vocab: m.VocabSize()}
	c.abort = (*C.bool)(C.calloc(1, 1))
	params.abort_callback = C.ggml_abort_callback(C.qn_abort)
	params.abort_callback_data = unsafe.Pointer(c.abort)
	sizes, err := takeReport(C.qn_context_new(m.c, params, &c.c))
	if err != nil {
		C.free(unsafe.Pointer(c.abort))
		return nil, err
	}
	c.sizes = sizes
	c.mem = C.llama_get_memory(c.c)
	c.batch = C.llama_batch_init(C.int32_t(p.Batch), 0, 1)
	c.err = (**C.char)(C.calloc(1, C.size_t(unsafe.Sizeof(uintptr(0)))))
	return c, nil
}

// Close frees the context (llama_free). Samplers set with SetSampler are still the caller's.
func (c *Context) Close() {
	if c.c == nil {
		return
	}
	C.llama_free(c.c)
	C.llama_batch_free(c.batch)
	C.free(unsafe.Pointer(c.err))
	C.free(unsafe.Pointer(c.abort))
	if c.pool != nil {
		C.ggml_threadpool_free(c.pool)
	}
	c.c = nil
}

// AttachThreads keeps n threads for this context between steps (ggml_threadpool_new, llama_attach_threadpool) instead
// of starting them in each. poll, 0 to 100, is how eagerly they wait for work.
func (c *Context) AttachThreads(n, poll int) {
	params := C.ggml_threadpool_params_default(C.int(n))
	params.poll = C.uint32_t(poll)
	if c.pool = C.ggml_threadpool_new(&params); c.pool != nil {
		C.llama_attach_threadpool(c.c, c.pool, nil)
	}
}

// Sizes are the log lines of the creation that name buffer sizes.
func (c *Context) Sizes() string { return c.sizes }

func (c *Context) Ctx() int      { return int(C.llama_n_ctx(c.c)) }     // tokens of the whole memory, as rounded up
func (c *Context) CtxSeq() int   { return int(C.llama_n_ctx_seq(c.c)) } // tokens of one sequence
func (c *Context) Batch() int    { return int(C.llama_n_batch(c.c)) }
func (c *Context) Ubatch() int   { return int(C.llama_n_ubatch(c.c)) }
func (c *Context) Seqs() int     { return c.seqs }
func (c *Context) Outputs() int  { return c.nOut }
func (c *Context) Rollback() int { return int(C.llama_n_rs_seq(c.c)) }

// Decode runs one batch through the model (llama_decode): row i is token[i] at pos[i] of sequence seq[i]; its logits
// can be read afterwards where logits[i] is not 0. It blocks for the whole forward pass and allocates nothing.
//
// ErrNoSlot: memory is as before the call. ErrAborted and other errors: finished micro-batches stay in memory, so read
// SeqLen before trying again.
func (c *Context) Decode(token []Token, pos, seq []int32, logits []int8) error {
	n := len(token)
	if n == 0 || n > c.nBatch || len(pos) != n || len(seq) != n || len(logits) != n {
		return fmt.Errorf("batch of %d rows (%d positions, %d sequences, %d flags): want 1 to %d of each", n, len(pos), len(seq), len(logits), c.nBatch)
	}
	outputs := 0
	ids := unsafe.Slice(c.batch.seq_id, n)
	counts := unsafe.Slice(c.batch.n_seq_id, n)
	for i, id := range token {
		if id < 0 || int(id) >= c.vocab {
			return fmt.Errorf("row %d: token %d is outside the vocabulary of %d", i, id, c.vocab)
		}
		if seq[i] < 0 || int(seq[i]) >= c.seqs || pos[i] < 0 {
			return fmt.Errorf("row %d: position %d of sequence %d: want 0 or more, in 0 to %d", i, pos[i], seq[i], c.seqs-1)
		}
		if logits[i] != 0 {
			outputs++
		}
		counts[i] = 1
		*ids[i] = C.llama_seq_id(seq[i])
	}
	if outputs > c.nOut {
		return fmt.Errorf("%d rows want logits: at most %d can", outputs, c.nOut)
	}
	c.batch.n_tokens = C.int32_t(n)
	copy(unsafe.Slice((*Token)(unsafe.Pointer(c.batch.token)), n), token)
	copy(unsafe.Slice((*int32)(unsafe.Pointer(c.batch.pos)), n), pos)
	copy(unsafe.Slice((*int8)(unsafe.Pointer(c.batch.logits)), n), logits)
	switch code := C.qn_decode(c.c, c.batch, c.err); code {
	case 0:
		return nil
	case 1:
		return ErrNoSlot
	case 2:
		return ErrAborted
	default:
		return c.decodeError(int(code))
	}
}

func (c *Context) decodeError(code int) error {
	err := takeError(*c.err)
	*c.err = nil
	if err == nil {
		return fmt.Errorf("llama_decode failed with code %d", code)
	}
	return fmt.Errorf("llama_decode: %w", err)
}

// Abort makes a running Decode, and every later one, return ErrAborted soon. It works on the CPU only; other backends
// finish the micro-batch.
func (c *Context) Abort() { C.qn_set_abort(c.abort) }

// ForgetSeq drops the tokens of a sequence from position from on (llama_memory_seq_rm). False: this memory cannot drop
// that tail, and nothing has changed. From 0 always works.
func (c *Context) ForgetSeq(seq int32, from int) bool {
	return seq >= 0 && int(seq) < c.seqs && from >= 0 && bool(C.llama_memory_seq_rm(c.mem, C.llama_seq_id(seq), C.llama_pos(from), -1))
}

// CopySeq makes dst a copy of the whole of src (llama_memory_seq_cp).
func (c *Context) CopySeq(dst, src int32) error {
	if min(dst, src) < 0 || int(max(dst, src)) >= c.seqs || dst == src {
		return fmt.Errorf("copy sequence %d to %d: want two of 0 to %d", src, dst, c.seqs-1)
	}
	C.llama_memory_seq_cp(c.mem, C.llama_seq_id(src), C.llama_seq_id(dst), -1, -1)
	return nil
}

// SeqLen is the last position of a sequence + 1 (llama_memory_seq_pos_max); 0 when it is empty.
func (c *Context) SeqLen(seq int32) int {
	if seq < 0 || int(seq) >= c.seqs {
		return 0
	}
	return int(C.llama_memory_seq_pos_max(c.mem, C.llama_seq_id(seq))) + 1
}

// Logits copies the logits of a batch row of the last Decode to dst and returns it.
func (c *Context) Logits(dst []float32, row int) ([]float32, error) {
	x := C.llama_get_logits_ith(c.c, C.int32_t(row))
	if x == nil {
		return dst, errNoLogits(row)
	}
	return append(dst[:0], unsafe.Slice((*float32)(unsafe.Pointer(x)), c.vocab)...), nil
}

// Greedy is the likeliest token after a batch row of the last Decode; of several, the one with the lowest id.
func (c *Context) Greedy(row int) (Token, error) {
	x := C.llama_get_logits_ith(c.c, C.int32_t(row))
	if x == nil {
		return 0, errNoLogits(row)
	}
	return Token(C.qn_argmax(x, C.int32_t(c.vocab))), nil
}

// Logprob is the natural log-probability of a token after a batch row of the last Decode.
func (c *Context) Logprob(row int, id Token) (float64, error) {
	x := C.llama_get_logits_ith(c.c, C.int32_t(row))
	if x == nil || id < 0 || int(id) >= c.vocab {
		return 0, errNoLogits(row)
	}
	logit := unsafe.Slice((*float32)(unsafe.Pointer(x)), c.vocab)[id]
	return float64(logit) - float64(C.qn_log_sum_exp(x, C.int32_t(c.vocab))), nil
}

// Top are the k likeliest tokens after a batch row of the last Decode, with their natural log-probabilities.
func (c *Context) Top(row, k int) (ids []Token, logprobs []float64, err error) {
	x := C.llama_get_logits_ith(c.c, C.int32_t(row))
	if x == nil {
		return nil, nil, errNoLogits(row)
	}
	if k = min(k, c.vocab); k < 1 {
		return nil, nil, nil
	}
	ids, logprobs = make([]Token, k), make([]float64, k)
	C.qn_top(x, C.int32_t(c.vocab), (*C.int32_t)(unsafe.Pointer(&ids[0])), C.int32_t(k))
	total := float64(C.qn_log_sum_exp(x, C.int32_t(c.vocab)))
	all := unsafe.Slice((*float32)(unsafe.Pointer(x)), c.vocab)
	for i, id := range ids {
		logprobs[i] = float64(all[id]) - total
	}
	return ids, logprobs, nil
}

func errNoLogits(row int) error { return fmt.Errorf("row %d of the last batch has no logits", row) }

// SetAdapters replaces the LoRA adapters in use (llama_set_adapters_lora). What is in memory was computed with the old
// ones; the caller clears it.
func (c *Context) SetAdapters(adapters []*Adapter, scales []float32) error {
	if len(adapters) != len(scales) {
		return fmt.Errorf("%d adapters with %d scales", len(adapters), len(scales))
	}
	list := make([]*C.struct_llama_adapter_lora, len(adapters)+1) // never empty, so that there is an address
	for i, a := range adapters {
		list[i] = a.c
	}
	floats := append(make([]float32, 0, len(scales)+1), scales...)[:len(scales)+1]
	_, err := takeReport(C.qn_set_adapters(c.c, &list[0], C.size_t(len(adapters)), (*C.float)(&floats[0])))
	return err
}
