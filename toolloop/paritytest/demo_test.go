package paritytest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"quern/convert"
	"quern/engine"
	"quern/internal/enginegen"
	"quern/internal/testenv"
	"quern/lora"
	"quern/prompts"
	"quern/sqlguard"
	"quern/tensor"
	"quern/toolloop"
	"quern/toolloop/internal/looptest"
	"quern/toolloop/sqltool"
)

// noMargin is the gap between the best two logits below which two engines may choose differently.
const noMargin = 1e-3

type demoRow struct {
	DB           string `json:"db_id"`
	Question     string
	FinalSQL     *string          `json:"final_sql"`
	PromptTokens int              `json:"prompt_tokens"`
	ResponseIDs  []toolloop.Token `json:"response_ids"`
	Turns        []struct {
		Text        string
		MinMargin   float64 `json:"min_margin"`
		Call        string
		Observation string
	}
}

// The hermes loop over the demo model's float32 merge gives the reference's ids on every question, alone and sixteen at
// once. A question may differ from a turn on whose margin is below noMargin; such questions are listed.
func TestDemoTranscripts(t *testing.T) {
	if testing.Short() {
		t.Skip("hundreds of questions")
	}
	path := demoModel(t)
	for _, lanes := range []int{1, 16} {
		t.Run(fmt.Sprintf("lanes=%d", lanes), func(t *testing.T) {
			t.Parallel()
			checkDemo(t, path, lanes)
		})
	}
}

func checkDemo(t *testing.T, path string, lanes int) {
	ctx := context.Background()
	model, err := engine.Load(ctx, path, engine.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	// The reference computed attention step by step in float32; the fused kernel's logits differ by up to 0.03, which is
	// more than noMargin. Without it many lanes are quick only with memories of their own.
	eng, err := model.NewEngine(ctx, engine.EngineOptions{
		ContextLength: 2048, Lanes: lanes, Holders: 2, Threads: 1, KVType: engine.KVF32, FlashAttention: engine.Off, SplitKV: lanes > 1,
	})
	if err != nil {
		t.Fatal(err)
	}
	defer eng.Close()
	template, err := model.ChatTemplate()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(testenv.Shared(t, "demo-model", "transcripts"), "*.jsonl"))
	if err != nil || len(files) == 0 {
		t.Fatal("no transcripts", err)
	}
	var count demoCount
	free := make(chan struct{}, lanes)
	var wg sync.WaitGroup
	for _, file := range files {
		set := strings.TrimSuffix(filepath.Base(file), ".jsonl")
		loops := map[string]*demoLoop{}
		for _, row := range looptest.Rows[demoRow](t, file) {
			if loops[row.DB] == nil {
				loops[row.DB] = newDemoLoop(t, set, row.DB, eng, template)
			}
			loop := loops[row.DB]
			free <- struct{}{}
			wg.Go(func() {
				defer func() { <-free }()
				count.compare(t, row, loop.ask(t, row.Question))
			})
		}
	}
	wg.Wait()
	t.Logf("%d of %d questions (%d turns) with equal ids", count.equal, count.questions, count.turns)
}

type demoCount struct {
	sync.Mutex
	questions, turns, equal int
}

func (c *demoCount) compare(t *testing.T, row demoRow, got *toolloop.Transcript) {
	equal := slices.Equal(got.ResponseIDs, row.ResponseIDs)
	c.Lock()
	c.questions++
	c.turns += len(row.Turns)
	if equal {
		c.equal++
	}
	c.Unlock()
	compareDemo(t, row, got, equal)
}

// compareDemo tells where a question differs, and fails unless a narrow choice explains it.
func compareDemo(t *testing.T, row demoRow, got *toolloop.Transcript, equal bool) {
	if got.PromptTokens != row.PromptTokens {
		t.Errorf("%s %q: prompt of %d tokens, want %d", row.DB, row.Question, got.PromptTokens, row.PromptTokens)
	}
	if equal {
		want := ""
		if row.FinalSQL != nil {
			want = *row.FinalSQL
		}
		if row.FinalSQL != nil && got.FinalSQL != want {
			t.Errorf("%s %q: final SQL %q, want %q", row.DB, row.Question, got.FinalSQL, want)
		}
		return
	}
	for i, turn := range row.Turns {
		if i < len(got.Turns) && got.Turns[i].Text == turn.Text {
			continue
		}
		if turn.MinMargin < noMargin {
			t.Logf("known deviation, %s %q: turn %d has a margin of %g", row.DB, row.Question, i+1, turn.MinMargin)
			return
		}
		mine := "nothing"
		if i < len(got.Turns) {
			mine = got.Turns[i].Text
		}
		t.Errorf("%s %q, turn %d (margin %g)\n got %q\nwant %q", row.DB, row.Question, i+1, turn.MinMargin, mine, turn.Text)
		return
	}
	if call, theirs, ours := otherResult(row, got); floatAggregate.MatchString(call) {
		t.Logf("known deviation, %s %q: SQLite %s sums floats with compensation (since 3.43), so that %s gives %s, not %s",
			row.DB, row.Question, sqlguard.Engine().Version, call, ours, theirs)
		return
	}
	t.Errorf("%s %q: the same texts in other ids", row.DB, row.Question)
}

var floatAggregate = regexp.MustCompile(`(?i)\b(?:avg|sum|total)\s*\(`)

// otherResult finds the first call whose result is another than the reference's.
func otherResult(row demoRow, got *toolloop.Transcript) (call, theirs, ours string) {
	for i, turn := range row.Turns {
		if i >= len(got.Turns) || len(got.Turns[i].Calls) == 0 {
			return "", "", ""
		}
		if obs := got.Turns[i].Calls[0].Observation; obs != nil && obs.Text != turn.Observation {
			return turn.Call, turn.Observation, obs.Text
		}
	}
	return "", "", ""
}

// demoLoop asks one database as the reference loop did: at most five turns of 160 tokens.
type demoLoop struct {
	loop   toolloop.Loop
	prompt sqltool.Prompt
}

func newDemoLoop(t *testing.T, set, db string, eng *engine.Engine, template *engine.ChatTemplate) *demoLoop {
	t.Helper()
	file := testenv.Shared(t, "demo-model", set, "database", db, db+".sqlite")
	guard, err := sqlguard.Open(context.Background(), file, sqltool.GuardPolicy(sqlguard.EvalPolicy(), toolloop.Hermes()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guard.Close() })
	pack, err := prompts.ForProfile(toolloop.ProfileHermes)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := sqltool.New(guard, toolloop.Hermes(), pack.Tool, sqltool.Options{})
	if err != nil {
		t.Fatal(err)
	}
	schema, err := sqltool.ReadSchema(context.Background(), guard, toolloop.Hermes())
	if err != nil {
		t.Fatal(err)
	}
	return &demoLoop{
		prompt: sqltool.Prompt{Texts: pack, Schema: schema},
		loop: toolloop.Loop{
			Profile: toolloop.Hermes(), Generator: enginegen.Generator{Engine: eng}, Renderer: enginegen.Renderer{Template: template},
			Tokenizer: enginegen.Tokenizer{Model: eng.Model()}, Tools: []toolloop.Tool{tool},
			Limits: toolloop.Limits{MaxTurns: 5, MaxCalls: 1, MaxNewTokens: 160},
		},
	}
}

func (d *demoLoop) ask(t *testing.T, question string) *toolloop.Transcript {
	messages, _, err := d.prompt.Messages(question, 0, nil)
	if err != nil {
		t.Error(err)
		return &toolloop.Transcript{}
	}
	conversation, err := d.loop.Start(messages)
	if err != nil {
		t.Error(err)
		return &toolloop.Transcript{}
	}
	transcript, err := d.loop.Run(context.Background(), conversation, nil)
	if err != nil {
		t.Errorf("%q: %v", question, err)
	}
	return transcript
}

// demoModel is the float32 merge of the demo model's stages as GGUF: QUERN_DEMO_F32, or made here.
func demoModel(t *testing.T) string {
	t.Helper()
	if path := os.Getenv("QUERN_DEMO_F32"); path != "" {
		return path
	}
	ctx := context.Background()
	base, err := lora.OpenBase(testenv.Shared(t, "demo-model", "base"))
	if err != nil {
		t.Fatal(err)
	}
	defer base.Close()
	var stages []lora.Stage
	for _, name := range []string{"stage1", "checkpoint-1066-adapter.zip"} {
		adapter, err := lora.Open(testenv.Shared(t, "demo-model", "adapters", name))
		if err != nil {
			t.Fatal(err)
		}
		defer adapter.Close()
		stages = append(stages, lora.Stage{Adapter: adapter, Scale: 1})
	}
	plan, err := lora.NewPlan(base, stages)
	if err != nil {
		t.Fatal(err)
	}
	folder, file := filepath.Join(t.TempDir(), "merged"), filepath.Join(t.TempDir(), "demo.gguf")
	if _, err := plan.Merge(ctx, lora.MergeOptions{Out: folder, Type: tensor.F32, JudgeOptions: lora.JudgeOptions{AcceptMismatch: true}}); err != nil {
		t.Fatal(err)
	}
	if _, err := convert.Convert(ctx, folder, file, convert.Options{Type: convert.F32}); err != nil {
		t.Fatal(err)
	}
	return file
}
