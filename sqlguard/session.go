package sqlguard

import (
	"context"
	"errors"
	"sync"
)

// Session is one connection: its statements run in order and see what earlier ones wrote to the private copy
// (Policy.Scratch). It holds one worker of the pool until Close.
type Session struct {
	guard *Guard

	mu     sync.Mutex
	runner runner // nil: closed
}

// ErrSessionLost is returned by a Session whose worker died, taking its state along; Reset starts anew.
var ErrSessionLost = errors.New("sqlguard: the session's worker died and its state with it")

// Session pins a connection, waiting for a free worker.
func (g *Guard) Session(ctx context.Context) (*Session, error) {
	r, err := g.pin(ctx)
	if err != nil {
		return nil, err
	}
	return &Session{guard: g, runner: r}, nil
}

func (g *Guard) pin(ctx context.Context) (runner, error) {
	ref, _, err := g.current()
	if err != nil {
		return nil, err
	}
	r, err := g.source.pin(ctx, newRef(ref.spec))
	if err != nil {
		return nil, openError(g.path, err)
	}
	return r, nil
}

// use runs f on the connection, unless it is closed or lost.
func (s *Session) use(f func(runner) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.runner == nil:
		return ErrClosed
	case s.runner.lost():
		return ErrSessionLost
	}
	return f(s.runner)
}

// Query runs one statement under the policy's limits. After a Failure that stopped the worker (TimedOut, WorkerDied) the
// session may be lost: the next call then returns ErrSessionLost.
func (s *Session) Query(ctx context.Context, sql string) (Result, error) {
	return s.QueryLimits(ctx, sql, s.guard.policy.Limits)
}

// QueryLimits is Query with other limits.
func (s *Session) QueryLimits(ctx context.Context, sql string, limits Limits) (result Result, err error) {
	err = s.use(func(r runner) error {
		result, err = r.query(ctx, sql, limits.withDefaults())
		return err
	})
	return result, err
}

// Begin opens a transaction on the private copy.
func (s *Session) Begin(ctx context.Context) error {
	return s.use(func(r runner) error { return r.begin(ctx, s.guard.policy.Limits) })
}

// Rollback undoes the open transaction, if there is one.
func (s *Session) Rollback(ctx context.Context) error {
	return s.use(func(r runner) error { return r.rollback(ctx, s.guard.policy.Limits) })
}

// Reset brings the session back to the file's content, as a new connection to an untouched file, also after ErrSessionLost. It
// costs nothing when no statement wrote.
func (s *Session) Reset(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runner == nil {
		return ErrClosed
	}
	if !s.runner.lost() {
		return s.runner.reset(ctx, s.guard.policy.Limits)
	}
	r, err := s.guard.pin(ctx)
	if err != nil {
		return err
	}
	s.guard.source.unpin(s.runner)
	s.runner = r
	return nil
}

// Close gives the worker back. It may be called twice.
func (s *Session) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.runner != nil {
		s.guard.source.unpin(s.runner)
		s.runner = nil
	}
	return nil
}
