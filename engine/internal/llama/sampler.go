package llama

// #include "shim.h"
import "C"

import "errors"

// Sampler is a llama_sampler chain that ends by choosing a token.
type Sampler struct{ c *C.struct_llama_sampler }

// NewSampler makes an empty chain (llama_sampler_chain_init). Add steps in the order in which they are to work.
func NewSampler() *Sampler {
	Init()
	return &Sampler{c: C.llama_sampler_chain_init(C.llama_sampler_chain_default_params())}
}

// Close frees the chain. It must not be set on a Context any more.
func (s *Sampler) Close() {
	if s.c != nil {
		C.llama_sampler_free(s.c)
		s.c = nil
	}
}

// AddPenalties is llama_sampler_init_penalties; window is how many of the last accepted tokens count.
func (s *Sampler) AddPenalties(vocab, window int, repeat, frequency, presence float32) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_penalties(C.int32_t(vocab), C.int32_t(window), C.float(repeat), C.float(frequency), C.float(presence)))
}

func (s *Sampler) AddTopK(k int) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_top_k(C.int32_t(k)))
}
func (s *Sampler) AddTopP(p float32) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_top_p(C.float(p), 1))
}
func (s *Sampler) AddMinP(p float32) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_min_p(C.float(p), 1))
}
func (s *Sampler) AddTemp(t float32) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_temp(C.float(t)))
}
func (s *Sampler) AddDraw(seed uint32) {
	C.llama_sampler_chain_add(s.c, C.llama_sampler_init_dist(C.uint32_t(seed)))
}
func (s *Sampler) AddGreedy() { C.llama_sampler_chain_add(s.c, C.llama_sampler_init_greedy()) }

// Accept tells the chain of a token of the prompt, for its penalties (llama_sampler_accept).
func (s *Sampler) Accept(id Token) { C.llama_sampler_accept(s.c, C.llama_token(id)) }

// Sample chooses and accepts the token after a batch row of the last Decode (llama_sampler_sample). Where the chain is
// set on the row's sequence, the choice was made inside the graph.
func (s *Sampler) Sample(c *Context, row int) (Token, error) {
	if id := Token(C.qn_sample(s.c, c.c, C.int32_t(row))); id >= 0 {
		return id, nil
	}
	return 0, errors.New("no token could be sampled: the logits of this row are not numbers")
}

// SetSampler makes the graph itself sample for a sequence (llama_set_sampler). False: the backend cannot run this chain,
// so it samples from the logits as usual. nil ends it; the chain must stay open until then.
func (c *Context) SetSampler(seq int32, s *Sampler) (accepted bool, err error) {
	if seq < 0 || int(seq) >= c.seqs {
		return false, errors.New("no such sequence")
	}
	var chain *C.struct_llama_sampler
	if s != nil {
		chain = s.c
	}
	var ok C.bool
	_, err = takeReport(C.qn_set_sampler(c.c, C.llama_seq_id(seq), chain, &ok))
	return bool(ok), err
}
