package sched

import (
	"errors"
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
