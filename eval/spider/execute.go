package spider

import (
	"context"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"quern/eval"
	"quern/eval/internal/sqlparse"
	"quern/internal/pytext"
	"quern/sqlguard"
)

// execution is the test-suite comparison of one pair: on every database file, the prediction as it is and, with plugged
// values, in every variant.
type execution struct {
	correct bool
	crash   *Crash   // the script ends here with an exception
	notes   []string // what the script would have done otherwise than here: hang, write, wait

	ordered     bool // the script's view: "order by" occurs in the gold
	wrote       bool // the prediction, as it is, writes
	goldFailure *sqlguard.Failure
}

// pair is a question that is being scored, with the results of what ran for it, so that the scripts' rules and the plain
// ones share them.
type pair struct {
	db, database, gold string
	exec               *eval.Executor
	ran                map[ranKey]sqlguard.Result
}

type ranKey struct{ file, sql string }

func (s *Scorer) newPair(db, database, gold string) *pair {
	return &pair{db, database, gold, s.exec, map[ranKey]sqlguard.Result{}}
}

// query runs a prediction read-only, once.
func (p *pair) query(ctx context.Context, file, sql string) (sqlguard.Result, error) {
	key := ranKey{file, sql}
	result, known := p.ran[key]
	if known {
		return result, nil
	}
	result, err := p.exec.Query(ctx, file, sql)
	if err = harnessError(result, err); err == nil {
		p.ran[key] = result
	}
	return result, err
}

func (e *execution) note(format string, args ...any) {
	if text := fmt.Sprintf(format, args...); !slices.Contains(e.notes, text) {
		e.notes = append(e.notes, text)
	}
}

// maxVariants is how many variants of a prediction with plugged values are run. The script runs all of them.
const maxVariants = 10_000

// execute runs a pair as eval_exec_match does. The error is for our side.
func (p *pair) execute(ctx context.Context, pred string, opts Options) (e execution, err error) {
	gold := closeOperators(p.gold)
	pred = closeOperators(pred)
	if !opts.KeepDistinct {
		if pred, e.crash = removeDistinct(pred); e.crash != nil {
			return e, nil
		}
		if gold, e.crash = removeDistinct(gold); e.crash != nil {
			return e, nil
		}
	}
	e.ordered = strings.Contains(pytext.Lower(gold), "order by")
	var t template
	var values []string
	if opts.PlugValue {
		if t, values, e.crash = plugValues(gold, pred); e.crash != nil {
			return e, nil
		}
	}
	files, err := databaseFiles(p.database)
	if err != nil {
		return e, err
	}
	run := suite{pair: p, gold: replaceYear(gold), files: files, query: p.query, changes: map[string][]string{}, out: &e}
	e.correct, err = run.passes(ctx, pred)
	if err != nil || e.correct || e.crash != nil || !opts.PlugValue {
		return e, err
	}
	run.query = p.exec.Query // variants are too many to keep
	err = run.plug(ctx, t, values, 10*p.exec.Deadlines().Prediction)
	return e, err
}

// databaseFiles are the files of a test suite: every one in the database's folder whose name contains ".sqlite", the
// database itself first.
func databaseFiles(database string) ([]string, error) {
	entries, err := os.ReadDir(filepath.Dir(database))
	if err != nil {
		return nil, fmt.Errorf("read the folder of the database: %w", err)
	}
	files := []string{}
	for _, entry := range entries {
		path := filepath.Join(filepath.Dir(database), entry.Name())
		switch {
		case path == database:
			files = append([]string{path}, files...)
		case strings.Contains(entry.Name(), ".sqlite") && !sideFile(entry.Name()):
			files = append(files, path)
		}
	}
	return files, nil
}

// sideFile reports the files that SQLite keeps beside a database while it is open. The script would open them as
// databases; but they are not part of a test suite, and come and go.
func sideFile(name string) bool {
	return strings.HasSuffix(name, "-journal") || strings.HasSuffix(name, "-wal") || strings.HasSuffix(name, "-shm")
}

// suite runs a pair's statements on its database files. What a prediction changes for good in a file is kept in changes
// and done again, on a private copy, before later statements.
type suite struct {
	*pair
	gold    string // rewritten
	files   []string
	query   func(ctx context.Context, file, sql string) (sqlguard.Result, error)
	changes map[string][]string
	out     *execution
}

// passes reports whether a prediction gives the gold's result on every file.
func (r *suite) passes(ctx context.Context, pred string) (bool, error) {
	pred = replaceYear(pred)
	for _, file := range r.files {
		gold, err := r.runGold(ctx, file)
		if err != nil {
			return false, err
		}
		result, err := r.runPrediction(ctx, file, pred)
		if err != nil {
			return false, err
		}
		if gold.Failure != nil {
			if len(r.changes[file]) == 0 { // else it is the prediction's doing
				r.out.goldFailure = gold.Failure
			}
			r.out.crash = crash("AssertionError", "the gold query fails on %s: %s", filepath.Base(file), gold.Failure.Message)
			return false, nil
		}
		if !r.same(gold, result) {
			return false, nil
		}
	}
	return true, nil
}

func (r *suite) same(gold, pred sqlguard.Result) bool {
	switch {
	case pred.Failure != nil:
		return false
	case gold.Truncated != "" || pred.Truncated != "":
		r.out.note("a result is too large to be compared whole")
		return false
	}
	c := compareResults(gold.Rows, pred.Rows, r.out.ordered)
	switch {
	case c.gave:
		r.out.note("the results are too alike to find an order of columns in reasonable time; the official script does not end here in practice")
	case c.tried > patience:
		r.out.note("the official script does not end here in practice: it would try %.2g orders of columns", c.tried)
	}
	return c.equal
}

func (r *suite) runGold(ctx context.Context, file string) (sqlguard.Result, error) {
	if changes := r.changes[file]; len(changes) > 0 {
		return r.scratch(ctx, file, append(slices.Clone(changes), r.gold))
	}
	result, err := r.exec.Gold(ctx, file, r.gold)
	if err == nil && refusedWrite(result) {
		return r.scratch(ctx, file, []string{r.gold})
	}
	return result, harnessError(result, err)
}

// runPrediction runs a statement that nobody has read. One that writes is run on a private copy.
func (r *suite) runPrediction(ctx context.Context, file, sql string) (sqlguard.Result, error) {
	changes := r.changes[file]
	if len(changes) == 0 {
		result, err := r.query(ctx, file, sql)
		if err != nil || !refusedWrite(result) {
			noteLimits(r.out, result)
			return result, harnessError(result, err)
		}
	}
	result, err := r.scratch(ctx, file, append(slices.Clone(changes), sql))
	if err != nil {
		return result, err
	}
	noteLimits(r.out, result)
	if len(result.Columns) > 0 && len(changes) > 0 && result.Failure == nil {
		return result, nil // a query on the changed copy
	}
	r.out.wrote = true
	switch {
	case refusedWrite(result) && result.Failure.Rule == "attach":
		r.out.note("the official script opens the other file that the prediction names")
		return sqlguard.Result{}, nil
	case refusedWrite(result):
		r.out.note("the official script runs this statement, which is refused here: %s", result.Failure.Message)
	case result.Failure == nil && changesFile(sql):
		r.out.note("the official script lets the prediction change the database file for good, and later questions with it")
		r.changes[file] = append(changes, sql)
	case result.Failure == nil:
		r.out.note("the prediction writes; the official script takes it back afterwards")
	}
	return result, nil
}

func (r *suite) scratch(ctx context.Context, file string, statements []string) (sqlguard.Result, error) {
	results, err := r.exec.Scratch(ctx, file, statements...)
	if err != nil {
		return sqlguard.Result{}, err
	}
	last := results[len(results)-1]
	return last, harnessError(last, nil)
}

// noteLimits says where a limit of ours ended a statement that the script would have let run.
func noteLimits(e *execution, result sqlguard.Result) {
	if result.Failure == nil {
		return
	}
	switch result.Failure.Kind {
	case sqlguard.TimedOut:
		e.note("the official script has no time limit that works: it waits until this query ends")
	case sqlguard.OutOfMemory, sqlguard.TooBig:
		e.note("the official script has no limit on memory or size, where this query met one: %s", result.Failure.Message)
	}
}

// plug tries the prediction with every assignment of the gold's values to its slots.
func (r *suite) plug(ctx context.Context, t template, values []string, budget time.Duration) error {
	slots := t.slots()
	variants := math.Pow(float64(len(values)), float64(slots))
	start := time.Now()
	assignment := make([]int, slots)
	filled := make([]string, slots)
	for n := 0; float64(n) < variants; n++ {
		if n == maxVariants || time.Since(start) > budget {
			r.out.note("the official script would run %.0f variants of this prediction; %d were run", variants, n)
			return nil
		}
		for i, v := range assignment {
			filled[i] = values[v]
		}
		passes, err := r.passes(ctx, t.fill(filled))
		if err != nil || r.out.crash != nil {
			return err
		}
		if passes {
			r.out.correct = true
			return nil
		}
		for i := slots - 1; i >= 0; i-- {
			if assignment[i]++; assignment[i] < len(values) {
				break
			}
			assignment[i] = 0
		}
	}
	return nil
}

// changesFile reports whether a statement that has run changed the file for good: data changes are never committed by the
// script, and temporary objects go with the connection.
func changesFile(sql string) bool {
	var words []string
	for _, tok := range sqlparse.Tokens(sql) {
		switch tok.Kind {
		case sqlparse.Space, sqlparse.Newline, sqlparse.Comment, sqlparse.Multiline:
			continue
		}
		if words = append(words, strings.ToUpper(tok.Text)); len(words) == 2 {
			break
		}
	}
	if len(words) == 0 {
		return false
	}
	switch words[0] {
	case "INSERT", "UPDATE", "DELETE", "REPLACE", "BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE":
		return false
	case "CREATE":
		return len(words) == 1 || words[1] != "TEMP" && words[1] != "TEMPORARY"
	}
	return true
}

func refusedWrite(r sqlguard.Result) bool {
	return r.Failure != nil && r.Failure.Kind == sqlguard.Refused && r.Failure.Rule != "function"
}

// brokenError is a failure of our side that the guard reports with the statement.
type brokenError struct{ failure *sqlguard.Failure }

func (e brokenError) Error() string { return e.failure.Message }

// harnessError returns err, or the failure of our side that is in the result.
func harnessError(r sqlguard.Result, err error) error {
	if err == nil && r.Failure != nil && eval.FailureVerdict(r.Failure) == eval.HarnessError {
		return brokenError{r.Failure}
	}
	return err
}
