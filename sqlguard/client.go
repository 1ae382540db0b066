package sqlguard

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"
	"unsafe"

	"quern/sqlguard/internal/sqlite"
)

// killGrace is how long after its deadline a worker may still answer by itself before it is killed.
const killGrace = 250 * time.Millisecond

// Patience for what is not a model's statement.
const (
	startTimeout = 30 * time.Second // a worker's first word, on a machine that is busy
	openTimeout  = 30 * time.Second // opening a database
	copyTimeout  = 5 * time.Minute  // making a private copy
)

// worker is the parent's side of the exchange with one process: one request at a time.
type worker struct {
	process *process
	out     *bufio.Writer
	in      *bufio.Reader
	opened  []uint32 // databases open there, the last one was used last
	number  uint64   // of the last request that can be cancelled
	served  int
	dead    bool
	loan    uint64 // counts how often it was given back; guarded by Pool.mu, and constant while lent

	controlMu sync.Mutex
	busy      uint64 // number of the request at hand, 0: none
	lowered   bool   // its priority
}

var (
	errWorkerGone   = errors.New("sqlguard: the worker has ended")
	errWorkerKilled = errors.New("sqlguard: the worker overran and was killed")
)

func startWorker() (*worker, error) {
	p, err := startProcess()
	if err != nil {
		return nil, err
	}
	w := &worker{process: p, out: bufio.NewWriter(p.requests), in: bufio.NewReaderSize(p.replies, 64<<10)}
	p.replies.SetReadDeadline(time.Now().Add(startTimeout))
	kind, payload, err := readFrame(w.in, maxFrame)
	if err == nil && (kind != repReady || len(payload) != 1 || payload[0] != protocolVersion) {
		err = errFrame
	}
	if err != nil {
		p.stop()
		return nil, fmt.Errorf("sqlguard: the worker did not start (%s): does main, or TestMain, call sqlguard.RunWorker first?", p.end())
	}
	return w, nil
}

func (w *worker) has(db uint32) bool { return slices.Contains(w.opened, db) }

// open makes sure that the database is open there, and closes the one not used for longest where there are too many.
func (w *worker) open(ctx context.Context, ref *dbRef) error {
	if i := slices.Index(w.opened, ref.id); i >= 0 {
		w.opened = append(slices.Delete(w.opened, i, i+1), ref.id)
		return nil
	}
	if len(w.opened) >= maxOpen {
		w.closeDatabase(w.opened[0])
	}
	if err := w.call(ctx, reqOpen, openTimeout, nil, appendUint32(nil, ref.id), encode(ref.spec)); err != nil {
		return err
	}
	w.opened = append(w.opened, ref.id)
	return nil
}

// closeDatabase closes the database there, if it is open.
func (w *worker) closeDatabase(db uint32) {
	i := slices.Index(w.opened, db)
	if i < 0 || w.dead {
		return
	}
	w.opened = slices.Delete(w.opened, i, i+1)
	if writeFrame(w.out, reqClose, appendUint32(nil, db)) != nil || w.out.Flush() != nil {
		w.dead = true // noticed by whoever asks next
	}
}

// call sends a request and hands the replies before the last to each. A worker that has not answered killGrace after the
// timeout is killed: errWorkerKilled. One that was dead before it could read the request: errWorkerGone.
func (w *worker) call(ctx context.Context, kind byte, timeout time.Duration, each func(kind byte, payload []byte) error, request ...[]byte) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if w.dead {
		return errWorkerGone
	}
	w.served++
	w.number++
	err := writeFrame(w.out, kind, request...)
	if err == nil {
		err = w.out.Flush()
	}
	if err != nil {
		w.dead = true
		return errWorkerGone
	}
	w.expect(timeout + killGrace)
	w.atWork(w.number)
	defer w.atWork(0)
	defer onDone(ctx, w.cancel)()
	err = w.replies(timeout, each)
	if ctx.Err() != nil && (err == nil || isRemote(err)) {
		return ctx.Err()
	}
	if err == nil || isRemote(err) {
		return err
	}
	w.dead = true
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = errWorkerKilled
	}
	w.process.stop()
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// isDeath says that the worker ended before it answered.
func isDeath(err error) bool {
	return errors.Is(err, errWorkerGone) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

func isRemote(err error) bool {
	var remote *remoteError
	return errors.As(err, &remote)
}

func (w *worker) expect(d time.Duration) { w.process.replies.SetReadDeadline(time.Now().Add(d)) }

// onDone calls f when ctx ends, unless the function it returns is called before, which also waits for an f under way.
func onDone(ctx context.Context, f func()) (stop func()) {
	over := make(chan struct{})
	unregister := context.AfterFunc(ctx, func() {
		defer close(over)
		f()
	})
	return func() {
		if !unregister() {
			<-over
		}
	}
}

// atWork notes which request control messages are about.
func (w *worker) atWork(number uint64) {
	w.controlMu.Lock()
	defer w.controlMu.Unlock()
	w.busy, w.lowered = number, false
}

// tell sends a control message about the request at hand. One that comes late finds another number there.
func (w *worker) tell(what byte) {
	w.process.control.Write(binary.LittleEndian.AppendUint64([]byte{what}, w.busy))
}

// cancel asks the worker to stop the request at hand, and leaves it little time.
func (w *worker) cancel() {
	w.controlMu.Lock()
	defer w.controlMu.Unlock()
	w.tell(ctlCancel)
	w.expect(killGrace)
}

// lowerPriority lets the request at hand, if there is one, yield to everyone else's.
func (w *worker) lowerPriority() {
	w.controlMu.Lock()
	defer w.controlMu.Unlock()
	if w.busy != 0 && !w.lowered {
		w.lowered = true
		w.tell(ctlLower)
	}
}

func (w *worker) replies(timeout time.Duration, each func(byte, []byte) error) error {
	for {
		kind, payload, err := readFrame(w.in, 1<<31)
		switch {
		case err != nil:
			return err
		case kind == repError:
			remote := &remoteError{}
			if err := decode(payload, remote); err != nil {
				return err
			}
			return remote
		case kind == repCopying && len(payload) == 1:
			if payload[0] == 1 {
				w.expect(copyTimeout)
			} else {
				w.expect(timeout + killGrace)
			}
		default:
			if each != nil {
				if err := each(kind, payload); err != nil {
					return err
				}
			}
			if kind == repEnd {
				return nil
			}
		}
	}
}

// workerRunner is a connection to one database on one worker.
type workerRunner struct {
	pool   *Pool
	worker *worker
	loan   uint64
	db     uint32
}

// statement calls with the limits, and turns a worker's death into a Failure.
func (r *workerRunner) statement(ctx context.Context, kind byte, l Limits, each func(byte, []byte) error, payload []byte) (*Failure, error) {
	slow := time.AfterFunc(slowAfter, func() { r.pool.setAside(r.worker, r.loan) })
	defer slow.Stop()
	err := r.worker.call(ctx, kind, l.Timeout, each, appendLimits(appendUint32(nil, r.db), l), payload)
	switch {
	case err == nil:
		return nil, nil
	case errors.Is(err, errWorkerKilled):
		return timedOut(l), nil
	case ctx.Err() != nil, errors.Is(err, errWorkerGone):
		return nil, err
	case isDeath(err):
		return &Failure{Kind: WorkerDied, Message: "the worker process died while it ran the query (" + r.worker.process.end() + ")",
			Hint: "the database file may be damaged"}, nil
	}
	return nil, err
}

func (r *workerRunner) query(ctx context.Context, sql string, l Limits) (Result, error) {
	start := time.Now()
	var result Result
	failure, err := r.statement(ctx, reqQuery, l, func(kind byte, payload []byte) error {
		return result.add(kind, payload)
	}, unsafe.Slice(unsafe.StringData(sql), len(sql)))
	if err != nil {
		return Result{}, err
	}
	if failure != nil {
		result = Result{Failure: failure, Elapsed: time.Since(start)}
	}
	return result, nil
}

// add takes one reply into the result.
func (r *Result) add(kind byte, payload []byte) error {
	switch kind {
	case repColumns:
		columns, err := parseColumns(payload)
		r.Columns = columns
		return err
	case repRows:
		n, packed, err := cutUint32(payload)
		if err != nil {
			return err
		}
		rows, err := unpackRows(unsafe.String(unsafe.SliceData(packed), len(packed)), int(n), len(r.Columns))
		r.Rows = append(r.Rows, rows...)
		return err
	case repEnd:
		o, err := parseOutcome(payload)
		if err != nil {
			return err
		}
		r.finish(o)
		return nil
	}
	return errFrame
}

// finish applies how the statement ended: a failure leaves no rows.
func (r *Result) finish(o outcome) {
	r.Truncated, r.Elapsed, r.Failure = o.Truncated, o.Elapsed, o.Failure
	if o.Failure != nil {
		r.Columns, r.Rows = nil, nil
	}
}

func (r *workerRunner) explain(ctx context.Context, sql string, l Limits) (Decision, error) {
	var decision Decision
	failure, err := r.statement(ctx, reqExplain, l, into(&decision), []byte(sql))
	if failure != nil {
		decision = Decision{Failure: failure}
	}
	return decision, err
}

func (r *workerRunner) schema(ctx context.Context, o SchemaOptions, l Limits) (Schema, error) {
	var schema Schema
	failure, err := r.statement(ctx, reqSchema, l, into(&schema), encode(o))
	if failure != nil {
		err = errors.New("sqlguard: schema: " + failure.Message)
	}
	return schema, err
}

// into decodes the one reply before the end.
func into(v any) func(byte, []byte) error {
	return func(kind byte, payload []byte) error {
		switch kind {
		case repGob:
			return decode(payload, v)
		case repEnd:
			return nil
		}
		return errFrame
	}
}

func (r *workerRunner) begin(ctx context.Context, l Limits) error {
	return r.command(ctx, reqBegin, l)
}

func (r *workerRunner) rollback(ctx context.Context, l Limits) error {
	return r.command(ctx, reqRollback, l)
}

func (r *workerRunner) reset(ctx context.Context, l Limits) error {
	return r.command(ctx, reqReset, l)
}

func (r *workerRunner) command(ctx context.Context, kind byte, l Limits) error {
	failure, err := r.statement(ctx, kind, l, nil, nil)
	if failure != nil {
		err = errors.New("sqlguard: " + failure.Message)
	}
	return err
}

func (r *workerRunner) lost() bool { return r.worker.dead }

// openError words an error of opening a database.
func openError(path string, err error) error {
	var e *sqlite.Error
	var remote *remoteError
	switch {
	case errors.As(err, &e):
	case errors.As(err, &remote):
		e = &sqlite.Error{Code: remote.Code, Message: remote.Message}
	case errors.Is(err, errWorkerKilled):
		return &OpenError{path, "reading its schema took too long", "the file may be damaged", err}
	case isDeath(err):
		return &OpenError{path, "the worker process died reading it", "the file is damaged", err}
	default:
		return err
	}
	problem := &OpenError{Path: path, Problem: e.Message, Err: e}
	switch {
	case e.Code == sqlite.CodeReadOnlyRollback:
		problem.Problem, problem.Hint = "it has an unfinished transaction (file -journal)", hotJournalHint
	case e.Primary() == sqlite.CodeBusy:
		problem.Hint = "another program holds the database; try again when it is done"
	case e.Primary() == sqlite.CodeCorrupt, e.Primary() == sqlite.CodeNotADB:
		problem.Hint = "the file is damaged: restore a copy, or try the .recover command of SQLite's shell"
	}
	return problem
}
