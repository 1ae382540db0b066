package sched

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Request is one generation: read Prompt, then sample tokens until something ends it.
type Request struct {
	// Prompt is the whole conversation so far, as token ids; at least one. A conversation grows by appending: the last
	// prompt, what was generated after it, the new ids. Whatever of it is still in memory is not read again. The caller
	// must not change the slice while the request runs.
	Prompt []Token

	// PrefixLen marks how much of Prompt other requests will begin with too (system text, tools, the schema of a
	// database). It is kept for them, even if none of them waits yet. 0: no hint. What waiting requests share is found
	// without it.
	PrefixLen int

	// MaxTokens is the most tokens to generate, at least 1.
	MaxTokens int

	// Sampler chooses the tokens. Each request needs its own.
	Sampler Sampler

	// Order ranks requests in deterministic mode, where lower goes first whatever arrived first. Unused otherwise.
	Order int
}

// Reason says why a generation ended.
type Reason uint8

const (
	Running     Reason = iota
	Stopped            // the sampler said that its token is final
	MaxTokens          // the budget is used up
	ContextFull        // no more room for this conversation; what was generated is valid
	Cancelled          // the caller's doing
	Failed             // Result.Err says why
)

func (r Reason) String() string {
	return [...]string{"running", "stopped", "max_tokens", "context_full", "cancelled", "error"}[r]
}

// ErrClosed ends the requests that a closed Scheduler still had.
var ErrClosed = errors.New("the engine is closed")

// Result is what is known of a generation; final once Stream.Next has returned false.
type Result struct {
	Reason    Reason
	Err       error // set when Reason is Failed
	Prompt    int   // tokens of the prompt
	Cached    int   // of these, found in memory when the request was first admitted
	Generated int   // tokens sampled, the final one included
	Preempted int   // times the request lost its place and was read again
}

// Stream is the output of one Request. One goroutine reads it; Cancel and Result may be called from any.
type Stream struct {
	wakeScheduler func()
	cancelled     atomic.Bool

	mu     sync.Mutex
	fresh  []Choice // sampled, not yet taken by the reader
	result Result
	signal chan struct{} // holds one value when fresh or result has changed

	taken []Choice // the reader's: taken[next:] is what Next returns without a lock
	next  int
}

func newStream(prompt int, wakeScheduler func()) *Stream {
	return &Stream{
		wakeScheduler: wakeScheduler,
		signal:        make(chan struct{}, 1),
		result:        Result{Prompt: prompt},
	}
}

// Next returns the next token, and waits for it. False: the generation has ended, see Result.
func (s *Stream) Next() (Choice, bool) {
	for s.next == len(s.taken) {
		if !s.take() {
			return Choice{}, false
		}
	}
	c := s.taken[s.next]
	s.next++
	return c, true
}

// take waits for fresh tokens and swaps them with the slice that the reader is through with, so that two slices serve
// the whole stream. False: there are none and there will be none.
func (s *Stream) take() bool {
	for {
		s.mu.Lock()
		if len(s.fresh) > 0 {
			s.taken, s.fresh, s.next = s.fresh, s.taken[:0], 0
			s.mu.Unlock()
			return true
		}
		ended := s.result.Reason != Running
		s.mu.Unlock()
		if ended {
			return false
		}
		<-s.signal
	}
}

// Cancel asks to end the generation. It takes effect after the step that is running now; Next may still return tokens
// that were sampled before.
func (s *Stream) Cancel() {
	if !s.cancelled.Swap(true) {
		s.wakeScheduler()
	}
}

// Result returns the state of the generation: Reason is Running until it has ended.
func (s *Stream) Result() Result {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.result
}

// update changes the result, and hands over a token where there is one; the Scheduler's side of the stream.
func (s *Stream) update(change func(*Result)) {
	s.mu.Lock()
	change(&s.result)
	s.mu.Unlock()
	s.notify()
}

func (s *Stream) push(c Choice) {
	s.mu.Lock()
	s.fresh = append(s.fresh, c)
	s.result.Generated++
	s.mu.Unlock()
	s.notify()
}

func (s *Stream) notify() {
	select {
	case s.signal <- struct{}{}:
	default: // the reader has not yet seen the last one
	}
}
