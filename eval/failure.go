package eval

// Failure is the class of a failed question in the decomposition.
type Failure string

// Classes of failure, in the order in which they are decided: the first that applies.
const (
	NoSQL            Failure = "no_sql"             // the model gave no SQL
	MaxTurns         Failure = "max_turns"          // no SQL because the turns were used up
	SQLError         Failure = "sql_error"          // the database or the guard refused it
	Timeout          Failure = "timeout"            // it ran over its deadline
	TooFewColumns    Failure = "too_few_columns"    //
	TooManyColumns   Failure = "too_many_columns"   //
	RowCountMismatch Failure = "row_count_mismatch" //
	OrderMismatch    Failure = "order_mismatch"     // same rows, but not in the order asked for
	ValueMismatch    Failure = "value_mismatch"     // same shape, other values
)

// Failures lists the classes in the order in which reports show them.
var Failures = []Failure{TooFewColumns, TooManyColumns, RowCountMismatch, ValueMismatch, OrderMismatch, SQLError, Timeout, NoSQL, MaxTurns}
