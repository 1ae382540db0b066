package engine

import (
	"maps"
	"math"
	"path/filepath"
	"slices"
	"testing"

	"quern/engine/internal/llama"
	"quern/internal/testenv"
	"quern/safetensors"
)

// golden is a golden.json of the model oracles: results of the reference in float32.
type golden struct {
	Label   string
	Prompts map[string]goldenPrompt
}

type goldenPrompt struct {
	Text         string
	IDs          []Token
	LogprobTotal float64 `json:"logprob_total"`
	Greedy       []Token `json:"greedy32"`
}

// Tolerances of MANIFEST.md for an f32 GGUF with f32 key/value memory on the CPU.
const (
	logitTolerance       = 1e-4
	logitToleranceHybrid = 2e-4
	totalTolerance       = 1e-3
)

func tolerance(m *Model) float64 {
	if m.Hybrid() {
		return logitToleranceHybrid
	}
	return logitTolerance
}

// raw is a context without scheduler, for tests that want logits.
type raw struct {
	t testing.TB
	*llama.Context
	length map[int32]int // tokens in each sequence
}

func newRaw(t testing.TB, m *Model, ctx, seqs int) *raw {
	t.Helper()
	c, err := llama.NewContext(m.llama, llama.ContextParams{
		Ctx: ctx, Batch: 512, Ubatch: 512, Seqs: seqs, Outputs: 512, Threads: 1, BatchThreads: 1,
		Flash: llama.FlashOff, KVType: "f32", Unified: true,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &raw{t: t, Context: c, length: map[int32]int{}}
}

// read appends ids to a sequence in chunks and gives the logits behind each of the last `last` tokens.
func (r *raw) read(seq int32, ids []Token, chunk, last int) (logits [][]float32) {
	r.t.Helper()
	first := len(ids) - last
	for start := 0; start < len(ids); start += chunk {
		part := ids[start:min(start+chunk, len(ids))]
		pos, seqs, want := make([]int32, len(part)), make([]int32, len(part)), make([]int8, len(part))
		for i := range part {
			pos[i], seqs[i] = int32(r.length[seq]+i), seq
			if start+i >= first {
				want[i] = 1
			}
		}
		if err := r.Decode(part, pos, seqs, want); err != nil {
			r.t.Fatal(err)
		}
		r.length[seq] += len(part)
		for i := range part {
			if want[i] == 1 {
				logits = append(logits, r.row(i))
			}
		}
	}
	return logits
}

func (r *raw) row(i int) []float32 {
	r.t.Helper()
	x, err := r.Logits(nil, i)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

// difference is the largest absolute difference.
func difference(a, b []float32) float64 {
	worst := 0.0
	if len(a) != len(b) {
		return math.Inf(1)
	}
	for i := range a {
		worst = max(worst, math.Abs(float64(a[i])-float64(b[i])))
	}
	return worst
}

// TestGolden compares every f32 model of the oracles with the reference: tokens, logits, log-probabilities, and greedy
// continuations through the scheduler.
func TestGolden(t *testing.T) {
	models := floatModels(t)
	found := 0
	for _, name := range slices.Sorted(maps.Keys(models)) {
		dir := filepath.Join(testenv.Oracles(t, "models", "golden"), name)
		if !exists(dir) {
			continue
		}
		found++
		t.Run(name, func(t *testing.T) { compareGolden(t, load(t, models[name], LoadOptions{}), dir) })
	}
	if found == 0 {
		t.Fatal("no golden results for any f32 model")
	}
}

func compareGolden(t *testing.T, m *Model, dir string) {
	want := readJSON[golden](t, filepath.Join(dir, "golden.json"))
	file, err := safetensors.Open(filepath.Join(dir, "logits.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	e := start(t, m, exact)
	worstLogit, worstTotal, steps := 0.0, 0.0, 0
	for name, p := range want.Prompts {
		ids, err := m.TokenizeReference(p.Text)
		if err != nil || !slices.Equal(ids, p.IDs) {
			t.Errorf("%s: tokens %v, want %v (%v)", name, ids, p.IDs, err)
		}
		stored, err := file.Lookup(name).ReadFloats()
		if err != nil {
			t.Fatal(err)
		}
		logits := newRaw(t, m, 1024, 1).read(0, p.IDs, 512, len(p.IDs))
		last := slices.Concat(logits[len(logits)-4:]...)
		worstLogit = max(worstLogit, difference(last, stored))
		worstTotal = max(worstTotal, math.Abs(logprobTotal(logits, p.IDs)-p.LogprobTotal))

		r := generate(t, e, Request{Prompt: p.IDs, MaxTokens: len(p.Greedy), IgnoreEnd: true})
		if !slices.Equal(r.Tokens, p.Greedy) {
			t.Errorf("%s: greedy %v, want %v", name, r.Tokens, p.Greedy)
		}
		steps += len(p.Greedy)
	}
	t.Logf("%d prompts: worst logit difference %.1e, worst log-prob total %.1e, greedy equal on %d steps", len(want.Prompts), worstLogit, worstTotal, steps)
	if worstLogit > tolerance(m) || worstTotal > totalTolerance {
		t.Errorf("more than %.0e and %.0e", tolerance(m), totalTolerance)
	}
}

// logprobTotal is the sum of ln p(token i | tokens before), i ≥ 1.
func logprobTotal(logits [][]float32, ids []Token) (total float64) {
	for i, id := range ids[1:] {
		top := float64(slices.Max(logits[i]))
		sum := 0.0
		for _, x := range logits[i] {
			sum += math.Exp(float64(x) - top)
		}
		total += float64(logits[i][id]) - top - math.Log(sum)
	}
	return total
}

// longPrompt is the longest golden prompt of a model, or any text where there are none.
func longPrompt(t *testing.T, name string) []Token {
	t.Helper()
	var longest []Token
	for _, p := range readJSON[golden](t, testenv.Oracles(t, "models", "golden", name, "golden.json")).Prompts {
		if len(p.IDs) > len(longest) {
			longest = p.IDs
		}
	}
	return longest
}

// TestChunks: a prompt read in chunks of 1, 7 and 512 tokens gives the same logits.
func TestChunks(t *testing.T) {
	for name, path := range floatModels(t) {
		m := load(t, path, LoadOptions{})
		ids := longPrompt(t, name)
		whole := newRaw(t, m, 1024, 1).read(0, ids, 512, 1)[0]
		for _, chunk := range []int{1, 7} {
			got := newRaw(t, m, 1024, 1).read(0, ids, chunk, 1)[0]
			worst := difference(whole, got)
			t.Logf("%s: chunks of %d against whole: worst logit difference %.1e", name, chunk, worst)
			if worst > tolerance(m) {
				t.Errorf("more than %.0e", tolerance(m))
			}
		}
	}
}

// TestBatchEqualsAlone: prompts read and continued together give the logits that each gives alone, up to rounding.
func TestBatchEqualsAlone(t *testing.T) {
	for name, path := range floatModels(t) {
		m := load(t, path, LoadOptions{})
		var prompts [][]Token
		for _, p := range readJSON[golden](t, testenv.Oracles(t, "models", "golden", name, "golden.json")).Prompts {
			prompts = append(prompts, p.IDs[:min(len(p.IDs), 40)])
		}
		together := newRaw(t, m, 2048, len(prompts))
		for i, ids := range prompts {
			together.read(int32(i), ids[:len(ids)-1], 512, 0)
		}
		n := len(prompts)
		ids, pos, seqs, want := make([]Token, n), make([]int32, n), make([]int32, n), make([]int8, n)
		for i, p := range prompts {
			ids[i], pos[i], seqs[i], want[i] = p[len(p)-1], int32(len(p)-1), int32(i), 1
		}
		if err := together.Decode(ids, pos, seqs, want); err != nil {
			t.Fatal(err)
		}
		worst := 0.0
		for i, p := range prompts {
			worst = max(worst, difference(together.row(i), newRaw(t, m, 256, 1).read(0, p, 512, 1)[0]))
		}
		t.Logf("%s: %d together against alone: worst logit difference %.1e", name, n, worst)
		if worst > tolerance(m) {
			t.Errorf("more than %.0e", tolerance(m))
		}
	}
}
