package sqlguard

import (
	"context"
	"errors"
)

// Guard runs statements on one database under one Policy.
type Guard struct {
	path   string
	policy Policy
}

// Open opens the database file at path on a pool of worker processes of its own.
//
// The errors say what is wrong with the file and what to do: no such file, not a SQLite database, an unfinished transaction
// that only a writer can roll back, … Nothing is ever created or changed beside the file.
func Open(ctx context.Context, path string, policy Policy) (*Guard, error) {
	return nil, errors.New("sqlguard: not implemented")
}

// OpenInProcess is Open without workers: for trusted statements only, since one that keeps SQLite's C code busy cannot be
// stopped, and a crash takes the whole program along.
func OpenInProcess(ctx context.Context, path string, policy Policy) (*Guard, error) {
	return nil, errors.New("sqlguard: not implemented")
}

// Path is the database file, absolute, links resolved.
func (g *Guard) Path() string { return g.path }

// Policy is what the guard was opened with, limits filled in.
func (g *Guard) Policy() Policy { return g.policy }

// Query runs one statement under the policy's limits.
func (g *Guard) Query(ctx context.Context, sql string) (Result, error) {
	return g.QueryLimits(ctx, sql, g.policy.Limits)
}

// QueryLimits is Query with other limits.
func (g *Guard) QueryLimits(ctx context.Context, sql string, limits Limits) (Result, error) {
	return Result{}, errors.New("sqlguard: not implemented")
}

// Decision is what admission says about a statement, without running it.
type Decision struct {
	Failure *Failure // nil when the statement may run
	Writes  bool     // it would write (Scratch only)
	Columns []Column
	Uses    []Use // what the statement asked SQLite's authorizer for, each once, in order
}

// Use is one thing a statement needs.
type Use struct {
	Action string // "read", "select", "function", "pragma", …
	Object string // table.column, function, pragma
}

// Explain decides about a statement and does not run it.
func (g *Guard) Explain(ctx context.Context, sql string) (Decision, error) {
	return Decision{}, errors.New("sqlguard: not implemented")
}

// Close releases the database; workers of its own are stopped. It may be called twice.
func (g *Guard) Close() error { return nil }
