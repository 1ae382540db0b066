package sqlguard

import "time"

// Policy says what statements on one database may do and use. Take one of the presets and change what differs.
type Policy struct {
	Limits Limits

	// Tables, when not nil, are the only tables and views that exist for statements and for Schema, names compared without
	// case. A view works only when the tables below it are listed too, since SQLite cannot tell a view's reading from
	// that of a query that borrows the view's name.
	Tables []string

	// Scratch lets statements write: to a private copy of the database in memory, never to the file. The copy is made at the
	// first statement that needs it. Everything that reaches outside (ATTACH, VACUUM INTO, extensions) stays refused.
	Scratch bool

	// Python follows Python 3.11's sqlite3 module where it departs from SQLite: text without a statement is an empty
	// result, anything but white space and comments after the first statement (a second semicolon, say) is refused, and
	// with Scratch a transaction is opened before an INSERT, UPDATE, DELETE or REPLACE outside one. Session.Rollback
	// then does what closing the Python connection does.
	Python bool

	// DoubleQuotedStrings reads "x" as a string where no column x exists (SQLITE_DBCONFIG_DQS_DML), as Python's
	// sqlite3 does. Off, a misspelt column is an error instead of a constant.
	DoubleQuotedStrings bool

	// Immutable promises that nobody writes the file meanwhile: no locks, no side files, many workers. A Guard notices a changed
	// size or time of the file and opens it again, and never reads so past a non-empty -wal or -journal.
	Immutable bool

	// ReverseScanOrder makes SQLite visit rows the other way round where the query leaves the order open
	// (SQLITE_DBCONFIG_REVERSE_SCANORDER): a result that changes depends on ties.
	ReverseScanOrder bool
}

// Limits bound one statement. A zero field means the value of AskPolicy, MaxOps excepted.
type Limits struct {
	Timeout  time.Duration // from the start of the statement; 250 ms later the worker is killed
	MaxRows  int           // rows of a result; one more sets Result.Truncated
	MaxBytes int64         // bytes of a result's values; the row that does not fit sets Result.Truncated
	MaxCell  int64         // bytes of one string, blob or stored row (SQLITE_LIMIT_LENGTH): longer ones are a failure
	MaxLike  int           // bytes of a LIKE or GLOB pattern (SQLITE_LIMIT_LIKE_PATTERN_LENGTH)
	Memory   int64         // bytes SQLite may allocate for the statement (sqlite3_hard_heap_limit64)
	MaxOps   int64         // VM instructions, looked at every 1000; the only limit where 0 means none
}

// AskPolicy is for a person's question to a live file.
func AskPolicy() Policy {
	return Policy{Limits: Limits{
		Timeout:  5 * time.Second,
		MaxRows:  10_000,
		MaxBytes: 16 << 20,
		MaxCell:  16 << 20,
		MaxLike:  1000,
		Memory:   256 << 20,
	}}
}

// EvalPolicy is for scoring predictions: a file at rest, whole results, strings in double quotes as the official scripts have it.
func EvalPolicy() Policy {
	return Policy{
		Limits: Limits{
			Timeout:  30 * time.Second,
			MaxRows:  500_000,
			MaxBytes: 1 << 30,
			MaxCell:  16 << 20,
			MaxLike:  1000,
			Memory:   1 << 30,
		},
		Python:              true,
		DoubleQuotedStrings: true,
		Immutable:           true,
	}
}

// GoldPolicy is EvalPolicy for a benchmark's own statements: ten times the time, and SQLite's default lengths.
func GoldPolicy() Policy {
	p := EvalPolicy()
	p.Limits.Timeout = 300 * time.Second
	p.Limits.MaxCell = 1_000_000_000
	p.Limits.MaxLike = 50_000
	return p
}

// ScratchPolicy is EvalPolicy with statements that may write, to a private copy, as the official scripts let predictions do.
func ScratchPolicy() Policy {
	p := EvalPolicy()
	p.Scratch = true
	return p
}

// withDefaults fills the zero fields from AskPolicy.
func (l Limits) withDefaults() Limits {
	ask := AskPolicy().Limits
	if l.Timeout <= 0 {
		l.Timeout = ask.Timeout
	}
	if l.MaxRows <= 0 {
		l.MaxRows = ask.MaxRows
	}
	if l.MaxBytes <= 0 {
		l.MaxBytes = ask.MaxBytes
	}
	if l.MaxCell <= 0 {
		l.MaxCell = ask.MaxCell
	}
	if l.MaxLike <= 0 {
		l.MaxLike = ask.MaxLike
	}
	if l.Memory <= 0 {
		l.Memory = ask.Memory
	}
	return l
}
