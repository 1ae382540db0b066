package eval

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quern/sqlguard"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker()
	if dir := os.Getenv("QUERN_EVAL_TEST_RUN"); dir != "" {
		os.Exit(childRun(dir))
	}
	os.Exit(m.Run())
}

// hashPredictor answers from a hash of the question, so that runs can be compared; it takes a little time.
type hashPredictor struct {
	delay time.Duration
	fail  func(ex Example) error
	calls atomic.Int64
}

func (p *hashPredictor) Predict(ctx context.Context, ex Example, sample int) (Prediction, error) {
	p.calls.Add(1)
	if p.fail != nil {
		if err := p.fail(ex); err != nil {
			return Prediction{}, err
		}
	}
	h := fnv.New32a()
	fmt.Fprint(h, ex.ID, sample)
	n := h.Sum32()
	select {
	case <-time.After(p.delay * time.Duration(n%5)):
	case <-ctx.Done():
		return Prediction{}, ctx.Err()
	}
	return Prediction{SQL: fmt.Sprintf("SELECT %d -- \u00e9 <b>", n%3), Stop: "final_sql", Turns: int(n%4) + 1, ToolCalls: int(n % 4),
		Tokens: Tokens{Prompt: 100, Generated: int(n % 50)}, Seconds: float64(n), LogProb: -float64(n % 7)}, nil
}

// digitScorer calls "SELECT 0" right.
type digitScorer struct{}

func (digitScorer) Score(_ context.Context, ex Example, sql string) (*Score, error) {
	s := &Score{Official: Wrong, Strict: Wrong, Gold: &Table{Columns: []string{"a"}, Rows: [][]any{{int64(9007199254740993)}, {1e300}, {nil}}}}
	if strings.HasPrefix(sql, "SELECT 0") {
		s.Official, s.Strict = Correct, Correct
	}
	return s, nil
}

func (digitScorer) Totals([]Result) []Totals { return nil }

func testExamples(n int) []Example {
	var out []Example
	for i := range n {
		out = append(out, Example{ID: fmt.Sprint("q", i), Index: i, DB: fmt.Sprint("db", i%3), Question: "how many?"})
	}
	return out
}

func testManifest() Manifest {
	return Manifest{Format: FormatVersion, Model: "m.gguf", ModelHash: "abc", Dataset: Spider, DatasetDigest: "d", Selection: "all", Flags: map[string]string{"max-turns": "8"}}
}

func childRun(dir string) int {
	_, err := Run(context.Background(), testManifest(), testExamples(60), &hashPredictor{delay: time.Millisecond}, digitScorer{}, nil,
		RunOptions{Lanes: 4, Deterministic: true, Checkpoint: filepath.Join(dir, "run.ckpt"), Out: filepath.Join(dir, "run.jsonl")})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// A run that is killed again and again ends in the same file, byte for byte, as one that is left alone.
func TestKillAndResume(t *testing.T) {
	start := func(dir string) *exec.Cmd {
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), "QUERN_EVAL_TEST_RUN="+dir)
		cmd.Stderr = os.Stderr
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		return cmd
	}
	quiet, killed := t.TempDir(), t.TempDir()
	if err := start(quiet).Wait(); err != nil {
		t.Fatal(err)
	}
	kills, lines := 0, 0
	for range 20 {
		cmd := start(killed)
		time.Sleep(time.Duration(rand.Intn(25)) * time.Millisecond)
		cmd.Process.Kill()
		if cmd.Wait() != nil {
			kills++
		}
		data, _ := os.ReadFile(filepath.Join(killed, "run.ckpt"))
		lines = bytes.Count(data, []byte("\n"))
	}
	if err := start(killed).Wait(); err != nil {
		t.Fatal(err)
	}
	t.Logf("killed %d times; the checkpoint then held %d lines", kills, lines)
	want, _ := os.ReadFile(filepath.Join(quiet, "run.jsonl"))
	got, _ := os.ReadFile(filepath.Join(killed, "run.jsonl"))
	if len(want) == 0 || !bytes.Equal(want, got) {
		t.Errorf("%d bytes after kills, %d without", len(got), len(want))
	}
}

// A checkpoint cut at any byte is gone on from, and the end is the same.
func TestTornCheckpoint(t *testing.T) {
	dir := t.TempDir()
	opts := RunOptions{Lanes: 1, Deterministic: true, Checkpoint: filepath.Join(dir, "c"), Out: filepath.Join(dir, "out")}
	run := func() []byte {
		if _, err := Run(context.Background(), testManifest(), testExamples(4), &hashPredictor{}, digitScorer{}, nil, opts); err != nil {
			t.Fatal(err)
		}
		out, err := os.ReadFile(opts.Out)
		if err != nil {
			t.Fatal(err)
		}
		return out
	}
	want := run()
	whole, _ := os.ReadFile(opts.Checkpoint)
	for n := 0; n <= len(whole); n += 1 + len(whole)/200 {
		if err := os.WriteFile(opts.Checkpoint, whole[:n], 0o644); err != nil {
			t.Fatal(err)
		}
		if got := run(); !bytes.Equal(got, want) {
			t.Fatalf("cut at byte %d: another result", n)
		}
	}
}

// groupPredictor answers with how many questions its group has had before, as an engine that remembers would.
type groupPredictor struct {
	mu     sync.Mutex
	group  int
	joined int
	seen   map[string]bool
}

func (p *groupPredictor) Begin(context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.joined != 0 {
		return errors.New("a lane is left over from the group before")
	}
	p.seen = map[string]bool{}
	return nil
}

func (p *groupPredictor) Enter() func() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.joined++
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.joined--
	}
}

func (p *groupPredictor) Predict(_ context.Context, ex Example, _ int) (Prediction, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for other := range p.seen {
		if other != ex.DB {
			return Prediction{}, errors.New("two databases in one group")
		}
	}
	p.seen[ex.DB] = true
	p.group++
	return Prediction{SQL: "SELECT 0", Stop: "final_sql"}, nil
}

// A deterministic run repeats whole groups: what a killed run has of one is done again.
func TestDeterministicGroups(t *testing.T) {
	dir := t.TempDir()
	opts := RunOptions{Lanes: 4, Deterministic: true, Checkpoint: filepath.Join(dir, "c"), Out: filepath.Join(dir, "out")}
	run := func() (*groupPredictor, Progress) {
		p := &groupPredictor{}
		progress, err := Run(context.Background(), testManifest(), testExamples(12), p, digitScorer{}, nil, opts)
		if err != nil {
			t.Fatal(err)
		}
		return p, progress
	}
	if p, _ := run(); p.group != 12 {
		t.Fatalf("%d questions were asked, not 12", p.group)
	}
	want, _ := os.ReadFile(opts.Out)
	data, _ := os.ReadFile(opts.Checkpoint)
	lines := bytes.SplitAfter(data, []byte("\n"))
	kept := lines[:1:1]
	for _, line := range lines[1:] { // one group of four, and half of the next
		if bytes.Contains(line, []byte(`"db":"db0"`)) || bytes.Contains(line, []byte(`"id":"q1"`)) || bytes.Contains(line, []byte(`"id":"q4"`)) {
			kept = append(kept, line)
		}
	}
	if err := os.WriteFile(opts.Checkpoint, bytes.Join(kept, nil), 0o644); err != nil {
		t.Fatal(err)
	}
	p, progress := run()
	if p.group != 8 || progress.Resumed != 4 || progress.Done != 12 {
		t.Errorf("after half a group: %d questions asked, %+v", p.group, progress)
	}
	if got, _ := os.ReadFile(opts.Out); !bytes.Equal(got, want) {
		t.Error("another result")
	}
}

func TestCheckpointOfAnotherRun(t *testing.T) {
	path := filepath.Join(t.TempDir(), "c")
	opts := RunOptions{Lanes: 1, Checkpoint: path}
	run := func(m Manifest) error {
		_, err := Run(context.Background(), m, testExamples(2), &hashPredictor{}, digitScorer{}, nil, opts)
		return err
	}
	if err := run(testManifest()); err != nil {
		t.Fatal(err)
	}
	for want, change := range map[string]func(*Manifest){
		"model_hash: abc, now xyz":       func(m *Manifest) { m.ModelHash = "xyz" },
		"prompt_hash: (none), now p":     func(m *Manifest) { m.PromptHash = "p" },
		"dataset_digest: d, now e":       func(m *Manifest) { m.DatasetDigest = "e" },
		"--max-turns: 8, now 9":          func(m *Manifest) { m.Flags = map[string]string{"max-turns": "9"} },
		"--temperature: (none), now 0.5": func(m *Manifest) { m.Flags = map[string]string{"max-turns": "8", "temperature": "0.5"} },
	} {
		m := testManifest()
		change(&m)
		err := run(m)
		var refused *CheckpointError
		if !errors.As(err, &refused) || len(refused.Differences) != 1 || !strings.Contains(err.Error(), want) {
			t.Errorf("want a refusal with %q, got %v", want, err)
		}
	}
	data, _ := os.ReadFile(path)
	damaged := bytes.Replace(data, []byte(`{"id":"q`), []byte(`{"id:"q`), 1)
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := run(testManifest()); err == nil || !strings.Contains(err.Error(), "line 2 is damaged") {
		t.Errorf("a damaged line: %v", err)
	}
}

// What broke on our side is recorded as such, counted apart and done again on resume.
func TestHarnessFailures(t *testing.T) {
	dir := t.TempDir()
	opts := RunOptions{Lanes: 2, Checkpoint: filepath.Join(dir, "c"), Out: filepath.Join(dir, "out")}
	broken := &hashPredictor{fail: func(ex Example) error {
		if ex.ID == "q1" {
			return errors.New("connection refused")
		}
		return nil
	}}
	p, err := Run(context.Background(), testManifest(), testExamples(5), broken, digitScorer{}, nil, opts)
	if err != nil || p.Broken != 1 || p.Scored != 4 {
		t.Fatalf("%+v, %v", p, err)
	}
	file, err := ReadResults(opts.Out)
	if err != nil || !file.Results[1].Failed() || file.Results[1].Score != nil {
		t.Fatalf("%+v, %v", file, err)
	}
	again := &hashPredictor{}
	p, err = Run(context.Background(), testManifest(), testExamples(5), again, digitScorer{}, nil, opts)
	if err != nil || p.Broken != 0 || p.Resumed != 4 || again.calls.Load() != 1 {
		t.Errorf("after resume: %+v, %d calls, %v", p, again.calls.Load(), err)
	}
	gone := &hashPredictor{fail: func(Example) error { return errors.New("no route to host") }}
	_, err = Run(context.Background(), testManifest(), testExamples(100), gone, digitScorer{}, nil, RunOptions{Lanes: 4})
	if err == nil || !strings.Contains(err.Error(), "in a row failed on our side") || gone.calls.Load() > 60 {
		t.Errorf("a run on a server that is gone: %v after %d calls", err, gone.calls.Load())
	}
}

func TestInterrupt(t *testing.T) {
	dir := t.TempDir()
	opts := RunOptions{Lanes: 3, Deterministic: true, Checkpoint: filepath.Join(dir, "c"), Out: filepath.Join(dir, "out")}
	ctx, cancel := context.WithCancel(context.Background())
	opts.Progress = func(p Progress) {
		if p.Done == 5 {
			cancel()
		}
	}
	_, err := Run(ctx, testManifest(), testExamples(40), &hashPredictor{delay: time.Millisecond}, digitScorer{}, nil, opts)
	var stopped *Interrupted
	if !errors.As(err, &stopped) || stopped.Done < 5 || stopped.Done > 40 {
		t.Fatalf("interrupted: %v", err)
	}
	data, _ := os.ReadFile(opts.Checkpoint)
	if bytes.Count(data, []byte("\n")) != 1+stopped.Done || !bytes.HasSuffix(data, []byte("\n")) {
		t.Errorf("the checkpoint holds %d whole lines for %d questions", bytes.Count(data, []byte("\n")), stopped.Done)
	}
	if _, err := os.Stat(opts.Out); err == nil {
		t.Error("an interrupted run wrote its results file")
	}
}

func TestShardsMerge(t *testing.T) {
	dir := t.TempDir()
	examples := testExamples(31)
	run := func(name, selection string, part []Example) string {
		m := testManifest()
		m.Selection = selection
		out := filepath.Join(dir, name)
		if _, err := Run(context.Background(), m, part, &hashPredictor{}, digitScorer{}, nil, RunOptions{Lanes: 3, Deterministic: true, Out: out}); err != nil {
			t.Fatal(err)
		}
		return out
	}
	whole := run("whole", "all", examples)
	var parts []string
	for i := 1; i <= 3; i++ {
		parts = append(parts, run(fmt.Sprint("part", i), ShardSelection("all", i, 3), Shard(examples, i, 3)))
	}
	merged := filepath.Join(dir, "merged")
	if err := Merge(merged, []string{parts[2], parts[0], parts[1]}); err != nil {
		t.Fatal(err)
	}
	want, _ := os.ReadFile(whole)
	got, _ := os.ReadFile(merged)
	if !bytes.Equal(want, got) {
		t.Error("the merged shards differ from the whole run")
	}
	other := run("other", ShardSelection("all", 2, 2), Shard(examples, 2, 2))
	for want, paths := range map[string][]string{
		"one of 3 shards":      {parts[0], other},
		"shard 2/3 is missing": {parts[0], parts[2]},
		"both shard 1":         {parts[0], parts[0]},
		"not a shard":          {whole},
	} {
		if err := Merge(merged, paths); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

// Shards of one run may be generated on several servers.
func TestShardsOfServers(t *testing.T) {
	dir := t.TempDir()
	examples := testExamples(8)
	var parts []string
	for i, engine := range []string{"http://a:1", "http://b:1"} {
		m := testManifest()
		m.Engine, m.Selection = engine, ShardSelection("all", i+1, 2)
		parts = append(parts, filepath.Join(dir, fmt.Sprint("part", i)))
		if _, err := Run(context.Background(), m, Shard(examples, i+1, 2), &hashPredictor{}, digitScorer{}, nil, RunOptions{Lanes: 1, Out: parts[i]}); err != nil {
			t.Fatal(err)
		}
	}
	if err := Merge(filepath.Join(dir, "merged"), parts); err != nil {
		t.Fatal(err)
	}
	file, err := ReadResults(filepath.Join(dir, "merged"))
	if err != nil || file.Manifest.Engine != "http://a:1, http://b:1" || len(file.Results) != len(examples) {
		t.Errorf("merged: %+v, %v", file.Manifest, err)
	}
}

// scriptedResults gives each SQL a canonical result.
type scriptedResults map[string]string

func (s scriptedResults) canonicalResult(_ context.Context, _ Example, sql string) (string, string, error) {
	if hash, ok := s[sql]; ok {
		return hash, "", nil
	}
	return "", "no such column", nil
}

func TestVote(t *testing.T) {
	results := scriptedResults{"a": "1", "a2": "1", "b": "2", "c": "3"}
	sample := func(sql, stop string, logprob float64) Prediction {
		return Prediction{SQL: sql, Stop: stop, LogProb: logprob, Tokens: Tokens{Generated: 10}}
	}
	greedy := sample("g", "final_sql", 0)
	for _, c := range []struct {
		name    string
		samples []Prediction
		want    string
	}{
		{"majority by result, not by text; of its members the likeliest", []Prediction{sample("b", "final_sql", -1), sample("a", "final_sql", -9), sample("a2", "final_sql", -8)}, "a2"},
		{"a tie goes to the likelier", []Prediction{sample("a", "final_sql", -5), sample("b", "final_sql", -2)}, "b"},
		{"errors never win", []Prediction{sample("x", "final_sql", -1), sample("x", "final_sql", -1), sample("c", "final_sql", -9)}, "c"},
		{"nor do capped ones", []Prediction{sample("a", "max_tokens", -1), sample("a", "max_turns", -1), sample("b", "forced_final", -9)}, "b"},
		{"nor those without SQL", []Prediction{sample("", "final_sql", -1), sample("", "final_sql", -1), sample("b", "final_sql", -3)}, "b"},
		{"nobody can win: greedy stands", []Prediction{sample("x", "final_sql", -1), sample("", "max_turns", -1)}, "g"},
	} {
		got, err := vote(context.Background(), results, Example{}, append([]Prediction{greedy}, c.samples...))
		if err != nil || got.SQL != c.want || got.Vote.Greedy != "g" || len(got.Vote.Candidates) != len(c.samples) {
			t.Errorf("%s: %q, %+v, %v", c.name, got.SQL, got.Vote, err)
		}
		if got.Tokens.Generated != 10*(1+len(c.samples)) {
			t.Errorf("%s: %d tokens", c.name, got.Tokens.Generated)
		}
	}
}

func TestOrdered(t *testing.T) {
	for sql, want := range map[string]bool{
		"SELECT a FROM t ORDER BY a":                             true,
		"select a from t order\n\tby a limit 3":                  true,
		"SELECT a FROM (SELECT a FROM t ORDER BY a)":             false,
		"SELECT 'order by' FROM t":                               false,
		"SELECT a FROM t -- ORDER BY a":                          false,
		"SELECT a FROM t /* x */ ORDER /* y */ BY a":             true,
		`SELECT "order" , by FROM t`:                             false,
		"SELECT row_number() OVER (ORDER BY a) FROM t":           false,
		"WITH c AS (SELECT 1 ORDER BY 1) SELECT * FROM c":        false,
		"SELECT a FROM t UNION SELECT b FROM u ORDER BY 1":       true,
		"SELECT 'it''s' FROM t WHERE x IN (SELECT 1) ORDER BY 1": true,
		"SELECT '": false,
		"":         false,
	} {
		if Ordered(sql) != want {
			t.Errorf("Ordered(%q) = %v", sql, !want)
		}
	}
}

func FuzzWords(f *testing.F) {
	f.Add("SELECT 'a''b', [x y] -- c\n/* d */ FROM \"t")
	f.Fuzz(func(t *testing.T, sql string) {
		Ordered(sql)
		if !SameText(sql, sql+" ;") {
			if !strings.ContainsAny(sql, "'\"`[-/") { // an open string or comment swallows the semicolon
				t.Errorf("%q differs from itself with a semicolon", sql)
			}
		}
	})
}
