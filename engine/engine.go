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

// SetAdapters replaces the adapters in use, between two steps. What was computed with others is forgotten, so it is
// refused while requests run.
func (e *Engine) SetAdapters(adapters []AdapterScale) error { return errStub }

// Stats are counters since the engine was made.
type Stats struct {
	Lanes         int // as configured
	Active        int // requests in a lane now
	Waiting       int // requests that wait for one
	Steps         int64
	PrefillTokens int64         // prompt tokens computed
	CachedTokens  int64         // prompt tokens taken from memory instead
	DecodeTokens  int64         // tokens generated
	Evictions     int64         // held prefixes given up for room
	Preemptions   int64         // lanes set back for room
	StepTime      time.Duration // in llama.cpp
	OwnTime       time.Duration // in Quern's scheduler between steps with work
	Occupancy     float64       // mean share of lanes busy per step, 0 to 1
}

// Stats reads the counters.
func (e *Engine) Stats() Stats { return Stats{} }

// Memory is what the engine and its model hold, as measured when they were made.
func (e *Engine) Memory() Memory { return Memory{} }
