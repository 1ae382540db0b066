package engine

import (
	"errors"

	"quern/engine/internal/llama"
	"quern/engine/internal/sched"
)

// backend is a llama.cpp context as the scheduler wants to see it. The scheduler's goroutine owns it.
type backend struct {
	context *llama.Context
	caps    sched.Caps

	// With graph sampling each sequence that runs greedy requests keeps a chain set on it, since setting one makes
	// llama.cpp plan its graphs anew. Index: sequence id; nil where none is set.
	sampleInGraph bool
	chains        []*llama.Sampler
}

func newBackend(e *Engine) *backend {
	c := e.context
	attentionOnly := !e.model.llama.IsHybrid() && !e.model.llama.IsRecurrent()
	return &backend{
		context: c,
		caps: sched.Caps{
			CtxTokens:   c.Ctx(),
			SeqTokens:   min(c.CtxSeq(), e.opt.ContextLength),
			BatchTokens: c.Batch(),
			ChunkTokens: c.Ubatch(),
			MaxSeqs:     c.Seqs(),
			MaxLogits:   c.Outputs(),
			Unified:     !e.opt.SplitKV,
			TrimAny:     attentionOnly,
			TrimTail:    c.Rollback(),
		},
		sampleInGraph: e.opt.GraphSampling == On || e.opt.GraphSampling == Auto && e.model.gpuLayers > e.model.Layers(),
		chains:        make([]*llama.Sampler, c.Seqs()),
	}
}

func (b *backend) Caps() sched.Caps { return b.caps }

func (b *backend) Decode(batch *sched.Batch) error {
	switch err := b.context.Decode(batch.Tokens, batch.Pos, batch.Seqs, batch.Logits); {
	case err == nil:
		return nil
	case errors.Is(err, llama.ErrNoSlot):
		return sched.ErrNoSlot
	case errors.Is(err, llama.ErrAborted):
		return sched.ErrAborted
	default:
		return &Error{Op: "decode", Kind: ErrDecode, Err: err}
	}
}

func (b *backend) CopySeq(dst, src sched.SeqID) error       { return b.context.CopySeq(dst, src) }
func (b *backend) RemoveSeq(seq sched.SeqID, from int) bool { return b.context.ForgetSeq(seq, from) }
func (b *backend) SeqLen(seq sched.SeqID) int               { return b.context.SeqLen(seq) }

// bindGreedy makes the graph choose the tokens of a sequence, if it can; then chain samples them.
func (b *backend) bindGreedy(seq sched.SeqID) (chain *llama.Sampler) {
	if !b.sampleInGraph {
		return nil
	}
	if b.chains[seq] == nil {
		chain := llama.NewSampler()
		chain.AddGreedy()
		if accepted, err := b.context.SetSampler(seq, chain); err != nil || !accepted {
			chain.Close()
			b.sampleInGraph = false // what this backend cannot do once it never can
			return nil
		}
		b.chains[seq] = chain
	}
	return b.chains[seq]
}

// bindLogits makes sure that the logits of a sequence come out of the graph.
func (b *backend) bindLogits(seq sched.SeqID) {
	if chain := b.chains[seq]; chain != nil {
		b.context.SetSampler(seq, nil)
		chain.Close()
		b.chains[seq] = nil
	}
}

func (b *backend) close() {
	for seq := range b.chains {
		b.bindLogits(sched.SeqID(seq))
	}
}
