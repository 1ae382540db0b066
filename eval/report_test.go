package eval

import (
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// cardResults is a small run with one question for each thing that a report counts. The figures below are worked out by hand
// from this table.
//
//	id  db   level   verdict            calls  stop          notes
//	1   a    easy    correct            1      final_sql     same text, single value, answered with its query
//	2   a    easy    correct            1      final_sql     both empty, answered with its query
//	3   a    medium  correct            2      final_sql     one of its queries failed
//	4   a    medium  correct            0      final_sql     single value
//	5   b    hard    wrong              1      final_sql     too few columns
//	6   b    hard    wrong              3      forced_final  value mismatch, right but for the form; capped once
//	7   b    easy    prediction_failed  0      final_sql     SQL error, Spider's parser fails too
//	8   b    extra   prediction_failed  4      max_turns     no SQL
//	9   b    extra   timed_out          1      final_sql
//	10  c    easy    gold_failed        1      final_sql
//	11  c    easy    harness error
//	12  c            wrong              1      final_sql     order mismatch
func cardResults() []Result {
	ok := func(sql string) Query { return Query{SQL: sql, Rows: 1} }
	bad := func(sql string) Query { return Query{SQL: sql, Error: "no such column"} }
	row := func(id int, db, level string, v Verdict, stop, sql string, queries ...Query) Result {
		score := &Score{Official: v, Strict: v, Difficulty: level, Metrics: map[string]float64{"exec": oneIf(v == Correct)}}
		if v != PredictionFailed && v != TimedOut {
			score.Flags = []string{FlagExecutes}
		}
		return Result{Example: Example{ID: fmt.Sprint(id), Index: id - 1, DB: db, Question: "q", Gold: "SELECT x"}, Score: score,
			Prediction: Prediction{SQL: sql, Stop: stop, Turns: len(queries) + 1, ToolCalls: len(queries), Queries: queries,
				Tokens: Tokens{Prompt: 100, Generated: 10 * id, Tool: 5}, Seconds: 2}}
	}
	results := []Result{
		row(1, "a", "easy", Correct, "final_sql", "SELECT x", ok("select X;")),
		row(2, "a", "easy", Correct, "final_sql", "SELECT y", ok("SELECT y")),
		row(3, "a", "medium", Correct, "final_sql", "SELECT z", bad("SELECT w"), ok("SELECT v")),
		row(4, "a", "medium", Correct, "final_sql", "SELECT u"),
		row(5, "b", "hard", Wrong, "final_sql", "SELECT t", ok("SELECT t")),
		row(6, "b", "hard", Wrong, "forced_final", "SELECT s", ok("SELECT 1"), ok("SELECT 2"), ok("SELECT 3")),
		row(7, "b", "easy", PredictionFailed, "final_sql", "SELEC"),
		row(8, "b", "extra", PredictionFailed, "max_turns", "", ok("SELECT 1"), bad("SELECT 2"), bad("SELECT 3"), ok("SELECT 4")),
		row(9, "b", "extra", TimedOut, "final_sql", "SELECT r", ok("SELECT 1")),
		row(10, "c", "easy", GoldFailed, "final_sql", "SELECT q", ok("SELECT q")),
		{Example: Example{ID: "11", Index: 10, DB: "c"}, Prediction: Prediction{Stop: "error", Error: "connection refused"}},
		row(12, "c", "", Wrong, "final_sql", "SELECT p", ok("SELECT p")),
	}
	at := func(id int) *Score { return results[id-1].Score }
	at(1).Flags = append(at(1).Flags, FlagExactText, FlagSingleScalar)
	at(2).Flags = append(at(2).Flags, FlagBothEmpty)
	at(4).Flags = append(at(4).Flags, FlagSingleScalar)
	at(5).Failure, at(6).Failure, at(7).Failure, at(8).Failure = TooFewColumns, ValueMismatch, SQLError, MaxTurns
	at(9).Failure, at(12).Failure = Timeout, OrderMismatch
	at(6).Flags = append(at(6).Flags, FlagNearMiss)
	at(6).Metrics[MetricTolerant] = 1
	at(7).Flags = append(at(7).Flags, FlagUnparseable)
	at(12).Strict = Correct
	at(9).Doubts = []Doubt{{DoubtTies, "other rows come out"}}
	results[5].Prediction.Capped = 1
	return results
}

func TestCardFigures(t *testing.T) {
	path := filepath.Join(t.TempDir(), "run.jsonl")
	var lines [][]byte
	for _, r := range cardResults() {
		line, err := EncodeResult(r)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, line)
	}
	if err := WriteResults(path, testManifest(), lines); err != nil {
		t.Fatal(err)
	}
	file, err := ReadResults(path)
	if err != nil {
		t.Fatal(err)
	}
	run := BuildReport([]*ResultsFile{file}, nil).Runs[0]
	checked := map[string]bool{}
	check := func(path string, value float64, count, of int) {
		t.Helper()
		checked[path] = true
		f, found := run.Figure(path)
		if !found || math.Abs(f.Value-value) > 1e-9 || f.Count != count || f.Of != of {
			t.Errorf("%s = %v (%d of %d), worked out %v (%d of %d)", path, f.Value, f.Count, f.Of, value, count, of)
		}
	}
	share := func(path string, count, of int) {
		t.Helper()
		check(path, float64(count)/float64(of), count, of)
	}
	share("accuracy.official", 4, 11) // 11 is our side's
	share("accuracy.strict", 5, 11)
	share("accuracy.permuted", 0, 11)
	share("accuracy.tolerant", 1, 11)
	share("verdict.correct", 4, 12)
	share("verdict.wrong", 3, 12)
	share("verdict.prediction_failed", 2, 12)
	share("verdict.timed_out", 1, 12)
	share("verdict.refused", 0, 12)
	share("verdict.gold_failed", 1, 12)
	share("verdict.harness_error", 1, 12)
	check("metric.exec", 4.0/11, 0, 11)
	share("difficulty.easy", 2, 4) // 1, 2 of 1, 2, 7, 10
	share("difficulty.medium", 2, 2)
	share("difficulty.hard", 0, 2)
	share("difficulty.extra", 0, 2)
	share("difficulty.no label", 0, 1)
	share("database.a", 4, 4)
	share("database.b", 0, 5)
	share("database.c", 0, 2)
	share("tool_calls.0", 1, 2) // 4 of 4, 7
	share("tool_calls.1", 2, 6) // 1, 2 of 1, 2, 5, 9, 10, 12
	share("tool_calls.2", 1, 1)
	share("tool_calls.3", 0, 1)
	share("tool_calls.4", 0, 1)
	share("stop.final_sql", 4, 9)
	share("stop.forced_final", 0, 1)
	share("stop.max_turns", 0, 1)
	check("tools.calls_per_question", 15.0/12, 0, 12) // 1+1+2+0+1+3+0+4+1+1+0+1
	check("tools.calls_median", 1, 0, 12)
	check("tools.turns_per_question", 26.0/12, 0, 12) // one more than calls, but none for 11
	share("tools.no_call", 3, 12)                     // 4, 7, 11
	share("tools.one_call", 6, 12)
	share("tools.failing_calls", 3, 15)
	share("failure.too_few_columns", 1, 6)
	share("failure.too_many_columns", 0, 6)
	share("failure.row_count_mismatch", 0, 6)
	share("failure.value_mismatch", 1, 6)
	share("failure.order_mismatch", 1, 6)
	share("failure.sql_error", 1, 6)
	share("failure.timeout", 1, 6)
	share("failure.no_sql", 0, 6)
	share("failure.max_turns", 1, 6)
	share("behaviour.valid_sql", 8, 11)               // all but 7, 8, 9
	share("behaviour.answered_with_run_query", 5, 11) // 1, 2, 5, 10, 12
	check("behaviour.calls_per_row", 15.0/11, 0, 11)
	share("behaviour.ran_and_wrong", 6, 11) // 5, 6, 8, 9, 10, 12
	share("behaviour.wrong_of_ran", 6, 9)
	share("behaviour.unparseable", 1, 11)
	share("behaviour.side_effects", 0, 11)
	share("equivalence.exact_text", 1, 4)
	share("equivalence.single_scalar", 2, 4)
	share("equivalence.both_empty", 1, 4)
	share("limits.capped_generation", 1, 12)
	share("limits.forced_final", 1, 12)
	share("limits.max_turns", 1, 12)
	share("limits.max_tokens", 0, 12)
	share("limits.context_full", 0, 12)
	check("cost.prompt_tokens", 100, 0, 11)
	check("cost.generated_tokens", 670.0/11, 0, 11) // 10 times 1..12 without 11
	check("cost.tool_tokens", 5, 0, 11)
	check("cost.generated_total", 670, 0, 0)
	check("cost.seconds_per_question", 2, 0, 11)
	check("cost.seconds_median", 2, 0, 11)
	check("cost.tokens_per_second", 670.0/22, 0, 0)
	for _, s := range run.Sections {
		for _, f := range s.Figures {
			if !checked[s.Key+"."+f.Key] {
				t.Errorf("figure %s.%s has no value worked out by hand", s.Key, f.Key)
			}
		}
	}
	if len(run.Suspects) != 2 || run.Suspects[0].ID != "6" || run.Suspects[1].ID != "9" {
		t.Errorf("suspected golds %+v, want 6 (right but for the form) and 9 (ties)", run.Suspects)
	}
}

// voteResults: greedy right, right, wrong, wrong; voted right, wrong, right, wrong.
func TestVoteFigures(t *testing.T) {
	var results []Result
	for i, right := range [][2]bool{{true, true}, {true, false}, {false, true}, {false, false}} {
		v := map[bool]Verdict{true: Correct, false: Wrong}
		results = append(results, Result{Example: Example{ID: fmt.Sprint(i)}, Score: &Score{Official: v[right[1]]},
			Prediction: Prediction{Stop: "final_sql", Vote: &Vote{Winner: i - 1, Score: &Score{Official: v[right[0]]},
				Candidates: []Candidate{{Result: "x"}, {Result: "x"}, {Result: "y", Error: "no SQL"}}}}})
	}
	run := BuildReport([]*ResultsFile{{Path: "v.jsonl", Results: results}}, nil).Runs[0]
	for path, want := range map[string]float64{"vote.greedy": 0.5, "vote.voted": 0.5, "vote.fixed": 0.25, "vote.broken": 0.25, "vote.no_winner": 0.25} {
		if f, found := run.Figure(path); !found || f.Value != want {
			t.Errorf("%s = %v, want %v", path, f.Value, want)
		}
	}
	if len(run.Suspects) != 1 || run.Suspects[0].ID != "1" { // 3 is wrong too, but its winner is the failed one
		t.Errorf("suspects %+v", run.Suspects)
	}
}

func TestRunsAgreeAgainstGold(t *testing.T) {
	result := func(value int64) Result {
		return Result{Example: Example{ID: "1"}, Score: &Score{Official: Wrong, Predicted: &Table{Columns: []string{"a"}, Rows: [][]any{{value}}, Total: 1}}}
	}
	files := []*ResultsFile{{Path: "a", Results: []Result{result(3)}}, {Path: "b", Results: []Result{result(3)}}, {Path: "c", Results: []Result{result(4)}}}
	report := BuildReport(files, nil)
	if s := report.Runs[0].Suspects; len(s) != 1 || !strings.Contains(s[0].Evidence[0], "2 runs") {
		t.Errorf("two runs agree: %+v", s)
	}
	if s := report.Runs[2].Suspects; len(s) != 0 {
		t.Errorf("one run alone: %+v", s)
	}
}

func TestRunNames(t *testing.T) {
	for _, c := range []struct{ paths, want []string }{
		{[]string{"x/a.jsonl", "y/b.jsonl"}, []string{"a", "b"}},
		{[]string{"x/a.jsonl", "y/a.jsonl", "b.jsonl"}, []string{"x/a", "y/a", "b"}},
		{[]string{"a.jsonl", "a.jsonl"}, []string{"a (1)", "a (2)"}},
	} {
		var runs []*ResultsFile
		for _, path := range c.paths {
			runs = append(runs, &ResultsFile{Path: path})
		}
		for i, want := range c.want {
			if got := runName(runs, i); got != want {
				t.Errorf("%v: %s, want %s", c.paths, got, want)
			}
		}
	}
}

func comparedRuns(fixed, broken, both, neither int) (a, b *ResultsFile) {
	a, b = &ResultsFile{Path: "a.jsonl", Manifest: testManifest()}, &ResultsFile{Path: "b.jsonl", Manifest: testManifest()}
	add := func(n int, inA, inB Verdict) {
		for range n {
			ex := Example{ID: fmt.Sprint(len(a.Results)), DB: fmt.Sprint("db", len(a.Results)%2)}
			a.Results = append(a.Results, Result{Example: ex, Score: &Score{Official: inA, Difficulty: "easy"}})
			b.Results = append(b.Results, Result{Example: ex, Score: &Score{Official: inB, Difficulty: "easy"}})
		}
	}
	add(fixed, Wrong, Correct)
	add(broken, Correct, Wrong)
	add(both, Correct, Correct)
	add(neither, Wrong, Wrong)
	return a, b
}

func TestCompare(t *testing.T) {
	a, b := comparedRuns(50, 34, 300, 116)
	a.Results[499].Score.Difficulty, b.Results[499].Score.Difficulty = "", ""
	c, err := Compare(a, b, false)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Fixed) != 50 || len(c.Broken) != 34 || c.Net != 16 || c.RightA != 334 || c.RightB != 350 || c.Questions != 500 || c.Left != 0 {
		t.Errorf("%+v", c)
	}
	if fmt.Sprintf("%.2f", c.SignTest) != "0.10" {
		t.Errorf("sign test of 50 fixed and 34 broken: p = %.4f, want 0.10", c.SignTest)
	}
	// McNemar: (|50-34|-1)² / 84 = 225/84
	if math.Abs(c.McNemar-225.0/84) > 1e-12 || math.Abs(c.McNemarP-0.1017) > 5e-4 {
		t.Errorf("McNemar %v, p = %v", c.McNemar, c.McNemarP)
	}
	// Normal approximation of the interval: 0.032 ± 1.96·sqrt((84/500 - 0.032²)/500) = -0.0038 … 0.0678.
	if math.Abs(c.Difference-0.032) > 1e-12 || math.Abs(c.Low+0.0038) > 0.003 || math.Abs(c.High-0.0678) > 0.003 {
		t.Errorf("difference %v, interval %v to %v", c.Difference, c.Low, c.High)
	}
	again, _ := Compare(a, b, false)
	if again.Low != c.Low || again.High != c.High {
		t.Error("the bootstrap interval is not the same again")
	}
	if len(c.ByDatabase) != 2 || c.ByDatabase[0].Questions != 250 || len(c.ByDifficulty) != 2 || c.ByDifficulty[0].Fixed != 50 ||
		c.ByDifficulty[1].Name != "no label" || c.ByDifficulty[1].Questions != 1 {
		t.Errorf("groups %+v %+v", c.ByDatabase, c.ByDifficulty)
	}
}

func TestSignTest(t *testing.T) {
	for _, c := range []struct {
		fixed, broken int
		want          float64
	}{{0, 0, 1}, {1, 0, 1}, {5, 0, 0.0625}, {3, 1, 0.625}, {2, 2, 1}, {10, 0, 2.0 / 1024}} {
		if got := signTest(c.fixed, c.broken); math.Abs(got-c.want) > 1e-12 {
			t.Errorf("sign test of %d and %d: %v, want %v", c.fixed, c.broken, got, c.want)
		}
	}
}

func TestCompareDifferentData(t *testing.T) {
	a, b := comparedRuns(2, 1, 3, 0)
	b.Manifest.DatasetDigest = "other"
	b.Results = b.Results[1:]
	_, err := Compare(a, b, false)
	if err == nil || !strings.Contains(err.Error(), "digest of questions and databases: d and other") || !strings.Contains(err.Error(), "1 are in the first only") {
		t.Errorf("runs on different data: %v", err)
	}
	c, err := Compare(a, b, true)
	if err != nil || c.Questions != 5 || c.Left != 1 || len(c.Fixed) != 1 {
		t.Errorf("compared all the same: %+v, %v", c, err)
	}
	b.Results[0].Prediction.Error = "broke"
	if c, err = Compare(a, b, true); err != nil || c.Questions != 4 || c.Left != 2 {
		t.Errorf("our side's failure: %+v, %v", c, err)
	}
}

func FuzzReadResults(f *testing.F) {
	f.Add([]byte("{\"manifest\":{\"format\":1}}\n{\"id\":\"1\",\"index\":0,\"prediction\":{\"vote\":{\"winner\":3}},\"score\":{\"official\":\"wrong\"}}\n"))
	f.Add([]byte("{\"manifest\":null}\n"))
	f.Add([]byte("{\"manifest\":{\"format\":1}}\n{\"id\":\"1\",\"score\":{\"gold_rows\":{\"rows\":[[1,null]]}}}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), "r.jsonl")
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		if file, err := ReadResults(path); err == nil {
			BuildReport([]*ResultsFile{file, file}, nil)
			Compare(file, file, false)
		}
	})
}
