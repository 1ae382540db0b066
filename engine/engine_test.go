package engine

import (
	"context"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"quern/internal/testenv"
)

// tinyModel is the model that the binary carries for its demonstration.
func tinyModel(t testing.TB) string {
	t.Helper()
	return filepath.Join(testenv.Root(), "internal", "demo", "model.gguf")
}

var somePrompt = []Token{476, 68, 630, 256, 631, 306, 497}

func TestSampling(t *testing.T) {
	e := start(t, load(t, tinyModel(t), LoadOptions{}), EngineOptions{ContextLength: 256, Lanes: 4})
	run := func(s Sampling) []Token {
		return generate(t, e, Request{Prompt: somePrompt, Sampling: s, MaxTokens: 24, IgnoreEnd: true}).Tokens
	}
	greedy := run(Sampling{})
	for name, s := range map[string]Sampling{
		"top-k of one":     {Temperature: 1, TopK: 1, Seed: 5},
		"tiny top-p":       {Temperature: 1, TopP: 1e-6, Seed: 6},
		"min-p of one":     {Temperature: 1, MinP: 1, Seed: 7},
		"cold":             {Temperature: 1e-4, Seed: 8},
		"penalties of one": {RepeatPenalty: 1},
	} {
		if got := run(s); !slices.Equal(got, greedy) {
			t.Errorf("%s: %v, greedy %v", name, got, greedy)
		}
	}
	hot := Sampling{Temperature: 1.5, TopK: 200, TopP: 0.99, MinP: 0.001, Seed: 1}
	first := run(hot)
	if !slices.Equal(first, run(hot)) {
		t.Error("the same seed gives other tokens")
	}
	hot.Seed = 2
	if slices.Equal(first, run(hot)) {
		t.Error("another seed gives the same tokens")
	}
	if got := run(Sampling{RepeatPenalty: 50, PenaltyWindow: 64}); len(unique(got)) < len(got)-1 {
		t.Errorf("repeated in spite of the penalty: %v", got)
	}
	if got := run(Sampling{FrequencyPenalty: 90}); len(unique(got)) < len(got)-1 {
		t.Errorf("repeated in spite of the frequency penalty: %v", got)
	}
	for _, s := range []Sampling{{Temperature: -1}, {TopP: 2}, {TopK: -1}, {Temperature: float32(math.NaN())}, {RepeatPenalty: -1}} {
		if _, err := e.Generate(context.Background(), Request{Prompt: somePrompt, Sampling: s}); err == nil {
			t.Errorf("%+v: no error", s)
		}
	}
}

func unique(ids []Token) []Token {
	return slices.Compact(slices.Sorted(slices.Values(ids)))
}

// TestLogprobs: the log-probabilities of a generation are those that reading it gives.
func TestLogprobs(t *testing.T) {
	m := load(t, floatModels(t)["qwen2-tiny"], LoadOptions{})
	e := start(t, m, exact)
	req := Request{Prompt: somePrompt, MaxTokens: 10, IgnoreEnd: true, TopLogprobs: 3}
	s, err := e.Generate(context.Background(), req)
	if err != nil {
		t.Fatal(err)
	}
	var result *Result
	for event, err := range s.Events() {
		if err != nil {
			t.Fatal(err)
		}
		if event.Kind == EventDone {
			result = event.Result
		} else if len(event.Top) != 3 || event.Top[0].ID != event.Token || event.Top[0].Logprob != event.Logprob || event.Top[1].Logprob > event.Logprob {
			t.Errorf("token %d, log-prob %v, likeliest %v", event.Token, event.Logprob, event.Top)
		}
	}
	all := append(slices.Clone(somePrompt), result.Tokens...)
	logits := newRaw(t, m, 256, 1).read(0, all, 512, len(all))
	want := logprobTotal(logits, all) - logprobTotal(logits[:len(somePrompt)], somePrompt)
	if diff := math.Abs(result.LogprobTotal - want); diff > totalTolerance {
		t.Errorf("total %v, want %v", result.LogprobTotal, want)
	}
}

func TestStops(t *testing.T) {
	m := load(t, tinyModel(t), LoadOptions{})
	e := start(t, m, EngineOptions{ContextLength: 64})
	free := generate(t, e, Request{Prompt: somePrompt, MaxTokens: 30, IgnoreEnd: true})
	if free.Stop != StopMaxTokens || len(free.Tokens) != 30 {
		t.Errorf("%s after %d tokens", free.Stop, len(free.Tokens))
	}
	stop := m.Piece(free.Tokens[4], false) + m.Piece(free.Tokens[5], false)
	r := generate(t, e, Request{Prompt: somePrompt, MaxTokens: 30, IgnoreEnd: true, Stop: []string{"never", stop}})
	if before, _, found := strings.Cut(free.Text, stop); r.Stop != StopString || !found || r.Text != before {
		t.Errorf("stopped by %q: %s, %q", stop, r.Stop, r.Text)
	}
	full := generate(t, e, Request{Prompt: somePrompt, IgnoreEnd: true})
	if full.Stop != StopContextFull && full.Stop != StopMaxTokens || len(full.Tokens)+len(somePrompt) < 64 {
		t.Errorf("%s after %d tokens", full.Stop, len(full.Tokens))
	}
	long := make([]Token, 65)
	if _, err := e.Generate(context.Background(), Request{Prompt: long}); !errors.Is(err, ErrContextFull) {
		t.Errorf("too long a prompt: %v", err)
	}
	for _, bad := range [][]Token{nil, {-1}, {Token(m.VocabSize())}} {
		if _, err := e.Generate(context.Background(), Request{Prompt: bad}); err == nil {
			t.Errorf("prompt %v: no error", bad)
		}
	}
	if len(m.EndTokens()) < 2 {
		t.Errorf("end tokens %v: want <|im_end|> and <|endoftext|>", m.EndTokens())
	}
}

// TestCancel: a cancelled generation ends, whoever cancels it, and the engine goes on.
func TestCancel(t *testing.T) {
	e := start(t, load(t, tinyModel(t), LoadOptions{}), EngineOptions{ContextLength: 4096, Lanes: 2})
	before := generate(t, e, Request{Prompt: somePrompt, MaxTokens: 8, IgnoreEnd: true})
	for _, how := range []string{"context", "method", "leave"} {
		ctx, cancel := context.WithCancel(context.Background())
		s, err := e.Generate(ctx, Request{Prompt: somePrompt, IgnoreEnd: true})
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for event, err := range s.Events() {
			if err != nil {
				t.Fatal(err)
			}
			if n++; n == 3 {
				switch how {
				case "context":
					cancel()
				case "method":
					s.Cancel()
				}
			}
			if n >= 3 && how == "leave" {
				break
			}
			if event.Kind == EventDone && event.Result.Stop != StopCancelled {
				t.Errorf("%s: %s", how, event.Result.Stop)
			}
		}
		cancel()
		if r, _ := s.Wait(); r.Stop != StopCancelled || len(r.Tokens) > 3000 {
			t.Errorf("%s: %s after %d tokens", how, r.Stop, len(r.Tokens))
		}
	}
	if after := generate(t, e, Request{Prompt: somePrompt, MaxTokens: 8, IgnoreEnd: true}); !slices.Equal(before.Tokens, after.Tokens) {
		t.Errorf("after cancelling %v, before %v", after.Tokens, before.Tokens)
	}
}

// TestClose: closing an engine ends what it runs; a model with open engines stays.
func TestClose(t *testing.T) {
	ctx := context.Background()
	m, err := Load(ctx, tinyModel(t), LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	e, err := m.NewEngine(ctx, EngineOptions{ContextLength: 4096})
	if err != nil {
		t.Fatal(err)
	}
	if err := m.Close(); err == nil {
		t.Error("the model was closed under its engine")
	}
	s, err := e.Generate(ctx, Request{Prompt: somePrompt, IgnoreEnd: true, Sampling: Sampling{Temperature: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		if _, err := s.Wait(); err != nil && !errors.Is(err, ErrClosed) {
			t.Errorf("generation of a closed engine: %v", err)
		}
	})
	if err := errors.Join(e.Close(), e.Close()); err != nil {
		t.Error(err)
	}
	wg.Wait()
	if _, err := e.Generate(ctx, Request{Prompt: somePrompt}); !errors.Is(err, ErrClosed) {
		t.Errorf("generate on a closed engine: %v", err)
	}
	if err := errors.Join(m.Close(), m.Close()); err != nil {
		t.Error(err)
	}
	if _, err := m.Tokenize([]Segment{{Text: "x"}}); !errors.Is(err, ErrClosed) {
		t.Errorf("tokenize with a closed model: %v", err)
	}
	if _, err := m.NewEngine(ctx, EngineOptions{}); !errors.Is(err, ErrClosed) {
		t.Errorf("engine of a closed model: %v", err)
	}
}

// TestCancelLoad: a load that is cancelled in the middle gives its memory back, and the next one works.
func TestCancelLoad(t *testing.T) {
	for range 20 {
		ctx, cancel := context.WithCancel(context.Background())
		reached := 0.0
		_, err := Load(ctx, tinyModel(t), LoadOptions{NoMmap: true, Progress: func(share float64) {
			if reached = max(reached, share); share >= 0.5 {
				cancel()
			}
		}})
		cancel()
		if !errors.Is(err, context.Canceled) || reached < 0.5 {
			t.Fatalf("cancelled at %v: %v", reached, err)
		}
	}
	load(t, tinyModel(t), LoadOptions{NoMmap: true})
}

// TestGraphSampling: the graph's own choice is the sampler's.
func TestGraphSampling(t *testing.T) {
	for name, path := range floatModels(t) {
		m := load(t, path, LoadOptions{})
		opt := exact
		plain := generate(t, start(t, m, opt), Request{Prompt: somePrompt, MaxTokens: 32, IgnoreEnd: true})
		opt.GraphSampling, opt.Lanes = On, 2
		e := start(t, m, opt)
		var both [2]Result
		var wg sync.WaitGroup
		for i := range both {
			wg.Go(func() {
				both[i] = generate(t, e, Request{Prompt: somePrompt, MaxTokens: 32, IgnoreEnd: true, Logprobs: i == 1})
			})
		}
		wg.Wait()
		if !e.backend.sampleInGraph {
			t.Errorf("%s: the backend does not sample", name)
		}
		for _, r := range both {
			if !slices.Equal(r.Tokens, plain.Tokens) {
				t.Errorf("%s: in the graph %v, outside %v", name, r.Tokens, plain.Tokens)
			}
		}
	}
}

// TestNoLeak loads, generates and closes many times, and compares memory and goroutines with what they were early on.
func TestNoLeak(t *testing.T) {
	path := floatModels(t)["qwen2-tiny"]
	ctx := context.Background()
	cycle := func() {
		m, err := Load(ctx, path, LoadOptions{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := m.NewEngine(ctx, EngineOptions{ContextLength: 64, Holders: -1, BatchTokens: 32})
		if err != nil {
			t.Fatal(err)
		}
		generate(t, e, Request{Prompt: somePrompt, MaxTokens: 2, Sampling: Sampling{Temperature: 1}})
		if err := errors.Join(e.Close(), m.Close()); err != nil {
			t.Fatal(err)
		}
	}
	for range 200 {
		cycle()
	}
	goroutines, early := runtime.NumGoroutine(), residentBytes(t)
	for range 800 {
		cycle()
	}
	time.Sleep(10 * time.Millisecond) // goroutines that have just ended
	growth := int64(residentBytes(t)) - int64(early)
	t.Logf("1000 cycles: resident memory %+d KiB since the 200th, %d goroutines then, %d now", growth>>10, goroutines, runtime.NumGoroutine())
	if growth > 16<<20 {
		t.Errorf("resident memory grew by %d bytes", growth)
	}
	if runtime.NumGoroutine() > goroutines {
		t.Errorf("goroutines grew from %d to %d", goroutines, runtime.NumGoroutine())
	}
}

func residentBytes(t *testing.T) uint64 {
	t.Helper()
	runtime.GC()
	text, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		t.Skipf("resident memory is not known here: %v", err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(text))[1], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return pages * uint64(os.Getpagesize())
}

// TestDecodeAllocatesNothing: in steady state a token costs no allocation, from the scheduler to the reader.
func TestDecodeAllocatesNothing(t *testing.T) {
	e := start(t, load(t, tinyModel(t), LoadOptions{}), EngineOptions{ContextLength: 2048})
	s, err := e.Generate(context.Background(), Request{Prompt: somePrompt, MaxTokens: 600, IgnoreEnd: true, Stop: []string{"never to be seen", "<|nor this|>"}})
	if err != nil {
		t.Fatal(err)
	}
	for range 100 {
		s.next()
	}
	if n := testing.AllocsPerRun(300, func() { s.next() }); n > 0 {
		t.Errorf("%v allocations per token", n)
	}
	s.Cancel()
	if _, err := s.Wait(); err != nil {
		t.Error(err)
	}
}
