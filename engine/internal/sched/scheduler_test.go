package sched

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// memories are the kinds of memory that every rule must hold for.
var memories = map[string]func(seqs, ctx int) Caps{
	"attention": attentionCaps,
	"hybrid":    hybridCaps,
	"hybrid with short rewind": func(seqs, ctx int) Caps {
		c := hybridCaps(seqs, ctx)
		c.TrimTail = 4
		return c
	},
	"split": splitCaps,
}

func forEachMemory(t *testing.T, seqs, ctx int, test func(t *testing.T, f *fakeBackend)) {
	for name, caps := range memories {
		t.Run(name, func(t *testing.T) { test(t, newFake(t, caps(seqs, ctx))) })
	}
}

func TestEqualPromptsGiveOneAnswerAndAreReadOnce(t *testing.T) {
	forEachMemory(t, 12, 2000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 8})
		prompt := tokens("equal", 150)
		var streams []*Stream
		for range 8 {
			streams = append(streams, s.submit(Request{Prompt: prompt, MaxTokens: 20}))
		}
		s.finishAll()
		for i, st := range streams {
			want(t, fmt.Sprint("request ", i), st, prompt, 20, MaxTokens)
		}
		if s.stats.PrefillTokens != 149 || s.stats.Kept != 1 || s.stats.Forked != 7 {
			t.Errorf("149 tokens to be read once, one copy kept, 7 forks of it; %+v", s.stats)
		}
	})
}

func TestSharedPrefixesAreFoundInTheQueue(t *testing.T) {
	forEachMemory(t, 20, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 4})
		system := tokens("system", 100)
		var prompts [][]Token
		var streams []*Stream
		for schema := range 3 {
			for question := range 4 {
				p := join(system, tokens(fmt.Sprint("schema", schema), 200), tokens(fmt.Sprint("question", schema, question), 30))
				prompts = append(prompts, p)
				streams = append(streams, s.submit(Request{Prompt: p, MaxTokens: 10}))
			}
		}
		s.finishAll()
		for i, st := range streams {
			want(t, fmt.Sprint("request ", i), st, prompts[i], 10, MaxTokens)
		}
		if read, want := s.stats.PrefillTokens+s.stats.DecodeTokens, 100+3*200+12*30+12*9; read != want {
			t.Errorf("read %d tokens, want %d, each part of the prompts once: %+v", read, want, s.stats)
		}
	})
}

func TestHintKeepsPrefixForLaterRequests(t *testing.T) {
	forEachMemory(t, 4, 2000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 1})
		schema := tokens("schema", 300)
		first := join(schema, tokens("first", 20))
		a := s.submit(Request{Prompt: first, PrefixLen: 300, MaxTokens: 5})
		s.finishAll()
		second := join(schema, tokens("second", 25))
		b := s.submit(Request{Prompt: second, PrefixLen: 300, MaxTokens: 5})
		s.finishAll()
		want(t, "first", a, first, 5, MaxTokens)
		want(t, "second", b, second, 5, MaxTokens)
		if b.Result().Cached != 300 {
			t.Errorf("second request found %d tokens in memory, want 300", b.Result().Cached)
		}
	})
}

func TestUnforeseenPrefixIsKeptTheSecondTime(t *testing.T) {
	forEachMemory(t, 6, 2000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 1})
		schema := tokens("schema", 300)
		var cached []int
		for i := range 3 {
			p := join(schema, tokens(fmt.Sprint(i), 20))
			st := s.submit(Request{Prompt: p, MaxTokens: 5})
			s.finishAll()
			want(t, fmt.Sprint(i), st, p, 5, MaxTokens)
			cached = append(cached, st.Result().Cached)
		}
		if cached[2] != 300 || f.caps.TrimAny && cached[1] != 300 {
			t.Errorf("found in memory: %v", cached)
		}
	})
}

func TestNextTurnGoesOnInPlace(t *testing.T) {
	forEachMemory(t, 4, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 2})
		conversation := tokens("conversation", 200)
		for turn := range 5 {
			st := s.submit(Request{Prompt: conversation, MaxTokens: 12})
			s.finishAll()
			got := expected(conversation, 12)
			want(t, fmt.Sprint("turn ", turn), st, conversation, 12, MaxTokens)
			if turn > 0 && st.Result().Cached != len(conversation)-30-1 {
				t.Errorf("turn %d: %d of %d tokens found, all but the last generated and 30 new ones expected", turn, st.Result().Cached, len(conversation))
			}
			conversation = join(conversation, got, tokens(fmt.Sprint("tool", turn), 30))
		}
		if s.stats.Continued != 4 || s.stats.Evictions != 0 {
			t.Errorf("want 4 turns in place: %+v", s.stats)
		}
	})
}

// What only an ended conversation holds is free at once; what others may begin with too is not lost.
func TestForget(t *testing.T) {
	forEachMemory(t, 6, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 1})
		schema := tokens("schema", 300)
		play := func(name string) (last *Stream, asked int) {
			conversation := join(schema, tokens(name, 20))
			asked = len(conversation)
			for range 3 {
				last = s.submit(Request{Prompt: conversation, PrefixLen: 300, MaxTokens: 12})
				s.finishAll()
				want(t, name, last, conversation, 12, MaxTokens)
				conversation = join(conversation, expected(conversation, 12), tokens("tool", 100))
			}
			return last, asked
		}
		st, asked := play("first")
		full := s.mem.cells.used
		s.Forget(st, asked)
		s.turn()
		if left := s.mem.cells.used; left > full-3*12-2*100+1 {
			t.Errorf("%d cells of %d are left, generations and answers among them", left, full)
		}
		misses := s.stats.Misses
		play("second")
		if s.stats.Misses != misses {
			t.Errorf("the schema was read again: %+v", s.stats)
		}
		s.Forget(st, 0) // long gone
		s.turn()
	})
}

func TestSeveralGoOnFromOneTurn(t *testing.T) {
	forEachMemory(t, 10, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 4})
		base := tokens("base", 100)
		first := s.submit(Request{Prompt: base, MaxTokens: 10})
		s.finishAll()
		want(t, "base", first, base, 10, MaxTokens)
		turn := join(base, expected(base, 10))
		var streams []*Stream
		var prompts [][]Token
		for i := range 4 {
			prompts = append(prompts, join(turn, tokens(fmt.Sprint("branch", i), 20)))
			streams = append(streams, s.submit(Request{Prompt: prompts[i], MaxTokens: 10}))
		}
		s.finishAll()
		for i := range streams {
			want(t, fmt.Sprint("branch ", i), streams[i], prompts[i], 10, MaxTokens)
			if streams[i].Result().Cached < 109 {
				t.Errorf("branch %d found %d tokens, want at least 109", i, streams[i].Result().Cached)
			}
		}
	})
}

func TestEditedHistoryIsReadFromTheEdit(t *testing.T) {
	forEachMemory(t, 6, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 1})
		schema, turn := tokens("schema", 200), tokens("turn", 50)
		for i, p := range [][]Token{join(schema, turn), join(schema, turn[:20], tokens("edited", 40)), join(schema, turn)} {
			st := s.submit(Request{Prompt: p, PrefixLen: 200, MaxTokens: 6})
			s.finishAll()
			want(t, fmt.Sprint("version ", i), st, p, 6, MaxTokens)
			if least := map[bool]int{true: 220, false: 200}[f.caps.TrimAny]; i == 1 && st.Result().Cached < least {
				t.Errorf("found %d tokens after an edit at 220, want at least %d", st.Result().Cached, least)
			}
		}
	})
}

func TestShortRewind(t *testing.T) {
	caps := hybridCaps(1, 1000)
	caps.TrimTail = 4
	f := newFake(t, caps)
	s := newStepper(t, f, Config{})
	base := tokens("base", 100)
	st := s.submit(Request{Prompt: base, MaxTokens: 10})
	s.finishAll()
	want(t, "base", st, base, 10, MaxTokens)
	cut := join(base, expected(base, 10)[:7], tokens("other", 9)) // the memory holds nine generated tokens: two too many
	st = s.submit(Request{Prompt: cut, MaxTokens: 10})
	s.finishAll()
	want(t, "cut", st, cut, 10, MaxTokens)
	if st.Result().Cached != 107 {
		t.Errorf("found %d tokens, want 107", st.Result().Cached)
	}
}

func TestStopAndErrorsOfTheSampler(t *testing.T) {
	forEachMemory(t, 4, 1000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{})
		p := tokens("p", 30)
		answer := expected(p, 10)
		stop := f.greedy()
		stop.stop = answer[6]
		a := s.submit(Request{Prompt: p, MaxTokens: 50, Sampler: stop})
		broken := f.greedy()
		broken.err = errors.New("broken")
		b := s.submit(Request{Prompt: p, MaxTokens: 50, Sampler: broken})
		c := s.submit(Request{Prompt: p, MaxTokens: 10})
		s.finishAll()
		want(t, "stop", a, p, slices.Index(answer, answer[6])+1, Stopped)
		want(t, "broken", b, p, 0, Failed)
		want(t, "beside it", c, p, 10, MaxTokens)
		if !errors.Is(b.Result().Err, broken.err) {
			t.Errorf("error %v", b.Result().Err)
		}
	})
}

// A small memory: lanes are preempted and read again, and give the same tokens as ever.
func TestPreemptedIsNeverPreempted(t *testing.T) {
	for name, caps := range memories {
		if name == "split" {
			continue // its sequences have room of their own
		}
		t.Run(name, func(t *testing.T) {
			f := newFake(t, caps(6, 400))
			s := newStepper(t, f, Config{Lanes: 4})
			var streams []*Stream
			var prompts [][]Token
			for i := range 8 {
				prompts = append(prompts, tokens(fmt.Sprint(i), 40))
				streams = append(streams, s.submit(Request{Prompt: prompts[i], MaxTokens: 120}))
			}
			s.finishAll()
			preempted := 0
			for i, st := range streams {
				want(t, fmt.Sprint("request ", i), st, prompts[i], 120, MaxTokens)
				preempted += st.Result().Preempted
			}
			if preempted == 0 || preempted != s.stats.Preemptions || streams[0].Result().Preempted > 0 {
				t.Errorf("%d preemptions of requests, %d counted, %d of the oldest", preempted, s.stats.Preemptions, streams[0].Result().Preempted)
			}
		})
	}
}

func TestContextFull(t *testing.T) {
	forEachMemory(t, 3, 100, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 2})
		long := tokens("long", 101)
		exact := tokens("exact", 100)
		short := tokens("short", 60)
		a := s.submit(Request{Prompt: long, MaxTokens: 5})
		b := s.submit(Request{Prompt: exact, MaxTokens: 5})
		c := s.submit(Request{Prompt: short, MaxTokens: 1000})
		s.finishAll()
		want(t, "too long", a, long, 0, ContextFull)
		want(t, "exactly full", b, exact, 1, ContextFull)
		want(t, "grown full", c, short, 41, ContextFull)
	})
}

func TestOneSequenceServesAll(t *testing.T) {
	forEachMemory(t, 1, 300, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{})
		shared := tokens("shared", 100)
		for i := range 6 {
			p := join(shared, tokens(fmt.Sprint(i), 20))
			st := s.submit(Request{Prompt: p, PrefixLen: 100, MaxTokens: 7})
			other := s.submit(Request{Prompt: p, MaxTokens: 9})
			s.finishAll()
			want(t, fmt.Sprint(i), st, p, 7, MaxTokens)
			want(t, fmt.Sprint(i, " again"), other, p, 9, MaxTokens)
		}
	})
}

// Failed steps cost the lanes of that step, or nothing; never the scheduler.
func TestFailedSteps(t *testing.T) {
	fatal := errors.New("compute failed")
	forEachMemory(t, 6, 2000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 3})
		script := map[int]error{2: ErrNoSlot, 4: ErrAborted, 9: ErrNoSlot, 10: ErrAborted, 14: fatal}
		f.fail = func(n int) error { return script[n] }
		var streams []*Stream
		var prompts [][]Token
		for i := range 9 {
			prompts = append(prompts, tokens(fmt.Sprint(i), 50))
			streams = append(streams, s.submit(Request{Prompt: prompts[i], MaxTokens: 15}))
		}
		s.finishAll()
		failed := 0
		for i, st := range streams {
			if st.Result().Reason == Failed {
				failed++
				want(t, fmt.Sprint("failed ", i), st, prompts[i], -1, Failed)
				if !errors.Is(st.Result().Err, fatal) {
					t.Errorf("request %d: %v", i, st.Result().Err)
				}
				continue
			}
			want(t, fmt.Sprint("request ", i), st, prompts[i], 15, MaxTokens)
		}
		if failed == 0 || failed > 3 {
			t.Errorf("%d requests failed, want those of one step", failed)
		}
	})
}

// Any order of arrivals, turns, branches and cancels, in any memory: every request gets its own tokens.
func TestRandomLoad(t *testing.T) {
	for seed := range uint64(20) {
		for name, caps := range memories {
			ok := t.Run(fmt.Sprint(name, " ", seed), func(t *testing.T) { randomLoad(t, caps, seed) })
			if !ok {
				return
			}
		}
	}
}

func randomLoad(t *testing.T, caps func(seqs, ctx int) Caps, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	seqs := 1 + r.IntN(10)
	f := newFake(t, caps(seqs, 100+r.IntN(900)))
	s := newStepper(t, f, Config{Lanes: 1 + r.IntN(seqs), PromptTokens: 1 + r.IntN(64), Deterministic: r.IntN(5) == 0})
	if r.IntN(3) == 0 {
		f.fail = func(int) error { return []error{nil, ErrNoSlot, ErrAborted}[max(0, r.IntN(60)-57)] }
	}
	type request struct {
		prompt []Token
		n      int
		stream *Stream
	}
	var requests []request
	histories := [][]Token{tokens("a", 30), tokens("b", 70)}
	for range 40 {
		for range r.IntN(4) {
			history := histories[r.IntN(len(histories))]
			cut := len(history) - r.IntN(3)*r.IntN(20)
			p := join(history[:max(1, cut)], tokens(fmt.Sprint(r.IntN(30)), r.IntN(40)))
			n := 1 + r.IntN(30)
			st := s.submit(Request{Prompt: p, PrefixLen: r.IntN(2) * r.IntN(len(p)), MaxTokens: n, Order: r.IntN(10)})
			requests = append(requests, request{p, n, st})
			histories = append(histories, join(p, expected(p, r.IntN(n+1))))
		}
		for range r.IntN(30) {
			s.turn()
		}
		if len(requests) > 0 && r.IntN(4) == 0 {
			requests[r.IntN(len(requests))].stream.Cancel()
		}
		if len(requests) > 0 && r.IntN(3) == 0 {
			q := requests[r.IntN(len(requests))]
			s.Forget(q.stream, r.IntN(len(q.prompt)+10)) // often while it runs, or after another has gone on in its sequence
		}
	}
	s.finishAll()
	for i, q := range requests {
		switch why := q.stream.Result().Reason; why {
		case MaxTokens:
			want(t, fmt.Sprint(i), q.stream, q.prompt, q.n, why)
		case Cancelled, ContextFull:
			want(t, fmt.Sprint(i), q.stream, q.prompt, -1, why)
		default:
			t.Fatalf("request %d: %+v", i, q.stream.Result())
		}
	}
}

// However small the budget, a prompt is read while others generate, and they generate while it is read.
func TestPromptsAndGenerationsShareTheSteps(t *testing.T) {
	forEachMemory(t, 6, 4000, func(t *testing.T, f *fakeBackend) {
		s := newStepper(t, f, Config{Lanes: 4, PromptTokens: 2})
		var first []*Stream
		for i := range 3 {
			first = append(first, s.submit(Request{Prompt: tokens(fmt.Sprint(i), 4), MaxTokens: 500}))
		}
		for range 40 {
			s.turn()
		}
		late := s.submit(Request{Prompt: tokens("late", 60), MaxTokens: 1})
		before := first[0].Result().Generated
		for late.Result().Reason == Running {
			s.turn()
		}
		if n := first[0].Result().Generated - before; n < 25 || n > 70 {
			t.Errorf("a lane generated %d tokens while a prompt of 60 was read, two tokens a step", n)
		}
		for _, st := range first {
			st.Cancel()
		}
		s.finishAll()
	})
}
