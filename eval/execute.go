package eval

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"sync"
	"time"

	"quern/sqlguard"
)

// Deadlines bound executions. Gold queries have a long one of their own: a gold that is slow here is no reason to call a
// prediction wrong.
type Deadlines struct {
	Prediction time.Duration // default 30 s
	Gold       time.Duration // default 300 s
}

// OrDefault fills in the defaults for what is not set.
func (d Deadlines) OrDefault() Deadlines {
	if d.Prediction <= 0 {
		d.Prediction = sqlguard.EvalPolicy().Limits.Timeout
	}
	if d.Gold <= 0 {
		d.Gold = sqlguard.GoldPolicy().Limits.Timeout
	}
	return d
}

// Executor runs gold and predicted statements in guarded worker processes, which all databases share. Gold results are
// computed once and kept. It may be used from several goroutines.
type Executor struct {
	pool      *sqlguard.Pool
	deadlines Deadlines

	mu     sync.Mutex
	guards map[string]*sqlguard.Guard // by policy name and path
	gold   map[string]*goldResult     // by database and hash of the query
}

type goldResult struct {
	once   sync.Once
	result sqlguard.Result
	err    error
}

// NewExecutor starts up to workers worker processes (0: one per CPU). The process must call sqlguard.RunWorker first thing.
func NewExecutor(workers int, deadlines Deadlines) (*Executor, error) {
	pool, err := sqlguard.NewPool(workers)
	if err != nil {
		return nil, err
	}
	return &Executor{pool: pool, deadlines: deadlines.OrDefault(),
		guards: map[string]*sqlguard.Guard{}, gold: map[string]*goldResult{}}, nil
}

// Close stops the workers. It may be called twice.
func (x *Executor) Close() error {
	x.mu.Lock()
	defer x.mu.Unlock()
	for _, guard := range x.guards {
		guard.Close()
	}
	clear(x.guards)
	return x.pool.Close()
}

// Deadlines are those the executor was made with, defaults filled in.
func (x *Executor) Deadlines() Deadlines { return x.deadlines }

// Query runs a prediction read-only. What goes wrong with the statement is in the result; a worker that died on it is
// tried once more, since another program may have stopped it.
func (x *Executor) Query(ctx context.Context, path, sql string) (sqlguard.Result, error) {
	policy := sqlguard.EvalPolicy()
	policy.Limits.Timeout = x.deadlines.Prediction
	return x.query(ctx, "prediction", path, sql, policy)
}

// Gold runs a benchmark's own statement read-only, once for each database and text.
func (x *Executor) Gold(ctx context.Context, path, sql string) (sqlguard.Result, error) {
	return x.cached(ctx, "gold", path, sql, sqlguard.GoldPolicy())
}

// GoldReversed is Gold with rows visited the other way round wherever the query leaves their order open: a result that
// differs from Gold's depends on ties.
func (x *Executor) GoldReversed(ctx context.Context, path, sql string) (sqlguard.Result, error) {
	policy := sqlguard.GoldPolicy()
	policy.ReverseScanOrder = true
	return x.cached(ctx, "reversed", path, sql, policy)
}

func (x *Executor) cached(ctx context.Context, name, path, sql string, policy sqlguard.Policy) (sqlguard.Result, error) {
	hash := sha256.Sum256([]byte(sql))
	key := name + "\x00" + path + "\x00" + hex.EncodeToString(hash[:])
	x.mu.Lock()
	entry := x.gold[key]
	if entry == nil {
		entry = &goldResult{}
		x.gold[key] = entry
	}
	x.mu.Unlock()
	entry.once.Do(func() {
		policy.Limits.Timeout = x.deadlines.Gold
		entry.result, entry.err = x.query(ctx, name, path, sql, policy)
	})
	if entry.err != nil { // a cancelled run or a broken worker is no property of the query
		x.mu.Lock()
		if x.gold[key] == entry {
			delete(x.gold, key)
		}
		x.mu.Unlock()
	}
	return entry.result, entry.err
}

func (x *Executor) query(ctx context.Context, name, path, sql string, policy sqlguard.Policy) (sqlguard.Result, error) {
	guard, err := x.guard(ctx, name, path, policy)
	if err != nil {
		return sqlguard.Result{}, err
	}
	result, err := guard.Query(ctx, sql)
	if err == nil && workerDied(result) {
		result, err = guard.Query(ctx, sql)
	}
	return result, err
}

func workerDied(r sqlguard.Result) bool {
	return r.Failure != nil && r.Failure.Kind == sqlguard.WorkerDied
}

// Scratch runs statements in order on one connection that may write, to a private copy of the database: what an official
// script does that lets predictions write. Later statements see what earlier ones wrote; the file is never touched. The
// first statement has the prediction's deadline, the others the gold's.
func (x *Executor) Scratch(ctx context.Context, path string, statements ...string) ([]sqlguard.Result, error) {
	policy := sqlguard.ScratchPolicy()
	policy.Limits.Timeout = x.deadlines.Prediction
	guard, err := x.guard(ctx, "scratch", path, policy)
	if err != nil {
		return nil, err
	}
	session, err := guard.Session(ctx)
	if err != nil {
		return nil, err
	}
	defer session.Close()
	limits := policy.Limits
	var results []sqlguard.Result
	for _, sql := range statements {
		result, err := session.QueryLimits(ctx, sql, limits)
		if err != nil {
			return nil, err
		}
		results = append(results, result)
		limits.Timeout = x.deadlines.Gold
	}
	return results, nil
}

func (x *Executor) guard(ctx context.Context, name, path string, policy sqlguard.Policy) (*sqlguard.Guard, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	key := name + "\x00" + path
	if guard := x.guards[key]; guard != nil {
		return guard, nil
	}
	guard, err := x.pool.Open(ctx, path, policy)
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	x.guards[key] = guard
	return guard, nil
}
