package sqlguard

import "time"

// Result is what one statement gave: rows, or a Failure. A failure while rows were read leaves no rows.
type Result struct {
	Columns   []Column // also of an empty result; none for a statement that returns no rows (Scratch only)
	Rows      [][]Value
	Truncated Truncation // exact: set only when at least one further row exists
	Elapsed   time.Duration
	Failure   *Failure // nil when the statement ran
}

// Column is one column of a result.
type Column struct {
	Name     string // as SQLite names it; names may repeat
	DeclType string // declared type of the table column it comes from, "" for an expression
}

// Truncation says which limit cut a result; "" when all rows are there.
type Truncation string

// What may cut a result.
const (
	Whole         Truncation = ""
	CutByMaxRows  Truncation = "max_rows"
	CutByMaxBytes Truncation = "max_bytes"
)

// Kind is a storage class of SQLite (https://www.sqlite.org/datatype3.html).
type Kind uint8

// The storage classes.
const (
	Null Kind = iota
	Integer
	Real
	Text
	Blob
)

// Value is one cell, exactly as SQLite stores it: no date, boolean or encoding conversion. Values can be compared with ==, which
// keeps the classes apart (1 and 1.0 differ).
type Value struct {
	Kind Kind
	Int  int64   // Integer
	Real float64 // Real
	Data string  // Text and Blob: the bytes. Text comes as UTF-8 also from a UTF-16 database, and may be broken.
}

// Failure says why a statement gave no rows. It is for the statement's author: nothing on our side is broken.
type Failure struct {
	Kind    FailureKind `json:"kind"`
	Rule    string      `json:"rule,omitempty"`   // refused and limit kinds: the guard's rule that fired, such as "attach" or "timeout"
	Object  string      `json:"object,omitempty"` // what it fired on: a table, function, pragma
	Message string      `json:"message"`          // one sentence; for SQLError SQLite's own words
	Hint    string      `json:"hint,omitempty"`   // what to do next, for instance which flag raises the limit
	Code    int         `json:"code,omitempty"`   // SQLite's extended result code, 0 when it was not asked
}

// String is the message and, after a semicolon, the hint.
func (f *Failure) String() string {
	if f.Hint == "" {
		return f.Message
	}
	return f.Message + "; " + f.Hint
}

// FailureKind groups failures by what a caller does with them.
type FailureKind string

// The kinds of failure.
const (
	Refused            FailureKind = "refused"             // needs more than reading
	MultipleStatements FailureKind = "multiple_statements" // more than one statement in the text
	NoStatement        FailureKind = "no_statement"        // empty text or comments only
	Parameters         FailureKind = "parameters"          // ? or :x, for which there is no value
	BadText            FailureKind = "bad_text"            // NUL byte, not UTF-8, longer than 100,000 bytes
	SQLError           FailureKind = "sql_error"           // SQLite's: syntax, no such column, …
	TimedOut           FailureKind = "timeout"             // ran past Limits.Timeout
	OutOfMemory        FailureKind = "memory"              // needed more than Limits.Memory
	TooBig             FailureKind = "too_big"             // a string, blob or expression beyond SQLite's limits as set
	Locked             FailureKind = "locked"              // another program holds the database
	BadDatabase        FailureKind = "bad_database"        // the file is corrupt or unreadable
	WorkerDied         FailureKind = "worker_died"         // the worker process crashed on it
)
