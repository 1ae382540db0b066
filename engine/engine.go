package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"

	"quern/engine/internal/llama"
	"quern/engine/internal/sched"
)

// Engine is one llama.cpp context over a Model: it runs many requests at once.
type Engine struct {
	model     *Model
	ownsModel bool
	opt       EngineOptions // with the defaults filled in
	pieces    []string      // text of each token, "" for control tokens
	context   *llama.Context
	backend   *backend
	sched     *sched.Scheduler

	mu       sync.Mutex
	closed   bool
	samplers map[*sampler]bool // open ones, which hold C memory
}

// maxContext bounds the default of EngineOptions.ContextLength: models trained for a million tokens would take all memory.
const maxContext = 16384

func (o EngineOptions) check() error {
	switch {
	case o.ContextLength < 0 || o.ContextLength > 1<<24:
		return fmt.Errorf("a context of %d tokens: want 1 to %d, or 0 for the default", o.ContextLength, 1<<24)
	case o.Lanes < 0 || o.Lanes > llama.MaxSeqs/2:
		return fmt.Errorf("%d lanes: want 1 to %d, or 0 for the default", o.Lanes, llama.MaxSeqs/2)
	case o.Holders < -1 || o.Holders > llama.MaxSeqs-max(o.Lanes, 1):
		return fmt.Errorf("%d holders: want -1 to %d", o.Holders, llama.MaxSeqs-max(o.Lanes, 1))
	case o.Pool < 0 || o.Pool > 1<<28 || o.Rollback < 0 || o.Rollback > 64 || o.BatchTokens < 0 || o.BatchTokens > 1<<16 ||
		o.Threads < 0 || o.Threads > 512 || o.PromptThreads < 0 || o.PromptThreads > 512:
		return errors.New("an engine option is out of range (Pool, Rollback, BatchTokens, Threads or PromptThreads)")
	}
	return nil
}

// withDefaults fills in what was left to the engine.
func (o EngineOptions) withDefaults(h *header) EngineOptions {
	o.ContextLength = cmp.Or(o.ContextLength, min(h.contextLength, maxContext))
	o.Lanes = cmp.Or(o.Lanes, 1)
	switch {
	case o.Holders == -1 || o.Holders == 0 && o.SplitKV:
		o.Holders = 0
	case o.Holders == 0:
		o.Holders = max(o.Lanes, 8)
	}
	o.Pool = cmp.Or(o.Pool, o.Lanes*o.ContextLength)
	if o.SplitKV {
		o.Pool = (o.Lanes + o.Holders) * o.ContextLength
	}
	o.BatchTokens = max(cmp.Or(o.BatchTokens, 512), o.Lanes)
	o.Threads = cmp.Or(o.Threads, defaultThreads(h))
	o.PromptThreads = cmp.Or(o.PromptThreads, o.Threads)
	o.KVType = cmp.Or(o.KVType, KVF16)
	return o
}

// sharedWork is the size of a model, in bytes of weights, from which on it pays to share a step between threads.
const sharedWork = 32 << 20

// defaultThreads is one thread per CPU, but one alone for a tiny model: its threads would spend their time waiting for
// each other, and ggml's wait by spinning, so that on a busy machine they take each other's CPU.
func defaultThreads(h *header) int {
	if h.weightBytes < sharedWork {
		return 1
	}
	return runtime.GOMAXPROCS(0)
}

// contextParams are the options in llama.cpp's words.
func (o EngineOptions) contextParams() llama.ContextParams {
	flash := map[Switch]llama.FlashAttention{Auto: llama.FlashAuto, On: llama.FlashOn, Off: llama.FlashOff}
	return llama.ContextParams{
		Ctx:          o.Pool,
		Batch:        o.BatchTokens,
		Ubatch:       o.BatchTokens,
		Seqs:         o.Lanes + o.Holders,
		Rollback:     o.Rollback,
		Outputs:      o.Lanes + o.Holders, // llama.cpp plans its graphs with one for every sequence
		Threads:      o.Threads,
		BatchThreads: o.PromptThreads,
		Flash:        flash[o.FlashAttention],
		KVType:       string(o.KVType),
		Unified:      !o.SplitKV,
	}
}

// eagerness, of 100, is how long the threads of an engine spin for the next step before they sleep: some milliseconds,
// enough for the gap between two steps, and too short to keep a CPU from others when there is nothing to do.
const eagerness = 1

// NewEngine makes an Engine. It fails with ErrOutOfMemory where its memory cannot be had.
func (m *Model) NewEngine(ctx context.Context, opt EngineOptions) (*Engine, error) {
	fail := func(kind, err error) (*Engine, error) {
		return nil, &Error{Op: "new engine for", Path: m.path, Kind: kind, Err: err}
	}
	if err := opt.check(); err != nil {
		return fail(nil, err)
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if err := m.acquire(); err != nil {
		return fail(ErrClosed, err)
	}
	e := &Engine{model: m, opt: opt.withDefaults(m.header), samplers: make(map[*sampler]bool)}
	if err := e.start(); err != nil {
		e.stop()
		return fail(kindOf(err, nil), err)
	}
	return e, nil
}

func (e *Engine) start() (err error) {
	m := e.model
	switch {
	case len(m.header.tensors) == 0:
		return errors.New("the model was loaded with VocabOnly: it has no weights")
	case m.llama.HasEncoder() || !m.llama.HasDecoder() || m.llama.IsDiffusion():
		return fmt.Errorf("%w: architecture %s does not generate token by token", errUnsupported, m.Architecture())
	}
	if e.pieces, err = m.pieces(); err != nil {
		return err
	}
	if e.context, err = llama.NewContext(m.llama, e.opt.contextParams()); err != nil {
		return err
	}
	if n := max(e.opt.Threads, e.opt.PromptThreads); n > 1 {
		e.context.AttachThreads(n, eagerness)
	}
	if err := e.useAdapters(); err != nil {
		return err
	}
	e.backend = newBackend(e)
	e.sched, err = sched.New(e.backend, sched.Config{Lanes: e.opt.Lanes, Deterministic: e.opt.Deterministic, Log: e.opt.Log})
	return err
}

// Close ends all generations (ErrClosed), breaks off the running step where the backend can, and frees the context.
// Safe to call twice.
func (e *Engine) Close() error {
	e.mu.Lock()
	closed := e.closed
	e.closed = true
	e.mu.Unlock()
	if closed {
		return nil
	}
	e.context.Abort()
	e.sched.Close()
	e.stop()
	if e.ownsModel {
		return e.model.Close()
	}
	return nil
}

// stop frees what start has made.
func (e *Engine) stop() {
	if e.backend != nil {
		e.backend.close()
	}
	e.mu.Lock()
	for s := range e.samplers {
		s.chain.Close()
	}
	clear(e.samplers)
	e.mu.Unlock()
	if e.context != nil {
		e.context.Close()
	}
	for _, a := range e.opt.Adapters {
		a.Adapter.release()
	}
	e.model.release()
}

// Model is the model that the engine runs.
func (e *Engine) Model() *Model { return e.model }

// Options are the engine's options, with the defaults filled in.
func (e *Engine) Options() EngineOptions { return e.opt }

// ContextLength is the most tokens of one request, prompt and generation together.
func (e *Engine) ContextLength() int { return e.backend.caps.SeqTokens }

// Join announces a caller that sends requests one after another, before its first; leave ends it. It matters with
// EngineOptions.Deterministic only: no step is made while a joined caller has no request here, so that what shares a
// batch depends on the requests and their Order, not on the clock.
func (e *Engine) Join() (leave func()) { return e.sched.Join() }

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
func (e *Engine) Stats() Stats {
	s := e.sched.Stats()
	return Stats{
		Requests: s.Requests, Finished: s.Finished, Waiting: s.Waiting, Running: s.Running, Held: s.Held,
		UsedCells: s.UsedCells, Cells: s.Cells,
		PromptTokens: s.PromptTokens, PrefixHits: s.PrefixHits, PrefillTokens: s.PrefillTokens, DecodeTokens: s.DecodeTokens,
		PromptSteps: s.PromptSteps, DecodeSteps: s.DecodeSteps, Lanes: s.Lanes,
		Continued: s.Continued, Forked: s.Forked, Misses: s.Misses, Kept: s.Kept, Evictions: s.Evictions, Preemptions: s.Preemptions,
		StepTime: s.StepTime, BackendTime: s.BackendTime, Occupancy: s.Occupancy(),
	}
}
