package sched

import (
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
)

// fakeBackend behaves as a real memory does, in what it can do and in what it refuses, and its language model makes every
// mistake visible: the next token is a hash of all tokens of the sequence, so one that was lost, doubled, out of order or
// another sequence's changes everything after it. It fails the test on any call that would be undefined in the library.
//
// Its count of cells is its own: each cell has a number, and shared ones the same.
type fakeBackend struct {
	t    testing.TB
	caps Caps

	seqs     []fakeSeq
	nextCell int
	rows     []uint64 // state after each row of the last batch; 0 where no logits were wanted
	trace    []string // shape of every batch, where wanted
	tracing  bool
	decodes  int
	fail     func(decode int) error // scripted failures
	inside   atomic.Bool            // a call is running: no other may
}

type fakeSeq struct {
	tokens   []Token
	cells    []int
	states   []uint64 // after each token: what a recurrent memory has only the last TrimTail of
	rollback bool     // a trim is pending: no other, and no copy, before the next decode
}

const fakeVocab = 1000

// nextState is the model: how one token changes the state of a sequence.
func nextState(state uint64, t Token) uint64 {
	state ^= uint64(t) + 0x9e3779b97f4a7c15
	state *= 0xbf58476d1ce4e5b9
	return state ^ state>>29
}

// predict is the token that the model gives after a state.
func predict(state uint64) Token { return Token(state >> 7 % fakeVocab) }

// expected is what a request must generate, whatever else happens.
func expected(prompt []Token, n int) []Token {
	var state uint64
	for _, t := range prompt {
		state = nextState(state, t)
	}
	var out []Token
	for range n {
		t := predict(state)
		out = append(out, t)
		state = nextState(state, t)
	}
	return out
}

func attentionCaps(seqs, ctx int) Caps {
	return Caps{CtxTokens: ctx, SeqTokens: ctx, BatchTokens: 64, ChunkTokens: 32, MaxSeqs: seqs, MaxLogits: seqs, Unified: true, TrimAny: true}
}

func hybridCaps(seqs, ctx int) Caps {
	c := attentionCaps(seqs, ctx)
	c.TrimAny = false
	return c
}

func splitCaps(seqs, ctx int) Caps {
	c := attentionCaps(seqs, seqs*ctx)
	c.Unified, c.SeqTokens = false, ctx
	return c
}

func newFake(t testing.TB, caps Caps) *fakeBackend {
	return &fakeBackend{t: t, caps: caps, seqs: make([]fakeSeq, caps.MaxSeqs)}
}

func (f *fakeBackend) enter() func() {
	if f.inside.Swap(true) {
		f.t.Errorf("two calls of the backend at once")
	}
	return func() { f.inside.Store(false) }
}

func (f *fakeBackend) Caps() Caps { return f.caps }

func (f *fakeBackend) SeqLen(seq SeqID) int { defer f.enter()(); return len(f.seqs[seq].tokens) }

func (f *fakeBackend) Decode(b *Batch) error {
	defer f.enter()()
	f.decodes++
	f.checkRows(b)
	if f.tracing {
		f.trace = append(f.trace, fmt.Sprint(b.Seqs, b.Pos, b.Tokens))
	}
	done := b.Len()
	var err error
	if f.fail != nil {
		if err = f.fail(f.decodes); err != nil {
			done /= 2 // finished micro-batches stay
		}
	}
	if err == ErrNoSlot || f.usedCells()+b.Len() > f.caps.CtxTokens {
		return ErrNoSlot
	}
	f.rows = f.rows[:0]
	for i := range done {
		q := &f.seqs[b.Seqs[i]]
		var state uint64
		if n := len(q.states); n > 0 {
			state = q.states[n-1]
		}
		state = nextState(state, b.Tokens[i])
		q.tokens = append(q.tokens, b.Tokens[i])
		q.states = append(q.states, state)
		q.cells = append(q.cells, f.nextCell)
		q.rollback = false
		f.nextCell++
		f.rows = append(f.rows, state*uint64(b.Logits[i]))
	}
	return err
}

func (f *fakeBackend) checkRows(b *Batch) {
	if b.Len() == 0 || b.Len() > f.caps.BatchTokens {
		f.t.Errorf("batch of %d rows", b.Len())
	}
	logits := 0
	seen := map[SeqID]int{}
	for i, seq := range b.Seqs {
		if i > 0 && seq < b.Seqs[i-1] {
			f.t.Errorf("batch not in the order of sequences: %v", b.Seqs)
		}
		if want := len(f.seqs[seq].tokens) + seen[seq]; int(b.Pos[i]) != want || want >= f.caps.SeqTokens {
			f.t.Errorf("sequence %d: position %d, want %d of %d", seq, b.Pos[i], want, f.caps.SeqTokens)
		}
		seen[seq]++
		logits += int(b.Logits[i])
	}
	if logits > f.caps.MaxLogits {
		f.t.Errorf("logits of %d rows, at most %d", logits, f.caps.MaxLogits)
	}
}

func (f *fakeBackend) CopySeq(dst, src SeqID) error {
	defer f.enter()()
	d, s := &f.seqs[dst], &f.seqs[src]
	if dst == src || len(d.tokens) > 0 || len(s.tokens) == 0 || s.rollback {
		f.t.Errorf("illegal copy of sequence %d (%d tokens, rollback %v) to %d (%d tokens)", src, len(s.tokens), s.rollback, dst, len(d.tokens))
	}
	*d = fakeSeq{slices.Clone(s.tokens), slices.Clone(s.cells), slices.Clone(s.states), false}
	if !f.caps.Unified {
		for i := range d.cells {
			d.cells[i] = f.nextCell
			f.nextCell++
		}
	}
	return nil
}

func (f *fakeBackend) RemoveSeq(seq SeqID, from int) bool {
	defer f.enter()()
	q := &f.seqs[seq]
	if from < 0 || from > len(q.tokens) {
		f.t.Errorf("remove from position %d of sequence %d, which holds %d", from, seq, len(q.tokens))
	}
	tail := len(q.tokens) - from
	if from > 0 && !f.caps.TrimAny && (q.rollback || tail > f.caps.TrimTail) {
		return false
	}
	q.rollback = from > 0 && !f.caps.TrimAny
	q.tokens, q.cells, q.states = q.tokens[:from], q.cells[:from], q.states[:from]
	return true
}

func (f *fakeBackend) usedCells() int {
	cells := map[int]bool{}
	for i := range f.seqs {
		for _, c := range f.seqs[i].cells {
			cells[c] = true
		}
	}
	return len(cells)
}

// greedy is the Sampler of the fake: the model's token, final when it is the stop token.
type greedy struct {
	f     *fakeBackend
	stop  Token
	bound bool
	err   error
}

func (g *greedy) Bind(SeqID) {
	if g.bound {
		g.f.t.Error("sampler bound twice")
	}
	g.bound = true
}

func (g *greedy) Unbind() {
	if !g.bound {
		g.f.t.Error("sampler unbound twice")
	}
	g.bound = false
}

func (g *greedy) Sample(row int) (Choice, error) {
	if g.f.rows[row] == 0 {
		g.f.t.Errorf("row %d sampled without logits", row)
	}
	t := predict(g.f.rows[row])
	return Choice{Token: t, Final: t == g.stop}, g.err
}

func (f *fakeBackend) greedy() *greedy { return &greedy{f: f, stop: -1} }

// tokens makes n tokens that differ for each name.
func tokens(name string, n int) []Token {
	h := fnv.New64a() // not seeded: two lists that begin alike by chance would do so in some runs only
	h.Write([]byte(name))
	r := rand.New(rand.NewPCG(uint64(n), h.Sum64()))
	out := make([]Token, n)
	for i := range out {
		out[i] = Token(r.IntN(fakeVocab))
	}
	return out
}

func join(lists ...[]Token) []Token { return slices.Concat(lists...) }

// read takes all that a stream gives.
func read(s *Stream) (out []Token) {
	for {
		c, ok := s.Next()
		if !ok {
			return out
		}
		out = append(out, c.Token)
	}
}

// audit compares the scheduler's picture of the memory with the memory, between two steps.
func audit(t testing.TB, s *Scheduler, f *fakeBackend) {
	t.Helper()
	running, held := 0, 0
	for i := range s.mem.seqs {
		q := &s.mem.seqs[i]
		if !slices.Equal(q.tokens, f.seqs[i].tokens) {
			t.Fatalf("sequence %d: the scheduler knows %d tokens, the memory holds %d", i, len(q.tokens), len(f.seqs[i].tokens))
		}
		if q.job != nil {
			running++
			if !slices.Equal(q.tokens, q.job.tokens[:len(q.tokens)]) {
				t.Fatalf("sequence %d does not hold its job's tokens", i)
			}
		} else if q.held() {
			held++
			if m := s.held.longest(q.tokens, hybridCaps(1, 1)); !m.whole() || m.n != len(q.tokens) {
				t.Fatalf("held sequence %d is not found by its tokens", i)
			}
		}
	}
	if running != s.running || held != s.held.n || running > s.cfg.Lanes {
		t.Fatalf("%d lanes at work (counted %d, at most %d), %d held (counted %d)", running, s.running, s.cfg.Lanes, held, s.held.n)
	}
	if used := f.usedCells(); used != s.mem.cells.used || used > f.caps.CtxTokens {
		t.Fatalf("%d cells by the scheduler's count, %d of %d in memory", s.mem.cells.used, used, f.caps.CtxTokens)
	}
}

// stepper drives a Scheduler without its goroutine, and audits after each step.
type stepper struct {
	*Scheduler
	f *fakeBackend
}

func newStepper(t testing.TB, f *fakeBackend, cfg Config) stepper {
	t.Helper()
	s, err := newScheduler(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return stepper{s, f}
}

// turn is one round of the goroutine's loop; false when there is nothing to do.
func (s stepper) turn() bool {
	s.f.t.Helper()
	ready, why := s.round()
	if why != nil && !errors.Is(why, ErrClosed) {
		s.f.t.Fatal(why)
	}
	if why != nil || !ready {
		return false
	}
	audit(s.f.t, s.Scheduler, s.f)
	return s.running > 0 || s.waiting.len() > 0
}

// finishAll turns until nothing is left to do.
func (s stepper) finishAll() {
	s.f.t.Helper()
	for turns := 0; s.turn(); turns++ {
		if turns > 100_000 {
			s.f.t.Fatalf("no end: %+v", s.stats)
		}
	}
}

func (s stepper) submit(r Request) *Stream {
	s.f.t.Helper()
	if r.Sampler == nil {
		r.Sampler = s.f.greedy()
	}
	stream, err := s.Submit(s.f.t.Context(), r)
	if err != nil {
		s.f.t.Fatal(err)
	}
	return stream
}

// want checks what a stream gave against the model.
func want(t testing.TB, what string, st *Stream, prompt []Token, n int, why Reason) {
	t.Helper()
	got := read(st)
	res := st.Result()
	if res.Reason != why || res.Generated != len(got) || n >= 0 && len(got) != n {
		t.Fatalf("%s: %d tokens, %+v; want %d, %v", what, len(got), res, n, why)
	}
	if !slices.Equal(got, expected(prompt, len(got))) {
		t.Fatalf("%s: generated %v, want %v", what, got, expected(prompt, len(got)))
	}
}
