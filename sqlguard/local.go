package sqlguard

import (
	"context"
	"sync"
	"time"
)

// localSource lends connections of this process.
type localSource struct {
	mu   sync.Mutex
	idle map[uint32][]*localRunner
}

// maxIdleLocal bounds the connections kept for a database.
const maxIdleLocal = 4

func newLocalSource() *localSource { return &localSource{idle: map[uint32][]*localRunner{}} }

func (s *localSource) lend(_ context.Context, ref *dbRef) (runner, error) {
	s.mu.Lock()
	if n := len(s.idle[ref.id]); n > 0 {
		r := s.idle[ref.id][n-1]
		s.idle[ref.id] = s.idle[ref.id][:n-1]
		s.mu.Unlock()
		return r, nil
	}
	s.mu.Unlock()
	db, err := openDatabase(ref.spec)
	if err != nil {
		return nil, err
	}
	return &localRunner{db: db, id: ref.id}, nil
}

func (s *localSource) takeBack(r runner) {
	lr := r.(*localRunner)
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.idle[lr.id]) < maxIdleLocal {
		s.idle[lr.id] = append(s.idle[lr.id], lr)
	} else {
		lr.db.close()
	}
}

func (s *localSource) pin(ctx context.Context, ref *dbRef) (runner, error) { return s.lend(ctx, ref) }

func (s *localSource) unpin(r runner) { r.(*localRunner).db.close() }

func (s *localSource) forget(ref *dbRef) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, r := range s.idle[ref.id] {
		r.db.close()
	}
	delete(s.idle, ref.id)
}

func (s *localSource) Close() error { return nil }

// localRunner is a connection of this process.
type localRunner struct {
	db *database
	id uint32
}

// cancelEvery repeats a cancellation, which may fall between two steps that clear it.
const cancelEvery = 20 * time.Millisecond

// cancelling stops the statement when ctx ends, until the function it returns is called.
func (r *localRunner) cancelling(ctx context.Context) (done func()) {
	finished := make(chan struct{})
	stop := onDone(ctx, func() {
		for {
			r.db.cancel()
			select {
			case <-finished:
				return
			case <-time.After(cancelEvery):
			}
		}
	})
	return func() {
		close(finished)
		stop()
	}
}

func (r *localRunner) query(ctx context.Context, sql string, l Limits) (Result, error) {
	defer r.cancelling(ctx)()
	var result Result
	o, err := r.db.run(sql, l, (*localEmitter)(&result))
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Result{}, err
	}
	result.finish(o)
	return result, nil
}

// localEmitter collects a result.
type localEmitter Result

func (e *localEmitter) copying(bool) error { return nil }

func (e *localEmitter) columns(columns []Column) error {
	e.Columns = columns
	return nil
}

func (e *localEmitter) rows(rows int, packed []byte) error {
	values, err := unpackRows(string(packed), rows, len(e.Columns))
	e.Rows = append(e.Rows, values...)
	return err
}

func (r *localRunner) explain(ctx context.Context, sql string, l Limits) (Decision, error) {
	return r.db.explain(sql, l, &localEmitter{})
}

func (r *localRunner) schema(ctx context.Context, o SchemaOptions, l Limits) (Schema, error) {
	defer r.cancelling(ctx)()
	return r.db.schema(o, l)
}

func (r *localRunner) begin(ctx context.Context, l Limits) error {
	r.db.setLimits(l)
	return r.db.begin(&localEmitter{})
}

func (r *localRunner) rollback(ctx context.Context, l Limits) error { return r.db.rollback() }

func (r *localRunner) reset(ctx context.Context, l Limits) error {
	r.db.reset()
	return nil
}

func (r *localRunner) lost() bool { return false }
