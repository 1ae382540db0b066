package engine

import (
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	"quern/engine/internal/sched"
)

// What shares a batch, what was held and copied, and in which order things came, must not change what a request
// generates. These tests compare a request with itself under different circumstances, by its logits: rounding differs
// with the shape of a batch, a state that bleeds from one sequence into another is orders of magnitude larger.

// metamorphicTolerance bounds the difference of logits (of size 1 to 10) in float32 arithmetic.
const metamorphicTolerance = 2e-4

// trace is a generation together with the logits that each token was chosen from.
type trace struct {
	tokens []Token
	logits [][]float32
	result sched.Result
}

// probe is a greedy sampler that keeps the logits.
type probe struct {
	e *Engine
	trace
}

func (p *probe) Bind(seq sched.SeqID) { p.e.backend.bindLogits(seq) }
func (p *probe) Unbind()              {}

func (p *probe) Sample(row int) (sched.Choice, error) {
	logits, err := p.e.context.Logits(nil, row)
	if err != nil {
		return sched.Choice{}, err
	}
	best := 0
	for i, x := range logits {
		if x > logits[best] {
			best = i
		}
	}
	p.tokens = append(p.tokens, Token(best))
	p.logits = append(p.logits, logits)
	return sched.Choice{Token: Token(best)}, nil
}

// running is a request that was sent off.
type running struct {
	*sched.Stream
	p *probe
}

func send(t testing.TB, e *Engine, prompt []Token, n, prefix, order int) running {
	t.Helper()
	p := &probe{e: e}
	s, err := e.sched.Submit(t.Context(), sched.Request{Prompt: prompt, PrefixLen: prefix, MaxTokens: n, Sampler: p, Order: order})
	if err != nil {
		t.Fatal(err)
	}
	return running{s, p}
}

func (r running) wait() trace {
	for {
		if _, ok := r.Next(); !ok {
			r.p.result = r.Result()
			return r.p.trace
		}
	}
}

func probed(t testing.TB, e *Engine, prompt []Token, n int) trace {
	t.Helper()
	return send(t, e, prompt, n, 0, 0).wait()
}

// compare fails where two traces differ by more than rounding, and returns the largest difference. Greedy choices may
// part where two tokens are as likely as rounding can tell; from there on the traces are different texts.
func compare(t testing.TB, what string, got, want trace, tolerance float64) (worst float64) {
	t.Helper()
	for step := range min(len(got.logits), len(want.logits)) {
		diff := distance(got.logits[step], want.logits[step])
		if worst = max(worst, diff); diff > tolerance {
			t.Errorf("%s: logits of step %d differ by %.2g", what, step, diff)
			return worst
		}
		if got.tokens[step] != want.tokens[step] {
			return worst // diff bounds how far apart the two can be
		}
	}
	return worst
}

func distance(a, b []float32) (worst float64) {
	for i := range a {
		d := math.Abs(float64(a[i]) - float64(b[i]))
		if !(d <= worst) { // NaN too
			worst = d
		}
	}
	return worst
}

// someTokens are n ordinary tokens, others for each seed.
func someTokens(seed uint64, n int) []Token {
	r := rand.New(rand.NewPCG(seed, 5))
	out := make([]Token, n)
	for i := range out {
		out[i] = Token(r.IntN(600))
	}
	return out
}

// onEachMemory runs a test on each of the tiny models, with the memory shared and split.
func onEachMemory(t *testing.T, opt EngineOptions, test func(t *testing.T, m *Model, opt EngineOptions)) {
	models := floatModels(t)
	for _, name := range slices.Sorted(maps.Keys(models)) {
		m := load(t, models[name], LoadOptions{GPULayers: GPUNone})
		for _, split := range []bool{false, true} {
			opt := opt
			opt.KVType, opt.FlashAttention, opt.SplitKV = KVF32, Off, split
			t.Run(fmt.Sprintf("%s split=%v", name, split), func(t *testing.T) { test(t, m, opt) })
		}
	}
}

func TestEqualPromptsGiveOneAnswer(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 8, Holders: 4}, func(t *testing.T, m *Model, opt EngineOptions) {
		prompt := someTokens(1, 90)
		alone := probed(t, start(t, m, opt), prompt, 24)
		e := start(t, m, opt)
		var sent []running
		for range 8 {
			sent = append(sent, send(t, e, prompt, 24, 0, 0))
		}
		worst, answers := 0.0, map[string]int{}
		for i, s := range sent {
			got := s.wait()
			worst = max(worst, compare(t, fmt.Sprint("request ", i), got, alone, metamorphicTolerance))
			answers[fmt.Sprint(got.tokens)]++
		}
		if len(answers) != 1 {
			t.Errorf("%d answers to one prompt: %v", len(answers), answers)
		}
		t.Logf("largest difference to the prompt alone: %.2g; %+v", worst, e.Stats())
	})
}

func TestForkedLaneIsAFreshLane(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 2, Holders: 6}, func(t *testing.T, m *Model, opt EngineOptions) {
		prefix := someTokens(2, 120)
		e := start(t, m, opt)
		worst := 0.0
		var first trace
		for i := range 4 { // the first reads the prefix; the others begin with copies of what was held
			prompt := slices.Concat(prefix, someTokens(uint64(10+i%3), 15))
			forked := send(t, e, prompt, 20, len(prefix), 0).wait()
			fresh := probed(t, start(t, m, opt), prompt, 20)
			worst = max(worst, compare(t, fmt.Sprint("fork ", i), forked, fresh, metamorphicTolerance))
			if i == 0 {
				first = forked
			} else if forked.result.Cached < len(prefix) {
				t.Errorf("fork %d found %d tokens in memory, want %d", i, forked.result.Cached, len(prefix))
			}
			if i == 3 { // the first prompt again, after forks of the holder have generated: the holder is as it was
				worst = max(worst, compare(t, "holder after its forks", forked, first, metamorphicTolerance))
			}
		}
		t.Logf("largest difference: %.2g", worst)
	})
}

func TestRestoredTwiceIsRestoredOnce(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 1, Holders: 4}, func(t *testing.T, m *Model, opt EngineOptions) {
		e := start(t, m, opt)
		turn := someTokens(3, 100)
		send(t, e, turn, 1, len(turn), 0).wait()
		prompt := slices.Concat(turn, someTokens(4, 12))
		once := send(t, e, prompt, 20, len(turn), 0).wait()
		send(t, e, slices.Concat(turn, someTokens(5, 30)), 20, len(turn), 0).wait()
		twice := send(t, e, prompt, 20, len(turn), 0).wait()
		t.Logf("largest difference: %.2g", compare(t, "second restore", twice, once, metamorphicTolerance))
	})
}

// What was forgotten changes nothing for those that come after: cells that are used again hold nothing of it.
func TestForgottenLeavesNothing(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 2, Holders: 4}, func(t *testing.T, m *Model, opt EngineOptions) {
		e := start(t, m, opt)
		prefix := someTokens(20, 60)
		worst := 0.0
		for i := range 5 {
			prompt := slices.Concat(prefix, someTokens(uint64(21+i%2), 10+20*i))
			asked := send(t, e, prompt, 12, len(prefix), 0)
			got := asked.wait()
			worst = max(worst, compare(t, fmt.Sprint("conversation ", i), got, probed(t, start(t, m, opt), prompt, 12), metamorphicTolerance))
			e.sched.Forget(asked.Stream, len(prefix))
			if i > 0 && got.result.Cached != len(prefix) {
				t.Errorf("conversation %d found %d tokens in memory, want the prefix of %d", i, got.result.Cached, len(prefix))
			}
		}
		send(t, e, someTokens(30, 5), 1, 0, 0).wait() // a step after the last was forgotten
		if used := e.Stats().UsedCells; !opt.SplitKV && used != len(prefix)+5 {
			t.Errorf("%d cells in use, want the prefix and the last request alone", used)
		}
		t.Logf("largest difference: %.2g", worst)
	})
}

// A memory in half precision under fused attention, which users have by default, gives what the exact path gives, but for
// the rounding of what is remembered. What shares a batch matters as little as there, with quantised weights too.
func TestDefaultPath(t *testing.T) {
	for name, path := range floatModels(t) {
		t.Run(name, func(t *testing.T) {
			m := load(t, path, LoadOptions{GPULayers: GPUNone})
			quantised := filepath.Join(t.TempDir(), "q8_0.gguf")
			if err := Quantize(t.Context(), path, quantised, QuantizeOptions{Type: "Q8_0"}); err != nil {
				t.Fatal(err)
			}
			alone, together := batchOfEight(t, m, EngineOptions{FlashAttention: On})
			_, exactly := batchOfEight(t, m, EngineOptions{KVType: KVF32, FlashAttention: Off})
			alone8, together8 := batchOfEight(t, load(t, quantised, LoadOptions{GPULayers: GPUNone}), EngineOptions{FlashAttention: On})
			tolerance := 0.02
			if len(Kernels()) == 0 {
				tolerance = 0.5 // ggml's sums depend on the number of columns, and rounding to 8 bits magnifies that
			}
			var batch, rounding, batch8 float64
			for i := range alone {
				batch = max(batch, compare(t, fmt.Sprint("request ", i), together[i], alone[i], metamorphicTolerance))
				rounding = max(rounding, compare(t, fmt.Sprint("request ", i, ", exact"), together[i], exactly[i], 0.02))
				batch8 = max(batch8, compare(t, fmt.Sprint("request ", i, ", Q8_0"), together8[i], alone8[i], tolerance))
			}
			t.Logf("largest difference: %.2g to the exact path, %.2g to the request alone, %.2g with Q8_0", rounding, batch, batch8)
		})
	}
}

// batchOfEight runs eight requests that share a prefix, each alone and then all at once.
func batchOfEight(t *testing.T, m *Model, opt EngineOptions) (alone, together []trace) {
	opt.ContextLength, opt.Lanes, opt.Holders = 512, 8, 4
	one, all := start(t, m, opt), start(t, m, opt)
	prefix := someTokens(70, 60)
	var sent []running
	for i := range 8 {
		prompt := slices.Concat(prefix, someTokens(uint64(71+i), 5+17*i))
		alone = append(alone, probed(t, one, prompt, 16))
		sent = append(sent, send(t, all, prompt, 16, len(prefix), 0))
	}
	for _, s := range sent {
		together = append(together, s.wait())
	}
	return alone, together
}

// Turns that go on in place, with another conversation between them, are the same as the whole prompt read at once.
func TestTurnsAreTheWholePrompt(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 1024, Lanes: 2, Holders: 4}, func(t *testing.T, m *Model, opt EngineOptions) {
		e := start(t, m, opt)
		conversation := someTokens(6, 80)
		worst := 0.0
		for turn := range 4 {
			other := send(t, e, someTokens(uint64(50+turn), 40+100*turn), 9, 0, 0)
			got := probed(t, e, conversation, 16)
			other.wait()
			if turn > 0 && got.result.Cached != len(conversation)-23-1 {
				t.Errorf("turn %d: %d of %d tokens in memory", turn, got.result.Cached, len(conversation))
			}
			worst = max(worst, compare(t, fmt.Sprint("turn ", turn), got, probed(t, start(t, m, opt), conversation, 16), metamorphicTolerance))
			conversation = slices.Concat(conversation, got.tokens, someTokens(uint64(60+turn), 23))
		}
		t.Logf("largest difference: %.2g", worst)
	})
}

// Prompts of very different lengths, arriving, ending and being cancelled in any order.
func TestAnyOrder(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 2048, Lanes: 4, Holders: 4, BatchTokens: 256}, func(t *testing.T, m *Model, opt EngineOptions) {
		alone := start(t, m, opt)
		lengths := []int{10, 500, 1500, 3, 64, 257}
		prompts := make([][]Token, len(lengths))
		wants := make([]trace, len(lengths))
		for i, n := range lengths {
			prompts[i] = slices.Concat(someTokens(7, n/2), someTokens(uint64(100+i), n-n/2)) // half of it shared
			wants[i] = probed(t, alone, prompts[i], 12)
		}
		e := start(t, m, opt)
		r := rand.New(rand.NewPCG(8, 8))
		worst := 0.0
		for round := range 2 {
			sent := make([]running, len(prompts))
			cancel := r.IntN(len(prompts))
			for _, i := range r.Perm(len(prompts)) {
				sent[i] = send(t, e, prompts[i], 1+r.IntN(12), 0, 0)
				if i == cancel {
					sent[i].Cancel()
				}
			}
			for i := range sent {
				worst = max(worst, compare(t, fmt.Sprintf("round %d, prompt of %d", round, len(prompts[i])), sent[i].wait(), wants[i], metamorphicTolerance))
			}
		}
		t.Logf("largest difference: %.2g; %+v", worst, e.Stats())
	})
}

func TestPreemptedIsNeverPreempted(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 4, Holders: 2, Pool: 512}, func(t *testing.T, m *Model, opt EngineOptions) {
		if opt.SplitKV {
			return // each sequence has room of its own
		}
		e := start(t, m, opt)
		roomy := opt
		roomy.Pool = 0
		alone := start(t, m, roomy)
		var sent []running
		for i := range 6 {
			sent = append(sent, send(t, e, someTokens(uint64(200+i), 60), 150, 0, 0))
		}
		worst := 0.0
		for i, s := range sent {
			got := s.wait()
			if got.result.Reason != sched.MaxTokens {
				t.Errorf("request %d: %+v", i, got.result)
			}
			worst = max(worst, compare(t, fmt.Sprint("request ", i), got, probed(t, alone, someTokens(uint64(200+i), 60), 150), metamorphicTolerance))
		}
		if e.Stats().Preemptions == 0 {
			t.Errorf("nothing was preempted: %+v", e.Stats())
		}
		t.Logf("largest difference: %.2g; %+v", worst, e.Stats())
	})
}

// In deterministic mode a run can be repeated to the bit, whatever the timing of its callers.
func TestDeterministicTwice(t *testing.T) {
	onEachMemory(t, EngineOptions{ContextLength: 512, Lanes: 3, Holders: 4, Deterministic: true}, func(t *testing.T, m *Model, opt EngineOptions) {
		var rounds [2][][]trace
		for round := range rounds {
			rounds[round] = deterministicRun(t, start(t, m, opt))
		}
		for caller := range rounds[0] {
			for turn := range rounds[0][caller] {
				a, b := rounds[0][caller][turn], rounds[1][caller][turn]
				if !slices.Equal(a.tokens, b.tokens) || !slices.EqualFunc(a.logits, b.logits, slices.Equal) {
					t.Fatalf("caller %d, turn %d: %v, then %v", caller, turn, a.tokens, b.tokens)
				}
			}
		}
	})
}

// deterministicRun plays five conversations of three turns; the callers race each other.
func deterministicRun(t *testing.T, e *Engine) [][]trace {
	traces := make([][]trace, 5)
	var all sync.WaitGroup
	var leave [5]func()
	for c := range leave {
		leave[c] = e.Join()
	}
	for c := range traces {
		all.Go(func() {
			defer leave[c]()
			conversation := slices.Concat(someTokens(9, 40), someTokens(uint64(300+c), 10+7*c))
			for turn := range 3 {
				got := send(t, e, conversation, 8+c, 40, c).wait()
				traces[c] = append(traces[c], got)
				conversation = slices.Concat(conversation, got.tokens, someTokens(uint64(turn), 11))
			}
		})
	}
	all.Wait()
	return traces
}
