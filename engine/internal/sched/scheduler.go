// Package sched runs many generations at once over one context of a model. It holds no C: it drives a Backend.
//
// A request is read (prefill) and then decoded in a sequence of the backend's memory. At most Config.Lanes sequences are
// at work; all others with content are held: what was read once is kept until its room is needed. The walk of a request:
//
//	Submit → waiting → admit: find the longest held prefix; copy it, or go on in it
//	       → steps that read what is missing of it, in chunks; a copy is kept at each boundary that others share
//	       → steps that read the last token and sample the next, for all such lanes together
//	       → end: the sequence stays, held, and the conversation's next turn goes on where it stopped
//
// Rules that the whole package keeps:
//
//   - Tokens of a sequence are only appended. Nothing is shifted, no part of a sequence is copied: memories with a
//     recurrent state (Qwen3.5) can do neither, and a sequence of theirs cannot even drop its tail.
//   - The scheduler knows what every sequence holds. Each batch is checked against that before the call, since the
//     library would answer a wrong position with wrong text, or end the process.
//   - Lanes stand in a batch in the order of their ids, and ids are reused from below: the graph of a decode step stays
//     the same for as long as possible.
//   - One goroutine owns the Backend and all state here; callers meet it in the inbox and in their Stream only. So no
//     lane waits for a caller: one whose tool is running is simply not in the batch.
//
// When the memory is full, held sequences go first, the least recently used one before others; then the youngest lane
// is preempted, to be read again later; and the last lane that still finds no room ends with ContextFull.
package sched

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// Config holds what the Backend does not decide.
type Config struct {
	Lanes        int // most requests at work at once; 0: as many as the backend's sequences and logits allow
	PromptTokens int // most prompt tokens that one step reads; 0: Caps.ChunkTokens

	// Deterministic makes the batches depend on the requests and not on the clock: lanes are given in the order of
	// Request.Order, nothing is preempted, and no step is made before all joined callers have a request here (see Join).
	Deterministic bool

	Log *slog.Logger // nil: none
}

// Scheduler shares one Backend among requests. Its methods may be called from any goroutine.
type Scheduler struct {
	cfg  Config
	caps Caps
	log  *slog.Logger

	inbox struct { // where callers and the scheduler's goroutine meet
		sync.Mutex
		jobs    []*job
		forgets []forgetting
		arrived uint64
		joined  int
		closed  error // why no request is taken any more
		stats   Stats // the last snapshot
	}
	wake chan struct{} // holds one value when there is something to look at
	done chan struct{} // closed when the goroutine has ended

	// All that follows belongs to the scheduler's goroutine.
	mem     *memory
	held    holders
	waiting queue
	running int    // lanes at work
	changed bool   // something has happened that could let a waiting job in
	clock   uint64 // counts uses of sequences
	last    kind   // what the last step did
	batch   *Batch
	stats   Stats
	ended   []ending // requests whose callers are told once the step that ended them has been counted
}

// ending is how a request ended.
type ending struct {
	stream *Stream
	why    Reason
	err    error
}

// New starts a Scheduler over b, which is the Scheduler's alone until Close has returned.
func New(b Backend, cfg Config) (*Scheduler, error) {
	s, err := newScheduler(b, cfg)
	if err != nil {
		return nil, err
	}
	go s.run()
	return s, nil
}

// newScheduler makes a Scheduler whose goroutine has not started.
func newScheduler(b Backend, cfg Config) (*Scheduler, error) {
	caps := b.Caps()
	most := min(caps.MaxSeqs, caps.MaxLogits, caps.BatchTokens)
	cfg.Lanes = cmp.Or(cfg.Lanes, most)
	cfg.PromptTokens = cmp.Or(cfg.PromptTokens, min(caps.ChunkTokens, caps.BatchTokens))
	switch {
	case cfg.Lanes < 1 || cfg.Lanes > most:
		return nil, fmt.Errorf("%d lanes: the context allows 1 to %d", cfg.Lanes, most)
	case cfg.PromptTokens < 1 || cfg.PromptTokens > caps.BatchTokens:
		return nil, fmt.Errorf("prompt steps of %d tokens: the context allows 1 to %d", cfg.PromptTokens, caps.BatchTokens)
	case caps.SeqTokens < 2 || caps.SeqTokens > caps.CtxTokens:
		return nil, fmt.Errorf("sequences of %d tokens in a context of %d", caps.SeqTokens, caps.CtxTokens)
	}
	s := &Scheduler{
		cfg:   cfg,
		caps:  caps,
		log:   cmp.Or(cfg.Log, slog.New(slog.DiscardHandler)),
		wake:  make(chan struct{}, 1),
		done:  make(chan struct{}),
		mem:   newMemory(b),
		batch: newBatch(caps.BatchTokens),
	}
	s.stats.Lanes, s.stats.Cells = cfg.Lanes, caps.CtxTokens
	s.publish()
	return s, nil
}

// Submit queues a request; it does not wait. When ctx ends, the request is cancelled. The error says what is wrong with
// the request, or is ErrClosed.
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Stream, error) {
	switch {
	case len(r.Prompt) == 0:
		return nil, errors.New("the prompt is empty")
	case r.MaxTokens < 1:
		return nil, fmt.Errorf("%d tokens to generate: want at least 1", r.MaxTokens)
	case r.PrefixLen < 0 || r.PrefixLen > len(r.Prompt):
		return nil, fmt.Errorf("shared prefix of %d tokens in a prompt of %d", r.PrefixLen, len(r.Prompt))
	case r.Sampler == nil:
		return nil, errors.New("the request has no sampler")
	}
	j := &job{
		Request: r,
		stream:  newStream(len(r.Prompt), s.poke),
		tokens:  make([]Token, 0, len(r.Prompt)+min(r.MaxTokens, s.caps.SeqTokens)),
		row:     -1,
	}
	j.tokens = append(j.tokens, r.Prompt...)
	j.unwatch = context.AfterFunc(ctx, j.stream.Cancel)
	if err := s.post(j); err != nil {
		j.unwatch()
		return nil, err
	}
	return j.stream, nil
}

func (s *Scheduler) post(j *job) error {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	if s.inbox.closed != nil {
		return s.inbox.closed
	}
	s.inbox.arrived++
	j.arrived = s.inbox.arrived
	s.inbox.jobs = append(s.inbox.jobs, j)
	s.poke()
	return nil
}

// Join announces a caller that submits requests one after another; leave takes it back. Callers that are to run together
// join before the first of them submits.
//
// It matters in deterministic mode only: no step is made while there are fewer requests here than joined callers, since
// one of them still runs its tool or thinks. In the normal mode no lane waits for anyone.
func (s *Scheduler) Join() (leave func()) {
	s.join(+1)
	return sync.OnceFunc(func() { s.join(-1) })
}

func (s *Scheduler) join(n int) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	s.inbox.joined += n
	s.poke()
}

// Forget says that nobody will go on with the conversation whose last request was st, which has ended: of what it holds
// in memory, only the first keep tokens may be asked for again. Their room is free before the next step, while what is
// merely not used any more stays until its room is needed; and until then every step's attention passes over it.
func (s *Scheduler) Forget(st *Stream, keep int) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	s.inbox.forgets = append(s.inbox.forgets, forgetting{st, keep})
	s.poke()
}

// Close ends all requests with ErrClosed, waits for the step that is running, and leaves the Backend to its owner.
func (s *Scheduler) Close() {
	s.shut(ErrClosed)
	s.poke()
	<-s.done
}

// shut refuses requests from now on. The first reason stays.
func (s *Scheduler) shut(why error) {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	if s.inbox.closed == nil {
		s.inbox.closed = why
	}
}

// Stats returns the counts as of the last step. They include every request whose stream has ended.
func (s *Scheduler) Stats() Stats {
	s.inbox.Lock()
	defer s.inbox.Unlock()
	return s.inbox.stats
}

// poke wakes the scheduler's goroutine if it rests.
func (s *Scheduler) poke() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// run is the scheduler's goroutine.
func (s *Scheduler) run() {
	defer close(s.done)
	for {
		ready, why := s.round()
		if why != nil {
			s.shut(why)
			s.collect() // what came in before the door was shut
			s.endAll(why)
			s.publish()
			s.tell()
			return
		}
		if !ready || s.running == 0 && !s.changed {
			<-s.wake
		}
	}
}

// round takes in what has come and makes a step, if there may be one now. Its counts are to be seen before the callers
// of ended requests hear of it. The error is why the scheduler is to end.
func (s *Scheduler) round() (ready bool, why error) {
	began := time.Now()
	why, ready = s.collect()
	if why == nil && ready {
		why = s.advance()
	}
	if why != nil {
		return ready, why
	}
	if ready {
		s.stats.StepTime += time.Since(began)
	}
	s.publish()
	s.tell()
	return ready, nil
}

// collect takes in new requests and takes out cancelled ones. It returns why the scheduler is to end, or whether there
// may be a step now.
func (s *Scheduler) collect() (closed error, ready bool) {
	s.inbox.Lock()
	jobs, forgets := s.inbox.jobs, s.inbox.forgets
	s.inbox.jobs, s.inbox.forgets = nil, nil
	closed = s.inbox.closed
	joined := s.inbox.joined
	s.inbox.Unlock()

	for _, j := range jobs {
		s.stats.Requests++
		s.changed = true
		s.enqueue(j)
	}
	for _, f := range forgets {
		if err := s.forget(f); err != nil {
			return err, false
		}
	}
	s.reap()
	present := s.running + s.waiting.len()
	return closed, present > 0 && (!s.cfg.Deterministic || present >= joined)
}

// enqueue puts a new job where it belongs in the queue.
func (s *Scheduler) enqueue(j *job) {
	if s.cfg.Deterministic {
		s.waiting.pushSorted(j)
		return
	}
	from := s.held.longest(j.readable(), s.caps)
	s.waiting.push(j, from.whole() && !from.seq.kept)
}

// reap ends what its caller has cancelled.
func (s *Scheduler) reap() {
	for q := range s.lanes {
		if q.job.stream.cancelled.Load() {
			s.end(q, Cancelled, nil)
		}
	}
	s.waiting.each(func(j *job) bool {
		if j.stream.cancelled.Load() {
			s.waiting.remove(j)
			s.finish(j, Cancelled, nil)
		}
		return true
	})
}

// advance lets jobs in and makes one step. An error is one that ends the scheduler.
func (s *Scheduler) advance() error {
	if err := s.admit(); err != nil {
		return err
	}
	if s.running == 0 {
		return nil
	}
	return s.step()
}

// lanes yields the sequences at work, in the order of their ids. The loop may end lanes.
func (s *Scheduler) lanes(yield func(*sequence) bool) {
	for i := range s.mem.seqs {
		if q := &s.mem.seqs[i]; q.job != nil && !yield(q) {
			return
		}
	}
}

// end finishes a lane's job and keeps what its sequence holds.
func (s *Scheduler) end(q *sequence, why Reason, err error) {
	j := q.job
	s.leave(q)
	if len(q.tokens) > 0 {
		q.usedAt, q.ran = s.tick(), j.stream
		s.held.add(q)
	}
	s.finish(j, why, err)
}

// fail finishes a lane's job and empties its sequence, which holds nobody knows what.
func (s *Scheduler) fail(q *sequence, err error) error {
	j := q.job
	s.leave(q)
	s.finish(j, Failed, err)
	return s.mem.clear(q)
}

// leave takes a job off its sequence.
func (s *Scheduler) leave(q *sequence) {
	q.job.Sampler.Unbind()
	q.job.row = -1
	q.job = nil
	s.running--
	s.changed = true
}

// finish takes note that a request has ended; tell says so to its caller.
func (s *Scheduler) finish(j *job, why Reason, err error) {
	s.stats.Finished++
	j.unwatch()
	s.ended = append(s.ended, ending{j.stream, why, err})
}

// tell tells the callers of ended requests, who then find in Stats what their requests took.
func (s *Scheduler) tell() {
	for _, e := range s.ended {
		e.stream.update(func(r *Result) { r.Reason, r.Err = e.why, e.err })
	}
	clear(s.ended)
	s.ended = s.ended[:0]
}

// endAll ends every request, when the scheduler ends.
func (s *Scheduler) endAll(why error) {
	for q := range s.lanes {
		j := q.job
		s.leave(q)
		s.finish(j, Failed, why)
	}
	s.waiting.each(func(j *job) bool {
		s.waiting.remove(j)
		s.finish(j, Failed, why)
		return true
	})
}

// tick is a new, higher time of the clock that orders uses of sequences.
func (s *Scheduler) tick() uint64 {
	s.clock++
	return s.clock
}

// publish makes the counts visible to Stats.
func (s *Scheduler) publish() {
	s.stats.Waiting, s.stats.Running, s.stats.Held = s.waiting.len(), s.running, s.held.n
	s.stats.UsedCells = s.mem.cells.used
	s.inbox.Lock()
	s.inbox.stats = s.stats
	s.inbox.Unlock()
}
