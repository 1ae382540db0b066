package bird

import (
	"context"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"quern/eval"
	"quern/sqlguard"
)

// Metrics of a BIRD score.
const (
	MetricEX     = "ex"      // 0 or 1: the sets of rows are equal
	MetricSoftF1 = "soft_f1" // 0 to 1
	MetricRatio  = "ves"     // time ratio gold/prediction; only when timed
	MetricReward = "r_ves"   // R-VES's reward; only when timed
)

// Scorer scores by BIRD's rules.
type Scorer struct {
	exec *eval.Executor
	// OfficialLimit is the official scripts' limit for prediction and gold together.
	officialLimit time.Duration
	iterations    int
}

// OfficialLimit is meta_time_out of the published scripts.
const OfficialLimit = 30 * time.Second

// NewScorer scores with exec's workers. iterations is how many times correct pairs are run for VES and R-VES (the official
// scripts say 100); 0 leaves these two out.
func NewScorer(exec *eval.Executor, iterations int) *Scorer {
	return &Scorer{exec: exec, officialLimit: OfficialLimit, iterations: iterations}
}

// Score judges one prediction.
func (s *Scorer) Score(ctx context.Context, ex eval.Example, sql string) (*eval.Score, error) {
	score, err := s.score(ctx, ex, sql)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		score = eval.Harness(err)
	}
	score.Difficulty = ex.Difficulty
	return score, nil
}

func (s *Scorer) score(ctx context.Context, ex eval.Example, sql string) (*eval.Score, error) {
	run, err := s.execute(ctx, ex, sql)
	if err != nil {
		return nil, err
	}
	score := &eval.Score{Metrics: map[string]float64{MetricEX: 0, MetricSoftF1: 0}}
	s.official(score, run)
	score.Describe(run.Execution)
	if score.Official == eval.Correct && s.iterations > 0 {
		if err := s.timing(ctx, ex, sql, score); err != nil {
			return nil, err
		}
	}
	return score, nil
}

// pairRun is what running the pair gave.
type pairRun struct {
	eval.Execution
	goldSeen sqlguard.Result // the gold's result after the prediction ran, which is what the official scripts compare
	elapsed  time.Duration   // both together
	note     string
}

// execute runs the prediction read-only. A prediction that needs to write is run again on a private copy, with the gold query
// after it on the same connection, as the official scripts do.
func (s *Scorer) execute(ctx context.Context, ex eval.Example, sql string) (pairRun, error) {
	gold, err := s.exec.Gold(ctx, ex.Database, ex.Gold)
	if err != nil {
		return pairRun{}, err
	}
	pred, err := s.exec.Query(ctx, ex.Database, sql)
	if err != nil {
		return pairRun{}, err
	}
	run := pairRun{goldSeen: gold, Execution: eval.Execution{
		GoldSQL: ex.Gold, PredSQL: strings.TrimSpace(sql), Gold: gold, Pred: pred, Ordered: eval.Ordered(ex.Gold)}}
	if pred.Failure != nil && pred.Failure.Kind == sqlguard.Refused {
		results, err := s.exec.Scratch(ctx, ex.Database, sql, ex.Gold)
		if err != nil {
			return pairRun{}, err
		}
		if results[0].Failure == nil {
			run.Wrote = true
			run.goldSeen = results[1]
			run.note = sideEffectNote(sql)
		}
		pred = results[0]
		run.Pred = pred
	}
	run.elapsed = pred.Elapsed + run.goldSeen.Elapsed
	return run, nil
}

// official gives the verdict of the published scripts.
func (s *Scorer) official(score *eval.Score, run pairRun) {
	score.OfficialNote = run.note
	pred, gold := emptyIfBlank(run.Pred), emptyIfBlank(run.goldSeen)
	switch {
	case pred.Failure != nil:
		score.Official = eval.FailureVerdict(pred.Failure)
		if pred.Failure.Kind == sqlguard.TimedOut {
			score.OfficialNote = "the official script gives 0 after its limit; its query would keep a core busy until that worker ends"
		}
		return
	case gold.Failure != nil:
		score.Official = eval.GoldFailed
		score.Message = gold.Failure.Message
		score.OfficialNote = "the gold query fails, which the official script counts as 0 and does not report"
		return
	case brokenText(pred):
		score.Official = eval.PredictionFailed
		score.Message = "the result holds text that is not UTF-8, which is an error in Python's sqlite3"
		return
	case brokenText(gold):
		score.Official = eval.GoldFailed
		score.Message = "the gold's result holds text that is not UTF-8, which is an error in Python's sqlite3: the official script always gives 0"
		return
	case run.elapsed > s.officialLimit:
		score.Official = eval.TimedOut
		score.OfficialNote = fmt.Sprintf("prediction and gold took %.1f s together, over the official limit of %.0f s for both: 0 there, on a machine like this one",
			run.elapsed.Seconds(), s.officialLimit.Seconds())
		return
	}
	score.Official = eval.Wrong
	if sameSets(pred.Rows, gold.Rows) {
		score.Official = eval.Correct
		score.Metrics[MetricEX] = 1
	}
	score.Metrics[MetricSoftF1] = softF1(pred.Rows, gold.Rows)
}

// emptyIfBlank makes a text without a statement what it is in Python: a result without rows.
func emptyIfBlank(r sqlguard.Result) sqlguard.Result {
	if r.Failure != nil && r.Failure.Kind == sqlguard.NoStatement {
		r.Failure = nil
	}
	return r
}

func sameSets(a, b [][]sqlguard.Value) bool {
	x, y := rowSet(a), rowSet(b)
	if len(x) != len(y) {
		return false
	}
	for key := range x {
		if !y[key] {
			return false
		}
	}
	return true
}

func rowSet(rows [][]sqlguard.Value) map[string]bool {
	set := make(map[string]bool, len(rows))
	for _, row := range rows {
		set[eval.RowKey(row)] = true
	}
	return set
}

func brokenText(r sqlguard.Result) bool {
	for _, row := range r.Rows {
		for _, v := range row {
			if v.Kind == sqlguard.Text && !utf8.ValidString(v.Data) {
				return true
			}
		}
	}
	return false
}

// sideEffectNote says what a writing prediction would have done under the official script.
func sideEffectNote(sql string) string {
	words := strings.Fields(strings.ToLower(sql))
	if len(words) == 0 {
		return ""
	}
	switch words[0] {
	case "insert", "update", "delete", "replace", "with":
		return "the prediction writes: the official script runs the gold on the changed tables, and rolls back"
	case "create":
		if len(words) > 1 && strings.HasPrefix(words[1], "temp") {
			return "the prediction creates a temporary object, which the gold then sees"
		}
	}
	return "the prediction changes the database file for good under the official script, for later questions too; here it ran on a copy"
}

// timing measures a correct pair for VES and R-VES.
func (s *Scorer) timing(ctx context.Context, ex eval.Example, sql string, score *eval.Score) error {
	var pred, gold []float64
	for range s.iterations {
		p, err := s.exec.Query(ctx, ex.Database, sql)
		if err != nil {
			return err
		}
		g, err := s.exec.Query(ctx, ex.Database, ex.Gold)
		if err != nil {
			return err
		}
		pred = append(pred, max(p.Elapsed, time.Nanosecond).Seconds())
		gold = append(gold, max(g.Elapsed, time.Nanosecond).Seconds())
	}
	ratio, err := timeRatio(pred, gold)
	if err != nil {
		score.OfficialNote = strings.TrimSpace(score.OfficialNote + " " + err.Error())
		score.Metrics[MetricRatio], score.Metrics[MetricReward] = 0, 0
		return nil
	}
	score.Metrics[MetricRatio], score.Metrics[MetricReward] = ratio, reward(ratio)
	return nil
}
