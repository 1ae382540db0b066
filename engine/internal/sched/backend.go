package sched

import "errors"

// Token is an id of the model's vocabulary.
type Token = int32

// SeqID names one sequence of the backend's memory: 0 ≤ id < Caps.MaxSeqs.
type SeqID = int32

// Errors of Backend.Decode. Any other error is fatal for the sequences of that batch: micro-batches that were done stay
// in memory, so the scheduler removes these sequences whole and fails their requests.
var (
	// ErrNoSlot: the memory has no room for the batch and is as it was before the call (llama_decode: 1).
	ErrNoSlot = errors.New("no room in the context for this batch")
	// ErrAborted: the abort callback stopped the call; finished micro-batches stay in memory (llama_decode: 2). The
	// Scheduler reads the sequences of that batch anew, so abort only what is not needed any more.
	ErrAborted = errors.New("decoding was aborted")
)

// Backend is one context of a model: its memory of sequences, and the forward pass. It has no policy; the Scheduler
// decides what to run. All methods are called from the Scheduler's goroutine alone.
//
// A sequence is what the model has read under one id: tokens at positions 0, 1, 2, … without a gap. The Scheduler keeps
// the same list on its side, and never shifts a position nor copies a part of a sequence, since memories with a
// recurrent state can do neither.
type Backend interface {
	// Caps says what this context can do. It does not change.
	Caps() Caps

	// Decode runs one batch through the model, in order, and appends its tokens to their sequences. It blocks for the
	// whole forward pass. Rows with Logits set can be sampled until the next Decode. It keeps no reference to b and,
	// once warm, allocates nothing.
	Decode(b *Batch) error

	// CopySeq makes dst, which is empty, a copy of the whole of src: a fork. With unified memory this is bookkeeping
	// only. Src is unchanged, and neither sees what is later appended to the other (llama_memory_seq_cp).
	CopySeq(dst, src SeqID) error

	// RemoveSeq drops the tokens of seq from position from on; from = 0 empties it, and that always works. False means
	// that the memory cannot drop this tail, and that nothing has changed (llama_memory_seq_rm).
	RemoveSeq(seq SeqID, from int) bool

	// SeqLen is the number of tokens that the memory holds under seq: its last position + 1, 0 when it is empty.
	SeqLen(seq SeqID) int
}

// Caps is what a Backend can do.
type Caps struct {
	CtxTokens   int  // room of the memory in tokens, over all sequences (n_ctx)
	SeqTokens   int  // most tokens of one sequence; CtxTokens when the memory is unified
	BatchTokens int  // most rows of one Decode (n_batch)
	ChunkTokens int  // rows that one graph takes (n_ubatch): the best size of a prompt step
	MaxSeqs     int  // sequence ids (n_seq_max)
	MaxLogits   int  // most rows with logits in one Decode (n_outputs_max)
	Unified     bool // one pool of cells for all sequences: a copy shares the cells of its source
	TrimAny     bool // RemoveSeq works at any position: the memory is attention only
	TrimTail    int  // otherwise: it works for the last TrimTail tokens, once between decodes (n_rs_seq)
}

// Batch is the input of one Decode: rows of (token, position, sequence, wants logits) as parallel slices. Rows of one
// sequence stand together with ascending positions that continue the sequence. The Scheduler fills the same Batch again
// for every step.
type Batch struct {
	Tokens []Token
	Pos    []int32
	Seqs   []SeqID
	Logits []int8 // 1 where the row's logits are wanted, else 0; the layout llama_batch has
}

// Len is the number of rows.
func (b *Batch) Len() int { return len(b.Tokens) }

// Sampler chooses the tokens of one request. The engine makes it and knows what ends a generation: end-of-generation
// ids, stop strings, a grammar. The Scheduler calls it from its own goroutine, between steps, so it must be quick and
// must not block. After the request's stream has ended the Scheduler does not touch it any more.
type Sampler interface {
	// Bind says under which sequence the request runs from now on, before the first row of it that wants logits: a
	// backend that samples inside the graph attaches the sampler here. Unbind follows when the request has ended, and
	// when it is preempted; then Bind comes again with another id. What the sampler remembers (seed, penalties, matched
	// part of a stop string) must survive this.
	Bind(seq SeqID)
	Unbind()

	// Sample returns the token that follows the batch's row `row`, counted as in Batch. An error ends this request only.
	Sample(row int) (Choice, error)
}

// Choice is one sampled token.
type Choice struct {
	Token   Token
	Final   bool          // nothing follows: an end-of-generation token, or a stop string is complete
	Logprob float32       // natural log of its probability; 0 where none was asked for
	Top     []Alternative // the likeliest tokens, best first, where asked for; the receiver's to keep
}

// Alternative is a token that could have been chosen.
type Alternative struct {
	Token   Token
	Logprob float32
}
