package sqlguard

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
)

// runner runs statements on one connection, one at a time.
type runner interface {
	query(ctx context.Context, sql string, l Limits) (Result, error)
	explain(ctx context.Context, sql string, l Limits) (Decision, error)
	schema(ctx context.Context, o SchemaOptions, l Limits) (Schema, error)
	begin(ctx context.Context, l Limits) error
	rollback(ctx context.Context, l Limits) error
	reset(ctx context.Context, l Limits) error
	lost() bool // the connection is gone, its state with it
}

// source lends connections: a Pool, or the process itself.
type source interface {
	lend(ctx context.Context, ref *dbRef) (runner, error)
	takeBack(runner)
	pin(ctx context.Context, ref *dbRef) (runner, error) // with a ref of its own, until unpin
	unpin(runner)
	forget(ref *dbRef)
	Close() error
}

// dbRef is a database as workers know it.
type dbRef struct {
	id   uint32
	spec spec
}

var lastID atomic.Uint32

func newRef(s spec) *dbRef { return &dbRef{lastID.Add(1), s} }

// Guard runs statements on one database under one Policy.
type Guard struct {
	path      string // as given
	policy    Policy
	source    source
	ownSource bool

	mu   sync.Mutex
	file *file
	ref  *dbRef // nil: closed
}

// Open opens the database file at path on a pool of two worker processes of its own.
//
// The errors say what is wrong with the file and what to do: no such file, not a SQLite database, an unfinished transaction
// that only a writer can roll back, … Nothing is ever created or changed beside the file.
func Open(ctx context.Context, path string, policy Policy) (*Guard, error) {
	pool, err := NewPool(2)
	if err != nil {
		return nil, err
	}
	return ownGuard(ctx, path, policy, pool)
}

// OpenInProcess is Open without workers: for trusted statements only, since one that keeps SQLite's C code busy cannot be
// stopped, and a crash takes the whole program along. Limits.Memory is not kept.
func OpenInProcess(ctx context.Context, path string, policy Policy) (*Guard, error) {
	return ownGuard(ctx, path, policy, newLocalSource())
}

func ownGuard(ctx context.Context, path string, policy Policy, s source) (*Guard, error) {
	g, err := openGuard(ctx, path, policy, s)
	if err != nil {
		s.Close()
		return nil, err
	}
	g.ownSource = true
	return g, nil
}

func openGuard(ctx context.Context, path string, policy Policy, s source) (*Guard, error) {
	if policy.Scratch && policy.Tables != nil {
		return nil, errors.New("sqlguard: a policy with Scratch cannot have Tables: a copy that may be written hides nothing")
	}
	policy.Limits = policy.Limits.withDefaults()
	g := &Guard{path: path, policy: policy, source: s}
	if err := g.locate(); err != nil {
		return nil, err
	}
	r, err := s.lend(ctx, g.ref) // shows what is wrong with the file
	if err != nil {
		g.file.remove()
		return nil, openError(path, err)
	}
	s.takeBack(r)
	return g, nil
}

// locate finds the file and how to open it; g.mu is held, or g is new.
func (g *Guard) locate() error {
	f, err := locate(g.path, g.policy.Immutable)
	if err != nil {
		return err
	}
	_, local := g.source.(*localSource)
	g.file = f
	g.ref = newRef(spec{
		URI:       f.uri,
		Tables:    g.policy.Tables,
		Scratch:   g.policy.Scratch,
		Python:    g.policy.Python,
		DQS:       g.policy.DoubleQuotedStrings,
		Reverse:   g.policy.ReverseScanOrder,
		InProcess: local,
	})
	return nil
}

// current is the database to open, found anew when a file that had to stay as it was has changed.
func (g *Guard) current() (*dbRef, *file, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ref == nil {
		return nil, nil, ErrClosed
	}
	if g.file.changed() {
		old, oldFile := g.ref, g.file
		if err := g.locate(); err != nil {
			return nil, nil, err
		}
		g.source.forget(old)
		oldFile.remove()
	}
	return g.ref, g.file, nil
}

// Path is the database file, absolute, links resolved.
func (g *Guard) Path() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.file.path
}

// Note is what a person should know about the way the file was opened, "" when there is nothing to say.
func (g *Guard) Note() string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.file.note
}

// Policy is what the guard was opened with, limits filled in.
func (g *Guard) Policy() Policy { return g.policy }

// Query runs one statement under the policy's limits.
func (g *Guard) Query(ctx context.Context, sql string) (Result, error) {
	return g.QueryLimits(ctx, sql, g.policy.Limits)
}

// QueryLimits is Query with other limits.
func (g *Guard) QueryLimits(ctx context.Context, sql string, limits Limits) (Result, error) {
	result, err := g.queryOnce(ctx, sql, limits)
	if err == nil && result.Failure != nil && result.Failure.Kind == WorkerDied { // something else may have ended it
		result, err = g.queryOnce(ctx, sql, limits)
	}
	return result, err
}

func (g *Guard) queryOnce(ctx context.Context, sql string, limits Limits) (result Result, err error) {
	err = g.with(ctx, func(r runner) error {
		result, err = r.query(ctx, sql, limits.withDefaults())
		return err
	})
	return result, err
}

// with runs f on a connection to the file as it is. A file that was not to change and did so meanwhile may have been read half old,
// half new: f runs again.
func (g *Guard) with(ctx context.Context, f func(runner) error) error {
	for try := 1; ; try++ {
		ref, file, err := g.current()
		if err != nil {
			return err
		}
		r, err := g.source.lend(ctx, ref)
		if err != nil {
			return openError(g.path, err)
		}
		err = f(r)
		if g.policy.Scratch && !r.lost() { // what one statement wrote is not for the next
			err = errors.Join(err, r.reset(context.WithoutCancel(ctx), g.policy.Limits))
		}
		g.source.takeBack(r)
		again := file.changed() || errors.Is(err, errWorkerGone)
		if !again || try == 3 {
			return err
		}
	}
}

// Decision is what admission says about a statement, without running it.
type Decision struct {
	Failure *Failure // nil when the statement may run
	Writes  bool     // it would write, to the private copy (Scratch only)
	Columns []Column
	Uses    []Use // what the statement asked SQLite's authorizer for, each once, in order, up to 200
}

// Use is one thing a statement needs.
type Use struct {
	Action string `json:"action"`           // "read", "select", "function", "pragma", …
	Object string `json:"object,omitempty"` // table.column, function, pragma
}

// Explain decides about a statement and does not run it.
func (g *Guard) Explain(ctx context.Context, sql string) (decision Decision, err error) {
	err = g.with(ctx, func(r runner) error {
		decision, err = r.explain(ctx, sql, g.policy.Limits)
		return err
	})
	return decision, err
}

// Schema reads the tables and views.
func (g *Guard) Schema(ctx context.Context, options SchemaOptions) (schema Schema, err error) {
	err = g.with(ctx, func(r runner) error {
		schema, err = r.schema(ctx, options, g.policy.Limits)
		return err
	})
	return schema, err
}

// Close releases the database; workers of its own are stopped. It may be called twice.
func (g *Guard) Close() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.ref == nil {
		return nil
	}
	g.source.forget(g.ref)
	g.ref = nil
	var err error
	if g.ownSource {
		err = g.source.Close()
	}
	g.file.remove()
	return err
}
