package engine

import (
	"bytes"
	"fmt"

	"quern/engine/internal/llama"
	"quern/engine/internal/sched"
)

func (s Sampling) check() error {
	switch {
	case !(s.Temperature >= 0 && s.Temperature <= 100), !(s.TopP >= 0 && s.TopP <= 1), !(s.MinP >= 0 && s.MinP <= 1), s.TopK < 0:
		return fmt.Errorf("sampling out of range: temperature %v (0 to 100), top-p %v and min-p %v (0 to 1), top-k %d (0 or more)", s.Temperature, s.TopP, s.MinP, s.TopK)
	case !(s.RepeatPenalty >= 0 && s.RepeatPenalty <= 100), !(s.PresencePenalty >= -100 && s.PresencePenalty <= 100), !(s.FrequencyPenalty >= -100 && s.FrequencyPenalty <= 100), s.PenaltyWindow < 0 || s.PenaltyWindow > 1<<20:
		return fmt.Errorf("penalties out of range: repeat %v (0 to 100), presence %v and frequency %v (-100 to 100), window %d", s.RepeatPenalty, s.PresencePenalty, s.FrequencyPenalty, s.PenaltyWindow)
	}
	return nil
}

func (s Sampling) penalises() bool {
	return s.RepeatPenalty != 0 && s.RepeatPenalty != 1 || s.PresencePenalty != 0 || s.FrequencyPenalty != 0
}

// chain makes llama.cpp's sampler chain for s, or nil where the likeliest token of the plain logits is all it takes.
func (s Sampling) chain(vocab int, prompt []Token) *llama.Sampler {
	if s.Temperature == 0 && !s.penalises() {
		return nil
	}
	c := llama.NewSampler()
	if s.penalises() {
		window := s.PenaltyWindow
		if window == 0 {
			window = 64
		}
		repeat := s.RepeatPenalty
		if repeat == 0 {
			repeat = 1
		}
		c.AddPenalties(vocab, window, repeat, s.FrequencyPenalty, s.PresencePenalty)
		for _, id := range prompt[max(0, len(prompt)-window):] {
			c.Accept(id)
		}
	}
	if s.Temperature == 0 {
		c.AddGreedy()
		return c
	}
	if s.TopK > 0 {
		c.AddTopK(s.TopK)
	}
	if s.TopP > 0 && s.TopP < 1 {
		c.AddTopP(s.TopP)
	}
	if s.MinP > 0 {
		c.AddMinP(s.MinP)
	}
	c.AddTemp(s.Temperature)
	c.AddDraw(min(s.Seed, 1<<32-2)) // the largest number means a random seed to llama.cpp
	return c
}

// sampler chooses the tokens of one request and knows what ends it. It is called by the scheduler's goroutine.
type sampler struct {
	engine *Engine
	chain  *llama.Sampler // nil: greedy
	bound  *llama.Sampler // the graph's own chain, while the request is greedy and the graph can sample
	ends   []bool         // by id; nil to go on past end tokens
	stops  *stopScanner   // nil without stop texts
	probs  bool
	top    int
}

func (s *sampler) Bind(seq sched.SeqID) {
	if s.chain == nil && !s.probs {
		s.bound = s.engine.backend.bindGreedy(seq)
	} else {
		s.engine.backend.bindLogits(seq)
	}
}

func (s *sampler) Unbind() { s.bound = nil }

func (s *sampler) Sample(row int) (sched.Choice, error) {
	id, err := s.choose(row)
	if err != nil {
		return sched.Choice{}, err
	}
	c := sched.Choice{Token: id, Final: s.ends != nil && s.ends[id]}
	if s.probs {
		if err := s.weigh(&c, row); err != nil {
			return sched.Choice{}, err
		}
	}
	if !c.Final && s.stops != nil {
		c.Final = s.stops.add(s.engine.pieces[id])
	}
	return c, nil
}

func (s *sampler) choose(row int) (Token, error) {
	switch {
	case s.chain != nil:
		return s.chain.Sample(s.engine.context, row)
	case s.bound != nil:
		return s.bound.Sample(s.engine.context, row)
	default:
		return s.engine.context.Greedy(row)
	}
}

// weigh adds the log-probabilities.
func (s *sampler) weigh(c *sched.Choice, row int) error {
	logprob, err := s.engine.context.Logprob(row, c.Token)
	if err != nil {
		return err
	}
	c.Logprob = float32(logprob)
	if s.top == 0 {
		return nil
	}
	ids, logprobs, err := s.engine.context.Top(row, s.top)
	for i, id := range ids {
		c.Top = append(c.Top, sched.Alternative{Token: id, Logprob: float32(logprobs[i])})
	}
	return err
}

// stopScanner finds stop texts in a text that comes in pieces.
type stopScanner struct {
	stops   [][]byte
	longest int
	tail    []byte // the end of the text so far, shorter than the longest stop text
}

func newStopScanner(stops []string) *stopScanner {
	if len(stops) == 0 {
		return nil
	}
	s := &stopScanner{}
	for _, stop := range stops {
		s.stops = append(s.stops, []byte(stop))
		s.longest = max(s.longest, len(stop))
	}
	return s
}

// add takes the next piece and says whether a stop text is complete.
func (s *stopScanner) add(piece string) bool {
	s.tail = append(s.tail, piece...)
	for _, stop := range s.stops {
		if bytes.Contains(s.tail, stop) {
			return true
		}
	}
	if drop := len(s.tail) - (s.longest - 1); drop > 0 {
		s.tail = s.tail[:copy(s.tail, s.tail[drop:])]
	}
	return false
}
