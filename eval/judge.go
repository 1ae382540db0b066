package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"

	"quern/sqlguard"
)

// Execution is what running a gold query and a prediction gave, for the parts of a score that all benchmarks share.
type Execution struct {
	GoldSQL, PredSQL string
	Gold, Pred       sqlguard.Result
	Ordered          bool // the gold asks for an order
	Wrote            bool // the prediction wrote something, or would have
}

// Metrics that every scorer reports beside the benchmark's own: 0 or 1.
const (
	MetricStrict   = "strict"   // equal typed rows, columns in order, row order where asked
	MetricPermuted = "permuted" // equal rows after some reordering of columns; row order ignored
	MetricTolerant = "tolerant" // permuted, with numbers to six digits and text without case and outer blanks
)

// Describe fills the parts of a score that all benchmarks share, from both results: Strict, the shared metrics, the
// observations, the rows shown, and, unless Official is Correct, the class of failure. Official must be set before.
func (s *Score) Describe(e Execution) {
	s.ensureMetrics()
	s.Gold, s.Predicted = ShowTable(e.Gold), ShowTable(e.Pred)
	s.Strict, s.StrictNote = e.strict()
	if SameText(e.GoldSQL, e.PredSQL) {
		s.Flag(FlagExactText)
	}
	if len(e.Gold.Rows) == 1 && len(e.Gold.Columns) == 1 {
		s.Flag(FlagSingleScalar)
	}
	if e.Wrote {
		s.Flag(FlagSideEffects)
	}
	if e.Pred.Failure == nil && e.PredSQL != "" {
		s.Flag(FlagExecutes)
	}
	if e.Gold.Failure == nil && e.Pred.Failure == nil {
		s.compareShapes(e)
	}
	if s.Official != Correct && s.Official != GoldFailed && s.Official != HarnessError {
		s.Failure = e.failure()
	}
	if e.Pred.Failure != nil {
		s.Message = e.Pred.Failure.Message
	}
}

func (s *Score) compareShapes(e Execution) {
	width := len(e.Gold.Columns)
	same := width == len(e.Pred.Columns)
	permuted := same && samePermuted(e.Gold.Rows, e.Pred.Rows, width)
	tolerant := permuted || same && samePermuted(tolerantRows(e.Gold.Rows), tolerantRows(e.Pred.Rows), width)
	s.Metrics[MetricStrict] = oneIf(s.Strict == Correct)
	s.Metrics[MetricPermuted] = oneIf(permuted)
	s.Metrics[MetricTolerant] = oneIf(tolerant)
	if len(e.Gold.Rows) == 0 && len(e.Pred.Rows) == 0 {
		s.Flag(FlagBothEmpty)
	}
	if s.Official != Correct && permuted {
		s.Flag(FlagPermuted)
	}
	if s.Official != Correct && tolerant {
		s.Flag(FlagNearMiss)
	}
}

func (s *Score) ensureMetrics() {
	if s.Metrics == nil {
		s.Metrics = map[string]float64{}
	}
}

// Flag adds an observation once.
func (s *Score) Flag(name string) {
	if !s.Has(name) {
		s.Flags = append(s.Flags, name)
	}
}

// Has reports whether an observation was made.
func (s *Score) Has(name string) bool {
	if s == nil {
		return false
	}
	for _, f := range s.Flags {
		if f == name {
			return true
		}
	}
	return false
}

// strict is the verdict by plain rules.
func (e Execution) strict() (Verdict, string) {
	if e.Gold.Failure != nil {
		return GoldFailed, e.Gold.Failure.Message
	}
	if e.PredSQL == "" {
		return PredictionFailed, "no SQL"
	}
	if f := e.Pred.Failure; f != nil {
		return FailureVerdict(f), f.Message
	}
	switch {
	case e.Wrote:
		return Wrong, "the statement writes"
	case e.Gold.Truncated != "" || e.Pred.Truncated != "":
		return Wrong, "the result is too large to be compared whole"
	case len(e.Gold.Columns) != len(e.Pred.Columns):
		return Wrong, "the number of columns differs"
	case !SameRows(e.Gold.Rows, e.Pred.Rows, e.Ordered):
		return Wrong, ""
	}
	return Correct, ""
}

// FailureVerdict is the class of a statement that gave no rows.
func FailureVerdict(f *sqlguard.Failure) Verdict {
	switch f.Kind {
	case sqlguard.TimedOut:
		return TimedOut
	case sqlguard.Refused:
		return Refused
	case sqlguard.WorkerDied, sqlguard.Locked, sqlguard.BadDatabase:
		return HarnessError
	}
	return PredictionFailed
}

// failure is the class of a prediction that is not right.
func (e Execution) failure() Failure {
	f := e.Pred.Failure
	gold, pred := len(e.Gold.Columns), len(e.Pred.Columns)
	switch {
	case e.PredSQL == "":
		return NoSQL
	case f != nil && f.Kind == sqlguard.TimedOut:
		return Timeout
	case f != nil:
		return SQLError
	case pred < gold:
		return TooFewColumns
	case pred > gold:
		return TooManyColumns
	case len(e.Gold.Rows) != len(e.Pred.Rows):
		return RowCountMismatch
	case SameRows(e.Gold.Rows, e.Pred.Rows, false):
		return OrderMismatch
	}
	return ValueMismatch
}

// Harness is the score of a question on which our side broke.
func Harness(err error) *Score {
	return &Score{Official: HarnessError, Strict: HarnessError, Message: err.Error()}
}

func oneIf(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func hashText(s string) string {
	sum := sha256.Sum256([]byte(s))
	return hex.EncodeToString(sum[:])
}

func formatFloat(f float64) string { return strconv.FormatFloat(f, 'g', -1, 64) }
