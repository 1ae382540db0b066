package engine

import (
	"context"
	"time"
)

// Engine is one llama.cpp context over a Model: it runs many requests at once.
type Engine struct{}

// NewEngine makes an Engine. It fails with ErrOutOfMemory where its memory cannot be had.
func (m *Model) NewEngine(ctx context.Context, opt EngineOptions) (*Engine, error) {
	return nil, errStub
}

// Close ends all generations (StopCancelled), waits for the running step and frees the context. Safe to call twice.
func (e *Engine) Close() error { return errStub }

// Model is the model that the engine runs.
func (e *Engine) Model() *Model { return nil }

// ContextLength is the most tokens of one request, prompt and generation together.
func (e *Engine) ContextLength() int { return 0 }

// Generate starts a request and returns at once; ctx ends it. An impossible request (empty prompt, ids outside the
// vocabulary, a prompt longer than the context: ErrContextFull) is refused here.
func (e *Engine) Generate(ctx context.Context, req Request) (*Stream, error) { return nil, errStub }

// Join announces a caller that sends requests one after another, before its first; leave ends it. It matters with
// EngineOptions.Deterministic only: no step is made while a joined caller has no request here, so that what shares a
// batch depends on the requests and their Order, not on the clock.
func (e *Engine) Join() (leave func()) { return func() {} }

// SetAdapters replaces the adapters in use, between two steps. What was computed with others is forgotten, so it is
// refused while requests run.
func (e *Engine) SetAdapters(adapters []AdapterScale) error { return errStub }

// Stats are counters since the engine was made; rates follow from the difference of two readings.
type Stats struct {
	Requests  int // submitted
	Finished  int // ended, for whatever reason
	Waiting   int // now in the queue
	Running   int // now in a lane
	Held      int // idle sequences now kept for reuse
	UsedCells int // tokens in memory now; what several sequences share counts once
	Cells     int // room of the memory

	PromptTokens  int // tokens of all admitted prompts
	PrefixHits    int // of these, found in memory
	PrefillTokens int // tokens read in prompt steps; after a preemption they count again
	DecodeTokens  int // tokens read in decode steps

	PromptSteps int
	DecodeSteps int
	Lanes       int

	Continued   int // requests that went on in the sequence of their last turn
	Forked      int // requests that began as a copy of a held prefix
	Misses      int // requests that began from nothing
	Kept        int // shared prefixes put aside
	Evictions   int // held sequences dropped for room
	Preemptions int // lanes dropped for room, to be read again

	StepTime    time.Duration // wall time of all steps
	BackendTime time.Duration // of this, in llama.cpp and sampling
	Occupancy   float64       // mean share of the lanes that a decode step used, 0 to 1
}

// Stats reads the counters.
func (e *Engine) Stats() Stats { return Stats{} }

// Memory is what the engine and its model hold, as measured when they were made.
func (e *Engine) Memory() Memory { return Memory{} }
