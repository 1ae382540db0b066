package spider2

import (
	"context"
	"fmt"
	"strings"
	"unicode/utf8"

	"quern/eval"
	"quern/internal/pytext"
	"quern/sqlguard"
)

// MetricScore is the official 0 or 1.
const MetricScore = "score"

// Scorer scores by Spider 2.0-lite's rules.
type Scorer struct {
	exec *eval.Executor
	gold *Gold
	mode Mode
}

// NewScorer scores SQL (SQLMode), executing with exec's workers, or result tables as CSV text (CSVMode; exec may be nil).
func NewScorer(exec *eval.Executor, gold *Gold, mode Mode) *Scorer {
	return &Scorer{exec: exec, gold: gold, mode: mode}
}

// Score judges one prediction: SQL, with or without a fence around it, or in CSVMode the text of a CSV file.
func (s *Scorer) Score(ctx context.Context, ex eval.Example, text string) (*eval.Score, error) {
	score := &eval.Score{Metrics: map[string]float64{MetricScore: 0}}
	csv := text
	if s.mode != CSVMode {
		var done bool
		var err error
		csv, done, err = s.execute(ctx, ex, text, score)
		if err != nil {
			if ctx.Err() != nil {
				return nil, ctx.Err()
			}
			return eval.Harness(err), nil
		}
		if done {
			return score, nil
		}
	}
	s.compare(score, ex, csv)
	return score, nil
}

// execute runs the SQL and writes its result as the official script does. done means that the score is settled.
func (s *Scorer) execute(ctx context.Context, ex eval.Example, text string, score *eval.Score) (csv string, done bool, err error) {
	if ex.Database == "" {
		score.Official, score.Strict, score.Failure = eval.GoldFailed, eval.GoldFailed, ""
		score.Message = fmt.Sprintf("%s is not a local task: the official script asks a cloud database", ex.ID)
		return "", true, nil
	}
	sql := ExtractSQL(text)
	result, err := s.run(ctx, ex.Database, sql, score)
	if err != nil {
		return "", false, err
	}
	if eval.SameText(ex.Gold, sql) && ex.Gold != "" {
		score.Flag(eval.FlagExactText)
	}
	score.Predicted = eval.ShowTable(result)
	if settled := unscorable(score, sql, result); settled {
		return "", true, nil
	}
	score.Flag(eval.FlagExecutes)
	return resultCSV(result.Columns, result.Rows), false, nil
}

// run executes read-only, and on a private copy what needs to write: the official script works on a copy in memory.
func (s *Scorer) run(ctx context.Context, path, sql string, score *eval.Score) (sqlguard.Result, error) {
	result, err := s.exec.Query(ctx, path, sql)
	if err != nil || result.Failure == nil || result.Failure.Kind != sqlguard.Refused {
		return result, err
	}
	results, err := s.exec.Scratch(ctx, path, sql)
	if err != nil {
		return sqlguard.Result{}, err
	}
	if results[0].Failure == nil {
		score.Flag(eval.FlagSideEffects)
	}
	return results[0], nil
}

// unscorable settles the score of a statement that gave no table.
func unscorable(score *eval.Score, sql string, r sqlguard.Result) bool {
	switch {
	case strings.TrimSpace(sql) == "" || r.Failure != nil && r.Failure.Kind == sqlguard.NoStatement:
		score.Official, score.Failure = eval.PredictionFailed, eval.NoSQL
		score.Message = "no SQL"
	case r.Failure != nil:
		score.Official, score.Failure = eval.FailureVerdict(r.Failure), eval.SQLError
		score.Message = r.Failure.Message
		if r.Failure.Kind == sqlguard.TimedOut {
			score.Failure = eval.Timeout
			score.OfficialNote = "the official script discards its time limit and would not end before the query does"
		}
	case len(r.Columns) == 0:
		score.Official, score.Failure = eval.PredictionFailed, eval.SQLError
		score.Message = "the statement gives no table"
	case r.Truncated != sqlguard.Whole:
		score.Official, score.Failure = eval.PredictionFailed, eval.RowCountMismatch
		score.Message = "the result is too large to be compared whole"
		score.OfficialNote = "the official script has no limit of rows"
	case brokenText(r) >= 0:
		score.Official, score.Failure = eval.PredictionFailed, eval.SQLError
		score.Message = fmt.Sprintf("column %s holds text that is not UTF-8, which is an error in Python's sqlite3", r.Columns[brokenText(r)].Name)
	default:
		return false
	}
	score.Strict = score.Official
	return true
}

// brokenText is the first column with text that is not UTF-8, -1 if there is none.
func brokenText(r sqlguard.Result) int {
	for _, row := range r.Rows {
		for i, v := range row {
			if v.Kind == sqlguard.Text && !utf8.ValidString(v.Data) {
				return i
			}
		}
	}
	return -1
}

// compare settles the score of a result table.
func (s *Scorer) compare(score *eval.Score, ex eval.Example, csv string) {
	std := s.gold.standards[ex.ID]
	official := compareCSV(csv, s.gold.results, ex.ID, std)
	score.Official = eval.Wrong
	if official.Right {
		score.Official = eval.Correct
		score.Metrics[MetricScore] = 1
	} else {
		score.Message = official.Error
	}
	if official.Error == errNoGold.Error() {
		score.Official, score.Strict = eval.GoldFailed, eval.GoldFailed
		score.OfficialNote = "there is no gold table for this task; the official script counts it 0"
		return
	}
	pred, err := readFrame(csv)
	if err != nil {
		score.Official, score.Strict, score.Failure = eval.PredictionFailed, eval.PredictionFailed, eval.SQLError
		return
	}
	s.describe(score, ex, pred, std)
}

// describe fills what the official comparison does not say.
func (s *Scorer) describe(score *eval.Score, ex eval.Example, pred *frame, std standard) {
	golds, alone, err := readGold(s.gold.results, ex.ID)
	if err != nil {
		score.Official, score.Strict, score.Message = eval.GoldFailed, eval.GoldFailed, err.Error()
		return
	}
	counted := countedColumns(golds, alone, std.Conditions)
	score.Strict = eval.Wrong
	near := false
	for _, gold := range counted {
		if strictMatch(pred, gold, !std.IgnoreOrder, isClose) && !score.Has(eval.FlagSideEffects) {
			score.Strict = eval.Correct
		}
		near = near || strictMatch(pred, gold, false, closeRelative)
	}
	score.Metrics[eval.MetricStrict] = oneIf(score.Strict == eval.Correct)
	score.Metrics[eval.MetricTolerant] = oneIf(near)
	if s.mode == CSVMode {
		score.Predicted = shownFrame(pred)
	}
	score.Gold = shownFrame(golds[0])
	observe(score, golds[0], pred)
	if score.Official == eval.Correct {
		return
	}
	if near {
		score.Flag(eval.FlagNearMiss)
	}
	if len(counted) > 0 {
		score.Failure = failure(pred, counted)
	}
}

func observe(score *eval.Score, gold, pred *frame) {
	rows := func(f *frame) int {
		if len(f.columns) == 0 {
			return 0
		}
		return len(f.columns[0].values)
	}
	if rows(gold) == 1 && len(gold.columns) == 1 {
		score.Flag(eval.FlagSingleScalar)
	}
	if rows(gold) == 0 && rows(pred) == 0 {
		score.Flag(eval.FlagBothEmpty)
	}
}

// countedColumns are the gold tables reduced to the columns that count. A condition that selects nothing leaves its table out.
func countedColumns(golds []*frame, alone bool, cond condition) []*frame {
	each := []condition{cond}
	if !alone {
		each = cond.spread(len(golds))
	}
	var out []*frame
	for i, gold := range golds {
		if i >= len(each) {
			break
		}
		if selected, err := each[i].apply(gold); err == nil {
			out = append(out, selected)
		}
	}
	return out
}

// failure is the class of a wrong table, seen from the gold table that is nearest to it.
func failure(pred *frame, golds []*frame) eval.Failure {
	best := eval.TooFewColumns
	for _, gold := range golds {
		if len(pred.columns) < len(gold.columns) {
			continue
		}
		if len(pred.columns[0].values) != len(gold.columns[0].values) {
			best = eval.RowCountMismatch
			continue
		}
		if strictMatch(pred, gold, false, isClose) {
			return eval.OrderMismatch
		}
		return eval.ValueMismatch
	}
	return best
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// liteTasks is the number of tasks in Spider 2.0-lite, which the official "Real score" divides by.
const liteTasks = 547

// Totals gives the official summary.
func (s *Scorer) Totals(results []eval.Result) []eval.Totals {
	correct, total := 0, 0
	for _, r := range results {
		if r.Score == nil {
			continue
		}
		total++
		if r.Score.Right() {
			correct++
		}
	}
	t := eval.Totals{Title: "Spider 2.0-lite (evaluate.py)", Columns: []string{"", "score", "correct", "of"}}
	for _, line := range []struct {
		name string
		of   int
	}{{"Final score", total}, {"Real score", liteTasks}} {
		score := 0.0
		if line.of > 0 {
			score = float64(correct) / float64(line.of)
		}
		t.Rows = append(t.Rows, []string{line.name, pytext.FloatRepr(score), fmt.Sprint(correct), fmt.Sprint(line.of)})
		t.Text += fmt.Sprintf("%s: %s, Correct examples: %d, Total examples: %d\n", line.name, pytext.FloatRepr(score), correct, line.of)
	}
	return []eval.Totals{t}
}
