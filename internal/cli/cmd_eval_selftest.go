package cli

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/urfave/cli/v2"

	"quern/eval"
	"quern/eval/spider"
	"quern/eval/spider2"
	"quern/internal/progress"
)

type evalSelftestOptions struct {
	dataFlags
	gradeFlags
	json bool
}

func evalSelftestCommand(env Env) *cli.Command {
	var o evalSelftestOptions
	flags := append(o.dataFlags.flags(), o.gradeFlags.flags()...)
	return &cli.Command{
		Name: "selftest", Usage: "score the gold queries as predictions; list those that are doubtful",
		Description: `Each gold query has to be right as its own prediction: otherwise the exit code is 1. Golds that fail, return nothing, change when
tables are visited the other way round or equals at a LIMIT are ordered otherwise (ties), or compare with a text that is only stored with blanks around it are listed.`,
		Flags:  append(flags, &cli.BoolFlag{Name: "json", Usage: "as JSON", Destination: &o.json}),
		Action: func(c *cli.Context) error { return selftest(c.Context, env, o) },
	}
}

// selftestReport is the JSON of eval selftest.
type selftestReport struct {
	Dataset   string           `json:"dataset"`
	Digest    string           `json:"dataset_digest"`
	Questions int              `json:"questions"`
	Right     int              `json:"right"`    // golds that are right as their own prediction, by every rule
	Failed    []spider.Finding `json:"failed"`   // those that are not, and why
	Doubtful  []spider.Finding `json:"doubtful"` // golds to suspect, with evidence
}

func selftest(ctx context.Context, env Env, o evalSelftestOptions) error {
	if err := o.gradeFlags.check(); err != nil {
		return err
	}
	bench, err := o.open()
	if err != nil {
		return err
	}
	if bench.Examples, _, err = o.selected(bench.Dataset); err != nil {
		return err
	}
	if !bench.hasGold(bench.Examples) {
		return fmt.Errorf("%s of %s holds no gold to test", bench.Split, bench.Dir)
	}
	if bench.Name != eval.Spider2 { // whose gold tables can be compared without a database
		if err := bench.RequireDatabases(bench.Examples); err != nil {
			return err
		}
	}
	exec, err := eval.NewExecutor(o.workers, o.deadlines)
	if err != nil {
		return err
	}
	defer exec.Close()
	report, err := selfReport(ctx, env, bench, exec, o.benchmarkOptions)
	if err != nil {
		return err
	}
	if o.json {
		err = writeJSON(env.Stdout, report)
	} else {
		err = printSelftest(env.Stdout, report)
	}
	if err == nil && report.Right < report.Questions {
		err = exitError(exitFailed)
	}
	return err
}

func selfReport(ctx context.Context, env Env, b *benchmark, exec *eval.Executor, o benchmarkOptions) (*selftestReport, error) {
	report := &selftestReport{Dataset: b.Name + " " + b.Split, Digest: b.Digest, Questions: len(b.Examples), Failed: []spider.Finding{}, Doubtful: []spider.Finding{}}
	if b.Name == eval.Spider {
		found, err := spider.Selftest(ctx, exec, b.Dataset, runtime.NumCPU())
		if err != nil {
			return nil, err
		}
		report.Failed, report.Doubtful = found.Failed, found.Doubtful
		report.Right = report.Questions - len(found.Failed)
		return report, nil
	}
	test, err := newSelfTester(b, exec, o)
	if err != nil {
		return nil, err
	}
	line := progress.New(env.Stderr, "selftest", "questions")
	defer line.Done("")
	failed, doubtful := make([]spider.Finding, len(b.Examples)), make([]spider.Finding, len(b.Examples))
	var done atomic.Int64
	err = inParallel(ctx, len(b.Examples), func(i int) error {
		ex := b.Examples[i]
		failures, doubts, err := test(ctx, ex)
		if err != nil {
			return err
		}
		failed[i] = spider.Finding{ID: ex.ID, DB: ex.DB, Gold: ex.Gold, Doubts: failures}
		doubtful[i] = spider.Finding{ID: ex.ID, DB: ex.DB, Gold: ex.Gold, Doubts: doubts}
		line.Set(done.Add(1), int64(len(b.Examples)))
		return nil
	})
	for i := range failed {
		if len(failed[i].Doubts) > 0 {
			report.Failed = append(report.Failed, failed[i])
		}
		if len(doubtful[i].Doubts) > 0 {
			report.Doubtful = append(report.Doubtful, doubtful[i])
		}
	}
	report.Right = report.Questions - len(report.Failed)
	return report, err
}

// selfTester says of one question why its gold is not right as its own prediction, and what is doubtful about it.
type selfTester func(ctx context.Context, ex eval.Example) (failures, doubts []eval.Doubt, err error)

// newSelfTester scores gold queries; for Spider2 gold tables, and where query and database are there, the query against
// its table, which is a doubt when they differ.
func newSelfTester(b *benchmark, exec *eval.Executor, o benchmarkOptions) (selfTester, error) {
	scorer, err := b.scorer(exec, o)
	if err != nil {
		return nil, err
	}
	if b.Name != eval.Spider2 {
		return func(ctx context.Context, ex eval.Example) (failures, doubts []eval.Doubt, err error) {
			if failures, err = selfFailures(ctx, scorer, ex, ex.Gold); err == nil {
				doubts, err = eval.GoldDoubts(ctx, exec, ex)
			}
			return failures, doubts, err
		}, nil
	}
	tables := spider2.NewScorer(nil, b.gold, spider2.CSVMode)
	return func(ctx context.Context, ex eval.Example) (failures, doubts []eval.Doubt, err error) {
		table, err := b.gold.Table(ex.ID)
		if err != nil {
			return []eval.Doubt{{Kind: string(eval.GoldFailed), Evidence: err.Error()}}, nil, nil
		}
		if failures, err = selfFailures(ctx, tables, ex, table); err != nil || ex.Gold == "" || b.RequireDatabases([]eval.Example{ex}) != nil {
			return failures, nil, err
		}
		different, err := selfFailures(ctx, scorer, ex, ex.Gold)
		if err != nil {
			return nil, nil, err
		}
		for _, d := range different {
			doubts = append(doubts, eval.Doubt{Kind: "gold_sql", Evidence: "the published gold query does not give the gold table: " + d.Evidence})
		}
		more, err := eval.GoldDoubts(ctx, exec, ex)
		return failures, append(doubts, more...), err
	}, nil
}

// selfFailures is why a gold is not right as its own prediction; nothing when it is.
func selfFailures(ctx context.Context, scorer eval.Scorer, ex eval.Example, gold string) ([]eval.Doubt, error) {
	score, err := scorer.Score(ctx, ex, gold)
	if err != nil || score.Right() {
		return nil, err
	}
	evidence := strings.TrimSpace(first(score.Message, strings.ReplaceAll(string(score.Failure), "_", " ")) + " " + score.OfficialNote)
	return []eval.Doubt{{Kind: string(score.Official), Evidence: evidence}}, nil
}

// inParallel calls f for 0 … n-1 from as many goroutines as there are CPUs, and returns the first error.
func inParallel(ctx context.Context, n int, f func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next := make(chan int)
	var all sync.WaitGroup
	for range runtime.NumCPU() {
		all.Go(func() {
			for i := range next {
				if err := f(i); err != nil {
					cancel(err)
				}
			}
		})
	}
	for i := 0; i < n && ctx.Err() == nil; i++ {
		next <- i
	}
	close(next)
	all.Wait()
	return context.Cause(ctx)
}

func printSelftest(w io.Writer, r *selftestReport) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %d of %d gold queries are right as their own prediction\n", r.Dataset, r.Right, r.Questions)
	for _, part := range []struct {
		title string
		list  []spider.Finding
	}{{"not right", r.Failed}, {"doubtful", r.Doubtful}} {
		if len(part.list) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%d %s:\n", len(part.list), part.title)
		for _, f := range part.list {
			for _, d := range f.Doubts {
				fmt.Fprintf(&b, "  %s (%s): %s: %s\n", f.ID, f.DB, d.Kind, plainText(d.Evidence))
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
