package spider

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"quern/eval"
	"quern/eval/internal/sqlparse"
)

// Names of the figures in a Score's Metrics: 0 or 1.
const (
	MetricExec        = "exec"         // test-suite execution
	MetricExact       = "exact"        // exact set match
	MetricLegacyExec  = "legacy_exec"  // execution by the older script
	MetricLegacyExact = "legacy_exact" // exact set match by the older script
)

// Detail is the Detail of a Score: what each official script makes of the pair.
type Detail struct {
	TestSuite   Outcome  `json:"test_suite"`
	Legacy      *Outcome `json:"legacy,omitempty"`
	Interaction int      `json:"interaction,omitempty"` // in a multi-turn file, from 0
	Turn        int      `json:"turn,omitempty"`        // in its interaction, from 0
}

// Scorer judges predictions by Spider's rules. It may be used from several goroutines.
type Scorer struct {
	exec *eval.Executor
	keys map[string]map[string]string // by database: column -> the column that stands for it, by foreign keys
	opts Options

	mu      sync.Mutex
	schemas map[string]*schemaEntry // by database file
}

// NewScorer reads tables.json, which tells the foreign keys; only Exec without Legacy does without it.
func NewScorer(exec *eval.Executor, tables string, opts Options) (*Scorer, error) {
	switch opts.Type {
	case "":
		opts.Type = All
	case All, Exec, Match:
	default:
		return nil, fmt.Errorf("unknown kind of evaluation %q; there are %s, %s and %s", opts.Type, All, Exec, Match)
	}
	s := &Scorer{exec: exec, opts: opts, schemas: map[string]*schemaEntry{}}
	if tables == "" && opts.Type == Exec && !opts.Legacy {
		return s, nil
	}
	var err error
	s.keys, err = loadTables(tables)
	return s, err
}

// Score judges sql. The official scripts read one prediction a line, so it is brought into one line first. An empty one is
// counted as wrong, where those scripts would lose count.
func (s *Scorer) Score(ctx context.Context, ex eval.Example, sql string) (*eval.Score, error) {
	line := oneLine(sql)
	return s.scoreLines(ctx, ex, lines{plain: line, suite: &line, legacy: &line})
}

// lines are the texts that are judged as the answer to one question: by the plain rules, and by each script, which may have
// lost its place in the file. nil: the script does not count the question.
type lines struct {
	plain         string
	suite, legacy *string
}

func (s *Scorer) scoreLines(ctx context.Context, ex eval.Example, l lines) (*eval.Score, error) {
	score, err := s.score(ctx, ex, l)
	if err != nil {
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		return eval.Harness(err), nil
	}
	return score, nil
}

func (s *Scorer) score(ctx context.Context, ex eval.Example, l lines) (*eval.Score, error) {
	score := &eval.Score{Metrics: map[string]float64{}}
	detail := &Detail{}
	q := s.newPair(ex.DB, ex.Database, ex.Gold)
	var e execution
	var err error
	if l.suite != nil {
		if detail.TestSuite, e, err = s.judgeTestSuite(ctx, q, *l.suite); err != nil {
			return nil, err
		}
	}
	score.Detail, score.Difficulty = detail, detail.TestSuite.Hardness
	setMetric(score, MetricExec, detail.TestSuite.Exec)
	setMetric(score, MetricExact, detail.TestSuite.Exact)
	if s.opts.Legacy && l.legacy != nil {
		legacy, _, err := s.judgeLegacy(ctx, q, *l.legacy)
		if err != nil {
			return nil, err
		}
		detail.Legacy = &legacy
		setMetric(score, MetricLegacyExec, legacy.Exec)
		setMetric(score, MetricLegacyExact, legacy.Exact)
	}
	return score, describe(ctx, score, q, l.plain, detail.TestSuite, e)
}

func setMetric(score *eval.Score, name string, value *bool) {
	if value == nil {
		return
	}
	score.Metrics[name] = 0
	if *value {
		score.Metrics[name] = 1
	}
}

// describe fills in the verdicts, and what all benchmarks report, from the plain queries: nothing rewritten, DISTINCT kept.
func describe(ctx context.Context, score *eval.Score, q *pair, sql string, suite Outcome, e execution) error {
	run, err := plainExecution(ctx, q, sql, e.wrote)
	if err != nil {
		return err
	}
	score.Official = official(suite, e, run)
	score.OfficialNote = officialNote(sql, suite, e)
	score.Describe(run)
	if !suite.PredParses {
		score.Flag(eval.FlagUnparseable)
	}
	return nil
}

// official is the verdict by execution; by exact match where execution was not asked for.
func official(suite Outcome, e execution, run eval.Execution) eval.Verdict {
	right := suite.Exec
	if right == nil {
		right = suite.Exact
	}
	switch {
	case run.PredSQL == "":
		return eval.PredictionFailed
	case e.goldFailure != nil, right == nil:
		return eval.GoldFailed
	case *right:
		return eval.Correct
	case run.Pred.Failure != nil && suite.Exec != nil && !e.wrote: // what writes is refused here only
		return eval.FailureVerdict(run.Pred.Failure)
	}
	return eval.Wrong
}

func officialNote(sql string, suite Outcome, e execution) string {
	var notes []string
	if sql == "" {
		notes = append(notes, "a blank line in a prediction file ends an interaction: the official script stops, or leaves the question out")
	} else if suite.Crash != nil {
		notes = append(notes, fmt.Sprintf("the official script ends here with %s (%s)", suite.Crash.Exception, suite.Crash.Reason))
	}
	return strings.Join(append(notes, e.notes...), "; ")
}

// plainExecution runs the pair as written, on the first file that tells them apart.
func plainExecution(ctx context.Context, q *pair, sql string, wrote bool) (eval.Execution, error) {
	run := eval.Execution{GoldSQL: q.gold, PredSQL: sql, Ordered: eval.Ordered(q.gold), Wrote: wrote}
	files, err := databaseFiles(q.database)
	if err != nil {
		return run, err
	}
	for i, file := range files {
		gold, err := q.exec.Gold(ctx, file, q.gold)
		if err = harnessError(gold, err); err != nil {
			return run, err
		}
		pred, err := q.query(ctx, file, sql)
		if err != nil {
			return run, err
		}
		same := pred.Failure == nil && gold.Failure == nil && eval.SameRows(gold.Rows, pred.Rows, run.Ordered)
		if i == 0 || !same {
			run.Gold, run.Pred = gold, pred
		}
		if !same {
			break
		}
	}
	return run, nil
}

// oneLine is a query without line ends and tabs, as it has to be in a prediction file. Comments up to the end of a line go.
func oneLine(sql string) string {
	if !strings.ContainsAny(sql, "\n\r\t") {
		return strings.TrimSpace(sql)
	}
	var b strings.Builder
	for _, tok := range sqlparse.Tokens(sql) {
		switch tok.Kind {
		case sqlparse.Newline, sqlparse.Comment, sqlparse.Space:
			b.WriteByte(' ')
		default:
			b.WriteString(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ", "\t", " ").Replace(tok.Text))
		}
	}
	return strings.TrimSpace(b.String())
}

// detailOf is a Score's Detail, also of one that was read back from a results file.
func detailOf(score *eval.Score) *Detail {
	if score == nil {
		return nil
	}
	switch d := score.Detail.(type) {
	case nil:
		return nil
	case *Detail:
		return d
	default:
		data, err := json.Marshal(d)
		detail := &Detail{}
		if err != nil || json.Unmarshal(data, detail) != nil {
			return nil
		}
		return detail
	}
}

var _ eval.Scorer = (*Scorer)(nil)
