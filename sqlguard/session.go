package sqlguard

import (
	"context"
	"errors"
)

// Session is one connection: its statements run in order and see what earlier ones wrote to the private copy
// (Policy.Scratch). It holds one worker of the pool until Close.
type Session struct{}

// ErrSessionLost is returned by a Session whose worker died, taking its state along; Reset starts anew.
var ErrSessionLost = errors.New("sqlguard: the session's worker died and its state with it")

// Session pins a connection, waiting for a free worker.
func (g *Guard) Session(ctx context.Context) (*Session, error) {
	return nil, errors.New("sqlguard: not implemented")
}

// Query runs one statement under the policy's limits. After a Failure that stopped the worker (TimedOut, WorkerDied) the
// session may be lost: the next call then returns ErrSessionLost.
func (s *Session) Query(ctx context.Context, sql string) (Result, error) {
	return Result{}, errors.New("sqlguard: not implemented")
}

// QueryLimits is Query with other limits.
func (s *Session) QueryLimits(ctx context.Context, sql string, limits Limits) (Result, error) {
	return Result{}, errors.New("sqlguard: not implemented")
}

// Begin opens a transaction on the private copy.
func (s *Session) Begin(ctx context.Context) error { return errors.New("sqlguard: not implemented") }

// Rollback undoes the open transaction, if there is one.
func (s *Session) Rollback(ctx context.Context) error { return errors.New("sqlguard: not implemented") }

// Reset brings the session back to the file's content, as a new connection to an untouched file. It costs nothing when
// no statement wrote.
func (s *Session) Reset(ctx context.Context) error { return errors.New("sqlguard: not implemented") }

// Close gives the worker back. It may be called twice.
func (s *Session) Close() error { return nil }
