// Package sched runs many generations at once over one context of a model. It holds no C: it drives a Backend.
//
// A request is read (prefill) and then decoded in a sequence of the backend's memory. At most Config.Lanes sequences are
// at work; all others with content are held: what was read once is kept until its room is needed. The walk of a request:
//
//	Submit → waiting → admit: find the longest held prefix, fork it or go on in place
//	       → prompt steps: read what is missing, in chunks; keep a copy at each boundary that others share
//	       → decode steps: one token for every lane at work
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
//   - One goroutine owns the Backend and all state here; callers meet it in the inbox and in their Stream only.
//
// When the memory is full, held sequences go first, the least recently used one before others; then the youngest lane
// is preempted, to be read again later; and the last lane that still finds no room ends with ContextFull.
package sched

import (
	"context"
	"log/slog"
)

// Config holds what the Backend does not decide.
type Config struct {
	Lanes         int  // most requests at work at once; 0: as many as the backend's sequences and logits allow
	PromptTokens  int  // most tokens of one prompt step; 0: Caps.ChunkTokens
	Deterministic bool // the same requests give the same batches, whatever their timing: see Scheduler.Join
	Log           *slog.Logger
}

// Join announces a caller that submits requests one after another, and says so before its first. Leave ends it.
//
// It matters in deterministic mode only: no step is made while a joined caller has no request here (its tool runs, it
// thinks), so that what shares a batch depends on the requests and their Order, not on the clock. In the normal mode no
// lane waits for anyone.
func (s *Scheduler) Join() (leave func()) { panic("not yet") }

// New starts a Scheduler over b, which is the Scheduler's alone until Close has returned.
func New(b Backend, cfg Config) (*Scheduler, error) { panic("not yet") }

// Submit queues a request; it does not wait. When ctx ends, the request is cancelled. The error says what is wrong with
// the request, or is ErrClosed.
func (s *Scheduler) Submit(ctx context.Context, r Request) (*Stream, error) { panic("not yet") }

// Close ends all requests with ErrClosed, waits for the step that is running, and leaves the Backend to its owner.
func (s *Scheduler) Close() { panic("not yet") }

// Stats returns the counts so far.
func (s *Scheduler) Stats() Stats { panic("not yet") }

// Scheduler shares one Backend among requests. Its methods may be called from any goroutine.
type Scheduler struct{}
