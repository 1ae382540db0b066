package sched

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"
)

func newRunning(t testing.TB, f *fakeBackend, cfg Config) *Scheduler {
	t.Helper()
	s, err := New(f, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

// Many conversations at once, each with turns, pauses and cancelled attempts, over the running goroutine.
func TestConversationsAtOnce(t *testing.T) {
	forEachMemory(t, 10, 3000, func(t *testing.T, f *fakeBackend) {
		s := newRunning(t, f, Config{Lanes: 6})
		var all sync.WaitGroup
		for c := range 24 {
			all.Go(func() {
				r := rand.New(rand.NewPCG(uint64(c), 2))
				conversation := join(tokens(fmt.Sprint("schema", c%3), 120), tokens(fmt.Sprint("question", c), 20))
				for turn := range 4 {
					if r.IntN(4) == 0 {
						cancelledAttempt(t, s, f, conversation)
					}
					st, err := s.Submit(t.Context(), Request{Prompt: conversation, PrefixLen: 120, MaxTokens: 15, Sampler: f.greedy()})
					if err != nil {
						t.Error(err)
						return
					}
					got := read(st)
					if !slices.Equal(got, expected(conversation, 15)) {
						t.Errorf("conversation %d, turn %d: %v, %+v", c, turn, got, st.Result())
					}
					conversation = join(conversation, got, tokens(fmt.Sprint("tool", c, turn), 25))
					time.Sleep(time.Duration(r.IntN(300)) * time.Microsecond)
				}
			})
		}
		all.Wait()
		stats := s.Stats()
		if stats.Requests != stats.Finished || stats.Running+stats.Waiting != 0 || stats.PrefixHits == 0 {
			t.Errorf("at the end: %+v", stats)
		}
	})
}

// Whoever has seen a stream end finds its request in the counts: a step tells nobody before it has been counted.
func TestNobodyIsToldBeforeTheCount(t *testing.T) {
	forEachMemory(t, 4, 500, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 1})
		st := s.submit(Request{Prompt: tokens("one", 5), MaxTokens: 1})
		s.collect()
		if err := s.advance(); err != nil || s.running != 0 {
			t.Fatalf("%d lanes at work after the only token, %v", s.running, err)
		}
		if why := st.Result().Reason; why != Running || s.Stats().Finished != 0 {
			t.Errorf("before the count: %v, %+v", why, s.Stats())
		}
		if _, err := s.round(); err != nil {
			t.Fatal(err)
		}
		if why := st.Result().Reason; why != MaxTokens || s.Stats().Finished != 1 {
			t.Errorf("after it: %v, %+v", why, s.Stats())
		}
	})
}

func cancelledAttempt(t *testing.T, s *Scheduler, f *fakeBackend, prompt []Token) {
	ctx, cancel := context.WithCancel(t.Context())
	st, err := s.Submit(ctx, Request{Prompt: prompt, MaxTokens: 1_000_000, Sampler: f.greedy()})
	if err != nil {
		t.Error(err)
		cancel()
		return
	}
	st.Next()
	cancel()
	read(st)
	if why := st.Result().Reason; why != Cancelled && why != ContextFull {
		t.Errorf("cancelled attempt ended as %v", why)
	}
}

func TestClose(t *testing.T) {
	before := runtime.NumGoroutine()
	f := newFake(t, attentionCaps(4, 1_000_000))
	s, err := New(f, Config{Lanes: 2})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*Stream
	for i := range 5 { // two at work, three waiting
		st, err := s.Submit(context.Background(), Request{Prompt: tokens(fmt.Sprint(i), 20), MaxTokens: 900_000, Sampler: f.greedy()})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	streams[0].Next()
	s.Close()
	s.Close()
	for _, st := range streams {
		read(st)
		if res := st.Result(); res.Reason != Failed || !errors.Is(res.Err, ErrClosed) {
			t.Errorf("after Close: %+v", res)
		}
	}
	if _, err := s.Submit(context.Background(), Request{Prompt: []Token{1}, MaxTokens: 1, Sampler: f.greedy()}); !errors.Is(err, ErrClosed) {
		t.Errorf("Submit after Close: %v", err)
	}
	for range 100 {
		if runtime.NumGoroutine() <= before {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("%d goroutines before, %d after Close", before, runtime.NumGoroutine())
}

// A backend that contradicts itself cannot be trusted with anything: all ends, with the reason.
func TestBrokenBackendEndsTheScheduler(t *testing.T) {
	f := newFake(t, attentionCaps(4, 1000))
	s := newRunning(t, f, Config{Lanes: 2})
	st, err := s.Submit(t.Context(), Request{Prompt: tokens("a", 20), MaxTokens: 3, Sampler: f.greedy()})
	if err != nil {
		t.Fatal(err)
	}
	read(st)
	s.mem.backend = forgetful{f} // the scheduler rests now
	st, err = s.Submit(t.Context(), Request{Prompt: join(tokens("a", 20)[:10], tokens("b", 20)), MaxTokens: 3, Sampler: f.greedy()})
	if err != nil {
		t.Fatal(err)
	}
	read(st)
	if res := st.Result(); res.Reason != Failed {
		t.Errorf("%+v", res)
	}
	if _, err := s.Submit(t.Context(), Request{Prompt: []Token{1}, MaxTokens: 1, Sampler: f.greedy()}); err == nil || errors.Is(err, ErrClosed) {
		t.Errorf("Submit after a broken backend: %v", err)
	}
}

// forgetful loses a token in every copy.
type forgetful struct{ *fakeBackend }

func (f forgetful) SeqLen(seq SeqID) int { return f.fakeBackend.SeqLen(seq) - 1 }

func TestImpossibleRequestsAndSettings(t *testing.T) {
	f := newFake(t, attentionCaps(4, 1000))
	s := newRunning(t, f, Config{})
	for name, r := range map[string]Request{
		"empty prompt": {MaxTokens: 1, Sampler: f.greedy()},
		"no tokens":    {Prompt: []Token{1}, Sampler: f.greedy()},
		"no sampler":   {Prompt: []Token{1}, MaxTokens: 1},
		"prefix":       {Prompt: []Token{1}, PrefixLen: 2, MaxTokens: 1, Sampler: f.greedy()},
	} {
		if _, err := s.Submit(t.Context(), r); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	for _, cfg := range []Config{{Lanes: 5}, {Lanes: -1}, {PromptTokens: 65}, {PromptTokens: -1}} {
		if s, err := New(f, cfg); err == nil {
			s.Close()
			t.Errorf("%+v: accepted", cfg)
		}
	}
}

// In deterministic mode the batches are the same, row by row, however long callers take between their requests.
func TestDeterministicWhateverTheTiming(t *testing.T) {
	forEachMemory(t, 8, 700, func(t *testing.T, f *fakeBackend) {
		var first []string
		for round := range 3 {
			f := newFake(t, f.caps)
			f.tracing = true
			deterministicRound(t, f, round)
			if round == 0 {
				first = f.trace
			} else if !slices.Equal(first, f.trace) {
				t.Fatalf("round %d made other batches: %d and %d", round, len(first), len(f.trace))
			}
		}
	})
}

func deterministicRound(t *testing.T, f *fakeBackend, round int) {
	s, err := New(f, Config{Lanes: 4, Deterministic: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var all sync.WaitGroup
	const callers = 6
	leave := make([]func(), callers)
	for c := range leave {
		leave[c] = s.Join()
	}
	for c := range callers {
		all.Go(func() {
			defer leave[c]()
			r := rand.New(rand.NewPCG(uint64(c), uint64(round)))
			for question := range 3 {
				conversation := join(tokens(fmt.Sprint("schema", c%2), 60), tokens(fmt.Sprint(c, question), 10+c))
				for turn := range 3 {
					time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
					st, err := s.Submit(t.Context(), Request{Prompt: conversation, MaxTokens: 5 + c + question, Sampler: f.greedy(), Order: c})
					if err != nil {
						t.Error(err)
						return
					}
					got := read(st)
					if !slices.Equal(got, expected(conversation, 5+c+question)) {
						t.Errorf("caller %d, question %d, turn %d: %+v", c, question, turn, st.Result())
					}
					conversation = join(conversation, got, tokens(fmt.Sprint("tool", turn), 9))
				}
			}
		})
	}
	all.Wait()
	if p := s.Stats().Preemptions; p > 0 {
		t.Errorf("%d preemptions", p)
	}
}

// Once its streams are warm, a decode step allocates nothing, on either side.
func TestNoAllocationPerToken(t *testing.T) {
	f := &silentBackend{caps: attentionCaps(20, 1_000_000)}
	s, err := newScheduler(f, Config{Lanes: 16})
	if err != nil {
		t.Fatal(err)
	}
	var streams []*Stream
	for i := range 16 {
		st, err := s.Submit(t.Context(), Request{Prompt: tokens(fmt.Sprint(i), 40), MaxTokens: 100_000, Sampler: silentSampler{}})
		if err != nil {
			t.Fatal(err)
		}
		streams = append(streams, st)
	}
	decodeStep := func() {
		if _, err := s.round(); err != nil {
			t.Fatal(err)
		}
	}
	for s.stats.DecodeSteps < 50 {
		decodeStep()
	}
	drain := func() {
		for _, st := range streams {
			for len(st.fresh) > 0 || st.next < len(st.taken) {
				st.Next()
			}
		}
	}
	drain()
	for range 50 {
		decodeStep()
	}
	drain()
	before := s.stats.DecodeTokens
	allocs := testing.AllocsPerRun(50, func() {
		decodeStep()
		drain()
	})
	if allocs != 0 {
		t.Errorf("%v allocations per decode step of %d tokens", allocs, (s.stats.DecodeTokens-before)/51)
	}
}

// silentBackend accepts everything and allocates nothing.
type silentBackend struct {
	caps Caps
	lens [64]int
}

func (f *silentBackend) Caps() Caps                 { return f.caps }
func (f *silentBackend) SeqLen(seq SeqID) int       { return f.lens[seq] }
func (f *silentBackend) CopySeq(dst, s SeqID) error { f.lens[dst] = f.lens[s]; return nil }
func (f *silentBackend) RemoveSeq(seq SeqID, from int) bool {
	f.lens[seq] = from
	return true
}
func (f *silentBackend) Decode(b *Batch) error {
	for _, seq := range b.Seqs {
		f.lens[seq]++
	}
	return nil
}

type silentSampler struct{}

func (silentSampler) Bind(SeqID)                 {}
func (silentSampler) Unbind()                    {}
func (silentSampler) Sample(int) (Choice, error) { return Choice{Token: 7}, nil }

// BenchmarkDecodeStep is the scheduler's own time for a decode step of 16 lanes; a real step takes 10 ms and more.
func BenchmarkDecodeStep(b *testing.B) {
	f := &silentBackend{caps: attentionCaps(48, 1_000_000_000)}
	s, err := newScheduler(f, Config{Lanes: 16})
	if err != nil {
		b.Fatal(err)
	}
	for i := range 16 {
		if _, err := s.Submit(b.Context(), Request{Prompt: tokens(fmt.Sprint(i), 40), MaxTokens: 1 << 30, Sampler: silentSampler{}}); err != nil {
			b.Fatal(err)
		}
	}
	for b.Loop() {
		if _, err := s.round(); err != nil {
			b.Fatal(err)
		}
	}
}
