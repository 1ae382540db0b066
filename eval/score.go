package eval

import "context"

// Verdict says what became of a prediction.
type Verdict string

// The verdicts. Only Correct counts as right; HarnessError and GoldFailed are counted apart, never as wrong.
const (
	Correct          Verdict = "correct"
	Wrong            Verdict = "wrong"
	GoldFailed       Verdict = "gold_failed"       // the gold could not be executed, so nothing can be said
	PredictionFailed Verdict = "prediction_failed" // no SQL, or the database reported an error
	TimedOut         Verdict = "timed_out"
	Refused          Verdict = "refused" // the guard did not run it
	HarnessError     Verdict = "harness_error"
)

// Score is what one prediction is worth under a benchmark's rules.
type Score struct {
	// Official is the verdict by the benchmark's published script, bug for bug. Where that script would not end, or would
	// end with an exception, OfficialNote says so in a sentence and Official is the class of what happened here.
	Official     Verdict `json:"official"`
	OfficialNote string  `json:"official_note,omitempty"`
	// Strict is the verdict by plain rules: equal typed rows with columns in order, in row order where the gold's outermost
	// query has ORDER BY, and no side effects.
	Strict     Verdict `json:"strict"`
	StrictNote string  `json:"strict_note,omitempty"`

	Metrics    map[string]float64 `json:"metrics,omitempty"`    // the benchmark's figures, such as exec, exact, ex, soft_f1
	Difficulty string             `json:"difficulty,omitempty"` // the label the official tables split by
	Failure    Failure            `json:"failure,omitempty"`    // why it is not right; empty when it is
	Message    string             `json:"message,omitempty"`    // the database's or the harness's message
	Gold       *Table             `json:"gold_rows,omitempty"`  // first rows of both results, for the reader
	Predicted  *Table             `json:"pred_rows,omitempty"`  //
	Flags      []string           `json:"flags,omitempty"`      // observations, such as FlagExactText
	Doubts     []Doubt            `json:"doubts,omitempty"`     // reasons to suspect the gold; looked for where the prediction is not right
	Detail     any                `json:"detail,omitempty"`     // the benchmark's own partial results
}

// Right reports whether the official rules count the prediction as correct.
func (s *Score) Right() bool { return s != nil && s.Official == Correct }

// Observations that a report counts.
const (
	FlagExactText     = "exact_text"     // prediction and gold are the same text but for white space, case of words and a final semicolon
	FlagSingleScalar  = "single_scalar"  // the gold's result is one cell
	FlagBothEmpty     = "both_empty"     // both results have no rows: weak evidence
	FlagUnparseable   = "unparseable"    // Spider's own parser does not understand the prediction
	FlagSideEffects   = "side_effects"   // the prediction wrote something
	FlagNearMiss      = "near_miss"      // right within a tolerance of 1e-3 relative, or but for the types
	FlagPermuted      = "permuted"       // right but for the order of columns
	FlagExecutes      = "executes"       // the prediction ran without an error
	FlagNeedsNewerSQL = "needs_newer_db" // uses what the official runtime's SQLite (3.40) does not have
)

// Scorer judges predictions by one benchmark's rules.
type Scorer interface {
	// Score judges sql as the answer to ex. An empty sql is no answer. The error is for a cancelled context and broken
	// settings only: what goes wrong on our side with one question is a Score with HarnessError.
	Score(ctx context.Context, ex Example, sql string) (*Score, error)
	// Totals returns the tables that the official script prints over all results, from their scores alone.
	Totals(results []Result) []Totals
}

// Totals is one table of figures, such as an official script prints at its end.
type Totals struct {
	Title   string     `json:"title"`
	Columns []string   `json:"columns"` // the first names the row labels
	Rows    [][]string `json:"rows"`
	Text    string     `json:"text,omitempty"` // the same as the official script prints it, where it prints such a table
}

// Table is a part of a query's result as shown to a reader.
type Table struct {
	Columns []string `json:"columns"`
	Rows    [][]any  `json:"rows"`  // nil, int64, float64 or string (blobs as x'…'); at most ShownRows of them
	Total   int      `json:"total"` // rows of the whole result
}

// ShownRows is how many rows of a result a Score keeps.
const ShownRows = 20
