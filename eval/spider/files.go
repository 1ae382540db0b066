package spider

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"quern/eval"
	"quern/internal/pytext"
)

// Files are what the official command lines take: a gold file of lines "SQL<TAB>database", a prediction file of lines "SQL",
// both with a blank line between the interactions of a multi-turn dataset; the folder with database/<db>/<db>.sqlite; and
// tables.json.
type Files struct {
	Gold, Pred, Databases, Tables string
}

// FileReport is the outcome of scoring a prediction file.
type FileReport struct {
	Results []eval.Result // one a line of the gold file, in order; their Score's Detail is a *Detail
	Text    string        // the test-suite script's printed totals
	Legacy  string        // the older script's; empty where not asked for
	// Ends says where and why the test-suite script ends without printing totals, LegacyEnds the same of the older one.
	// Text then leaves out the lines on which it would end.
	Ends, LegacyEnds string
}

// ScoreFiles scores a prediction file with up to parallel pairs at a time. progress, if not nil, is told how many of how
// many are done; it may be called from several goroutines.
func ScoreFiles(ctx context.Context, exec *eval.Executor, f Files, opts Options, parallel int, progress func(done, total int)) (*FileReport, error) {
	s, err := NewScorer(exec, f.Tables, opts)
	if err != nil {
		return nil, err
	}
	p, err := readPairs(f)
	if err != nil {
		return nil, err
	}
	if err := requireDatabases(f, p.questions); err != nil {
		return nil, err
	}
	report := &FileReport{Results: make([]eval.Result, len(p.questions)), Ends: p.ends}
	var done atomic.Int64
	err = eachIndex(ctx, len(p.questions), parallel, func(i int) error {
		q := p.questions[i]
		score, err := s.scoreLines(ctx, q.example, q.lines)
		if err != nil {
			return err
		}
		if d := detailOf(score); d != nil {
			d.Interaction, d.Turn = q.interaction, q.turn
		}
		report.Results[i] = eval.Result{Example: q.example, Prediction: eval.Prediction{SQL: q.lines.plain}, Score: score}
		if progress != nil {
			progress(int(done.Add(1)), len(p.questions))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	s.printTotals(report, p)
	return report, nil
}

func (s *Scorer) printTotals(report *FileReport, p *pairs) {
	totals := s.Totals(report.Results)
	report.Text = totals[0].Text
	for i, r := range report.Results {
		d := detailOf(r.Score)
		if d == nil {
			continue
		}
		where := fmt.Sprintf("line %d of the gold file: ", p.questions[i].line)
		if c := d.TestSuite.Crash; c != nil && report.Ends == "" {
			report.Ends = where + c.Error()
		}
		if d.Legacy != nil && d.Legacy.Crash != nil && report.LegacyEnds == "" {
			report.LegacyEnds = where + d.Legacy.Crash.Error()
		}
	}
	if len(totals) > 1 {
		report.Legacy = totals[1].Text
	}
}

// eachIndex calls f for 0 to n-1 from several goroutines, until one fails.
func eachIndex(ctx context.Context, n, parallel int, f func(i int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var next atomic.Int64
	var wg sync.WaitGroup
	for range max(parallel, 1) {
		wg.Add(1)
		go func() {
			defer wg.Done()
			for i := int(next.Add(1)) - 1; i < n && ctx.Err() == nil; i = int(next.Add(1)) - 1 {
				if err := f(i); err != nil {
					cancel(err)
					return
				}
			}
		}()
	}
	wg.Wait()
	return context.Cause(ctx)
}

// question is one line of a gold file with the predictions that are judged for it.
type question struct {
	example           eval.Example
	lines             lines
	interaction, turn int
	line              int // in the gold file, from 1
}

type pairs struct {
	questions []question
	ends      string // why the test-suite script cannot even pair the lines
}

// readPairs reads both files and pairs their lines: as the test-suite script does (interactions, then turns), as the older
// one does (lines that are not blank, one after the other), and by position.
func readPairs(f Files) (*pairs, error) {
	goldLines, err := readLines(f.Gold)
	if err != nil {
		return nil, err
	}
	predLines, err := readLines(f.Pred)
	if err != nil {
		return nil, err
	}
	p := &pairs{}
	if p.questions, err = readQuestions(f, goldLines); err != nil {
		return nil, err
	}
	gold, pred := interactions(goldLines), interactions(predLines)
	if len(gold) != len(pred) {
		p.ends = fmt.Sprintf("AssertionError: %s has %d interactions and %s has %d (a blank line ends one)", f.Gold, len(gold), f.Pred, len(pred))
	}
	if err := p.pairByPosition(f, gold, pred, predLines); err != nil {
		return nil, err
	}
	p.pairForSuite(pred)
	p.pairForLegacy(predLines)
	return p, nil
}

func readLines(path string) ([]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("%s is not UTF-8; the official scripts end here with UnicodeDecodeError", path)
	}
	return pytext.Lines(string(data)), nil
}

// ReadPredictions reads a prediction file for the questions of a dataset, one line each, and returns SQL by question id. A
// blank line is a question without an answer; of a line only what stands before the first tab counts. Use ScoreFiles where
// the blank lines shall have the effect that they have on the official scripts.
func ReadPredictions(path string, examples []eval.Example) (map[string]string, error) {
	all, err := readLines(path)
	if err != nil {
		return nil, err
	}
	for len(all) > len(examples) && pytext.Strip(all[len(all)-1]) == "" {
		all = all[:len(all)-1]
	}
	if len(all) != len(examples) {
		return nil, fmt.Errorf("%s has %d lines for %d questions; write one line for each, blank where there is no answer", path, len(all), len(examples))
	}
	predictions := map[string]string{}
	for i, ex := range examples {
		predictions[ex.ID] = predictionOf(all[i])
	}
	return predictions, nil
}

func readQuestions(f Files, goldLines []string) ([]question, error) {
	var questions []question
	interaction, turn := 0, 0
	for i, line := range goldLines {
		if pytext.Strip(line) == "" {
			interaction, turn = interaction+1, 0
			continue
		}
		fields := strings.Split(pytext.Strip(line), "\t")
		if len(fields) != 2 {
			return nil, fmt.Errorf("%s: line %d has %d fields separated by tabs, not two, SQL and database; the official scripts end here with ValueError", f.Gold, i+1, len(fields))
		}
		n := len(questions)
		questions = append(questions, question{line: i + 1, interaction: interaction, turn: turn, example: eval.Example{
			ID: strconv.Itoa(n), Index: n, DB: fields[1], Gold: fields[0],
			Database: filepath.Join(f.Databases, fields[1], fields[1]+".sqlite")}})
		turn++
	}
	if len(questions) == 0 {
		return nil, fmt.Errorf("%s holds no gold query", f.Gold)
	}
	return questions, nil
}

// interactions splits lines as the test-suite script does: every blank line ends an interaction, also an empty one.
func interactions(all []string) [][]string {
	var out [][]string
	var current []string
	for _, line := range all {
		if pytext.Strip(line) == "" {
			out = append(out, current)
			current = nil
			continue
		}
		current = append(current, line)
	}
	if len(current) > 0 {
		out = append(out, current)
	}
	return out
}

// predictionOf is the text of a prediction line that counts: up to the first tab.
func predictionOf(line string) string {
	sql, _, _ := strings.Cut(pytext.Strip(line), "\t")
	return sql
}

// pairByPosition gives each question its line. In a file of single questions a blank line is a question without an answer.
func (p *pairs) pairByPosition(f Files, gold, pred [][]string, predLines []string) error {
	if len(gold) == 1 {
		return p.pairLines(f, predLines)
	}
	if len(gold) != len(pred) {
		return fmt.Errorf("%s; write one line for each turn, and a blank line after each interaction", p.ends)
	}
	for i := range p.questions {
		q := &p.questions[i]
		if turns := pred[q.interaction]; q.turn < len(turns) {
			q.lines.plain = predictionOf(turns[q.turn])
		}
	}
	return nil
}

func (p *pairs) pairLines(f Files, predLines []string) error {
	n := len(p.questions)
	for len(predLines) > n && pytext.Strip(predLines[len(predLines)-1]) == "" {
		predLines = predLines[:len(predLines)-1]
	}
	if len(predLines) > n {
		return fmt.Errorf("%s has %d lines, and %s only %d questions", f.Pred, len(predLines), f.Gold, n)
	}
	for i, line := range predLines {
		p.questions[i].lines.plain = predictionOf(line)
	}
	return nil
}

// pairForSuite pairs as the test-suite script does: it stops in each interaction at the shorter side. Where it cannot pair
// at all, the lines are paired by position.
func (p *pairs) pairForSuite(pred [][]string) {
	for i := range p.questions {
		q := &p.questions[i]
		if p.ends != "" {
			q.lines.suite = &q.lines.plain
			continue
		}
		if turns := pred[q.interaction]; q.turn < len(turns) {
			sql := predictionOf(turns[q.turn])
			q.lines.suite = &sql
		}
	}
}

// pairForLegacy pairs as the older script does: blank lines are dropped, and the lines after one move up.
func (p *pairs) pairForLegacy(predLines []string) {
	i := 0
	for _, line := range predLines {
		if pytext.Strip(line) == "" || i == len(p.questions) {
			continue
		}
		sql := predictionOf(line)
		p.questions[i].lines.legacy = &sql
		i++
	}
}

// requireDatabases looks for the database of each question before anything is run.
func requireDatabases(f Files, questions []question) error {
	d := &eval.Dataset{Name: "Spider", Dir: f.Databases, Layout: eval.LayoutError{Hint: databasesHint}}
	var examples []eval.Example
	for _, q := range questions {
		examples = append(examples, q.example)
	}
	return d.RequireDatabases(examples)
}
