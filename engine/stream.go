package engine

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"strings"
	"time"
	"unicode/utf8"

	"quern/engine/internal/sched"
)

// Generate starts a request and returns at once; ctx ends it. An impossible request (empty prompt, ids outside the
// vocabulary, a prompt longer than the context: ErrContextFull) is refused here.
func (e *Engine) Generate(ctx context.Context, req Request) (*Stream, error) {
	fail := func(kind, err error) (*Stream, error) { return nil, &Error{Op: "generate", Kind: kind, Err: err} }
	if err := e.checkRequest(req); err != nil {
		return fail(nil, err)
	}
	room := e.ContextLength() - len(req.Prompt)
	if room < 1 {
		return fail(ErrContextFull, fmt.Errorf("the prompt has %d tokens, the context %d", len(req.Prompt), e.ContextLength()))
	}
	limit := req.MaxTokens
	if limit == 0 {
		limit = room + 1 // the last token is not read any more, so it needs no room
	}
	smp, err := e.newSampler(req)
	if err != nil {
		return fail(ErrClosed, err)
	}
	running, err := e.sched.Submit(ctx, sched.Request{
		Prompt: req.Prompt, PrefixLen: req.Prefix, MaxTokens: limit, Sampler: smp, Order: req.Order,
	})
	if err != nil {
		e.closeSampler(smp)
		if errors.Is(err, sched.ErrClosed) {
			return fail(ErrClosed, err)
		}
		return fail(nil, err)
	}
	return &Stream{
		engine: e, sched: running, sampler: smp, begun: time.Now(),
		text:   assembler{stops: req.Stop},
		result: Result{Tokens: make([]Token, 0, min(limit, 4096))},
	}, nil
}

func (e *Engine) checkRequest(req Request) error {
	if len(req.Prompt) == 0 {
		return errors.New("the prompt is empty")
	}
	vocab := e.model.VocabSize()
	for _, id := range req.Prompt {
		if id < 0 || int(id) >= vocab {
			return errOutside(id, vocab)
		}
	}
	for _, stop := range req.Stop {
		if stop == "" {
			return errors.New("a stop text is empty")
		}
	}
	switch {
	case req.MaxTokens < 0 || req.Prefix < 0 || req.TopLogprobs < 0 || req.TopLogprobs > 1000:
		return fmt.Errorf("out of range: MaxTokens %d, Prefix %d (0 or more), TopLogprobs %d (0 to 1000)", req.MaxTokens, req.Prefix, req.TopLogprobs)
	case req.Prefix > len(req.Prompt):
		return fmt.Errorf("a shared prefix of %d tokens in a prompt of %d", req.Prefix, len(req.Prompt))
	}
	return req.Sampling.check()
}

func errOutside(id Token, vocab int) error {
	return fmt.Errorf("token %d is outside the vocabulary of %d", id, vocab)
}

func (e *Engine) newSampler(req Request) (*sampler, error) {
	s := &sampler{
		engine: e, stops: newStopScanner(req.Stop), top: req.TopLogprobs, probs: req.Logprobs || req.TopLogprobs > 0,
	}
	if !req.IgnoreEnd {
		s.ends = e.model.isEnd
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return nil, ErrClosed
	}
	if s.chain = req.Sampling.chain(e.model.VocabSize(), req.Prompt); s.chain != nil {
		e.samplers[s] = true
	}
	return s, nil
}

// closeSampler frees a sampler's C memory, unless the engine has done so.
func (e *Engine) closeSampler(s *sampler) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.samplers[s] {
		delete(e.samplers, s)
		s.chain.Close()
	}
}

// Stream is a running generation. It must be read by one goroutine, to its end.
type Stream struct {
	engine  *Engine
	sched   *sched.Stream
	sampler *sampler
	begun   time.Time
	text    assembler
	result  Result
	ended   bool
	err     error
}

// Events yields each event as it happens, EventDone last. A cancelled generation is an EventDone with StopCancelled,
// not an error; an error (ErrDecode, ErrClosed) ends the sequence. Leaving the loop early cancels the generation.
func (s *Stream) Events() iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		for {
			event, ok := s.next()
			if !ok {
				break
			}
			if !yield(event, nil) {
				s.Cancel()
				s.Wait() // within one step; then nothing of it is left in the engine
				return
			}
		}
		if s.err != nil {
			yield(Event{}, s.err)
			return
		}
		yield(Event{Kind: EventDone, Text: s.text.rest, Result: &s.result}, nil)
	}
}

// Wait reads the stream to its end.
func (s *Stream) Wait() (Result, error) {
	for {
		if _, ok := s.next(); !ok {
			return s.result, s.err
		}
	}
}

// Cancel ends the generation within one step. It may be called from any goroutine, at any time.
func (s *Stream) Cancel() { s.sched.Cancel() }

// Forget says that nobody will go on with the conversation whose last generation this was: only its first keep tokens
// may be asked for again, as the beginning of another. What it alone holds in memory is then free at once. Without it
// the conversation stays until its room is needed, and until then the attention of every step passes over its tokens.
// Call it after the end, and in deterministic mode before the caller leaves (see Engine.Join).
func (s *Stream) Forget(keep int) { s.engine.sched.Forget(s.sched, keep) }

// next waits for the next token; false at the end, when result and err are complete.
func (s *Stream) next() (Event, bool) {
	if s.ended {
		return Event{}, false
	}
	choice, ok := s.sched.Next()
	if !ok {
		s.finish()
		return Event{}, false
	}
	if len(s.result.Tokens) == 0 {
		s.result.Usage.FirstToken = time.Since(s.begun)
	}
	s.result.Tokens = append(s.result.Tokens, choice.Token)
	s.result.LogprobTotal += float64(choice.Logprob)
	event := Event{Kind: EventToken, Token: choice.Token, Logprob: float64(choice.Logprob)}
	if !s.engine.model.isEnd[choice.Token] {
		event.Text = s.text.add(s.engine.pieces[choice.Token])
	}
	for _, alt := range choice.Top {
		event.Top = append(event.Top, TokenLogprob{ID: alt.Token, Logprob: float64(alt.Logprob)})
	}
	return event, true
}

func (s *Stream) finish() {
	s.ended = true
	s.engine.closeSampler(s.sampler)
	s.text.end()
	r := s.sched.Result()
	s.result.Text = s.text.all.String()
	s.result.Usage.PromptTokens, s.result.Usage.CachedTokens = r.Prompt, r.Cached
	s.result.Usage.Generated, s.result.Usage.Preempted = r.Generated, r.Preempted
	s.result.Usage.Total = time.Since(s.begun)
	switch r.Reason {
	case sched.Stopped:
		s.result.Stop = StopEnd
		if s.text.stopped {
			s.result.Stop = StopString
		}
	case sched.MaxTokens:
		s.result.Stop = StopMaxTokens
	case sched.ContextFull:
		s.result.Stop = StopContextFull
	case sched.Cancelled:
		s.result.Stop = StopCancelled
	default:
		s.err = &Error{Op: "generate", Kind: ErrDecode, Err: r.Err}
		if errors.Is(r.Err, sched.ErrClosed) {
			s.err = &Error{Op: "generate", Kind: ErrClosed, Err: r.Err}
		}
	}
}

// assembler makes text of the pieces of tokens: whole UTF-8 characters, and nothing behind or of a stop text.
type assembler struct {
	stops   []string
	held    []byte // not given out yet: part of a character, or perhaps the beginning of a stop text
	all     strings.Builder
	stopped bool   // a stop text came up; nothing follows
	rest    string // what end gave out
}

// add takes the piece of the next token and returns what can be given out.
func (a *assembler) add(piece string) string {
	if a.stopped || piece == "" {
		return ""
	}
	if len(a.held) == 0 && utf8.ValidString(piece) && a.harmless(piece) {
		a.all.WriteString(piece) // the usual case, in which nothing is allocated
		return piece
	}
	a.held = append(a.held, piece...)
	ready := len(a.held)
	for _, stop := range a.stops {
		if i := strings.Index(string(a.held), stop); i >= 0 && (!a.stopped || i < ready) {
			a.stopped, ready = true, i
		}
	}
	if a.stopped {
		text := a.give(ready)
		a.held = nil
		return text
	}
	for _, stop := range a.stops {
		ready = min(ready, len(a.held)-overlap(string(a.held), stop))
	}
	return a.give(wholeRunes(a.held[:ready]))
}

// harmless says that no stop text is in text, and that none begins in it.
func (a *assembler) harmless(text string) bool {
	for _, stop := range a.stops {
		if strings.Contains(text, stop) || overlap(text, stop) > 0 {
			return false
		}
	}
	return true
}

// end gives out what was held back.
func (a *assembler) end() {
	if !a.stopped {
		a.rest = a.give(len(a.held))
	}
}

// give gives out the first n held bytes. Bytes that are no UTF-8 become U+FFFD.
func (a *assembler) give(n int) string {
	text := strings.ToValidUTF8(string(a.held[:n]), "\uFFFD")
	a.held = a.held[:copy(a.held, a.held[n:])]
	a.all.WriteString(text)
	return text
}

// overlap is the length of the longest end of text with which stop begins.
func overlap(text, stop string) int {
	for n := min(len(text), len(stop)-1); n > 0; n-- {
		if text[len(text)-n:] == stop[:n] {
			return n
		}
	}
	return 0
}

// wholeRunes is the length of text without an unfinished UTF-8 sequence at its end.
func wholeRunes(text []byte) int {
	for back := 1; back <= min(utf8.UTFMax-1, len(text)); back++ {
		if tail := text[len(text)-back:]; utf8.RuneStart(tail[0]) {
			if !utf8.FullRune(tail) {
				return len(text) - back
			}
			break
		}
	}
	return len(text)
}
