package sqlguard

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// Pool is a set of worker processes that guards of many databases share.
type Pool struct {
	size int // statements at a time, slow ones apart

	mu       sync.Mutex
	idle     []*worker // the last one was used last
	active   int       // busy, not set aside
	aside    map[*worker]bool
	starting int
	failed   int        // starts that failed one after another
	waiting  []*request // in order of arrival
	closed   bool
}

// request is a caller that waits for a worker, best one that has its database open.
type request struct {
	db     uint32
	answer chan lent
}

// lent is a worker, or why there is none.
type lent struct {
	worker *worker
	err    error
}

// ErrClosed is returned by what was closed.
var ErrClosed = errors.New("sqlguard: closed")

const (
	// slowAfter is when a running statement gives its place in the pool to a further worker, and its priority when others wait.
	// Most statements are over long before.
	slowAfter = 10 * time.Millisecond

	// maxAside bounds the workers beyond size: slow ones and those that sessions hold.
	maxAside = 32

	// maxReserve bounds the workers that stand by to replace slow ones.
	maxReserve = 4

	// maxFailedStarts is when those who wait for a worker are told that none can be started.
	maxFailedStarts = 3

	// recycleAfter bounds the statements a worker runs before a fresh one takes its place.
	recycleAfter = 20_000

	// maxOpen bounds the databases a worker keeps open.
	maxOpen = 64
)

// NewPool starts a pool that runs up to workers statements at a time (0: one per CPU). Statements that turn out
// slow do not count: they are set aside, at low priority while others wait, and a further worker takes their place.
func NewPool(workers int) (*Pool, error) {
	if workers < 0 {
		return nil, fmt.Errorf("sqlguard: a pool of %d workers", workers)
	}
	if workers == 0 {
		workers = runtime.NumCPU()
	}
	p := &Pool{size: workers, aside: map[*worker]bool{}}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.balance()
	return p, nil
}

// Open is [Open] on the workers of the pool. Closing the Guard leaves the pool running.
func (p *Pool) Open(ctx context.Context, path string, policy Policy) (*Guard, error) {
	return openGuard(ctx, path, policy, p)
}

// Close stops the workers; those at work end with their statements. It may be called twice.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle := p.idle
	p.idle, p.closed = nil, true
	p.fail(ErrClosed)
	p.mu.Unlock()
	for _, w := range idle {
		w.process.stop()
	}
	return nil
}

// fail answers all who wait; p.mu is held.
func (p *Pool) fail(err error) {
	for _, r := range p.waiting {
		r.answer <- lent{err: err}
	}
	p.waiting = nil
}

// balance starts workers that are missing and hands idle ones to those who wait; p.mu is held.
func (p *Pool) balance() {
	if p.closed {
		return
	}
	// A slow statement's place is taken at once where another worker stands by.
	want := p.size + min(len(p.aside), maxReserve)
	for len(p.idle)+p.active+p.starting < want && len(p.idle)+p.active+p.starting+len(p.aside) < p.size+maxAside {
		p.starting++
		go p.start()
	}
	for len(p.waiting) > 0 && len(p.idle) > 0 && p.active < p.size {
		r := p.waiting[0]
		p.waiting = p.waiting[1:]
		p.active++
		r.answer <- lent{worker: p.takeIdle(r.db)}
	}
	if len(p.waiting) > 0 {
		p.yield()
	}
}

// takeIdle removes an idle worker, one that has the database open or the one used last; p.mu is held.
func (p *Pool) takeIdle(db uint32) *worker {
	i := len(p.idle) - 1
	for j, w := range p.idle {
		if w.has(db) {
			i = j
		}
	}
	w := p.idle[i]
	p.idle = slices.Delete(p.idle, i, i+1)
	return w
}

// start brings in one worker, counted as starting.
func (p *Pool) start() {
	w, err := startWorker()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.starting--
	switch {
	case err != nil:
		if p.failed++; p.failed < maxFailedStarts { // something else may have ended it
			p.balance()
		} else {
			p.failed = 0
			p.fail(err)
		}
	case p.closed:
		go w.process.stop()
	default:
		p.failed = 0
		go p.watch(w)
		p.idle = append(p.idle, w)
		p.balance()
	}
}

// watch forgets a worker that ends while idle; who uses one that ends notices.
func (p *Pool) watch(w *worker) {
	<-w.process.exited
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, w); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		go w.process.stop()
		p.balance()
	}
}

// take waits for a worker.
func (p *Pool) take(ctx context.Context, db uint32) (*worker, error) {
	r := &request{db, make(chan lent, 1)}
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	p.waiting = append(p.waiting, r)
	p.balance()
	p.mu.Unlock()
	select {
	case l := <-r.answer:
		return l.worker, l.err
	case <-ctx.Done():
		p.stopWaiting(r)
		return nil, ctx.Err()
	}
}

func (p *Pool) stopWaiting(r *request) {
	p.mu.Lock()
	i := slices.Index(p.waiting, r)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it was answered meanwhile
		if l := <-r.answer; l.worker != nil {
			p.giveBack(l.worker)
		}
	}
}

// setAside lets another statement run in this one's place: it is slow, or a session holds the worker. It may come late, when
// that loan of the worker is over.
func (p *Pool) setAside(w *worker, loan uint64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if w.loan == loan && !p.aside[w] {
		p.aside[w] = true
		p.active--
		p.balance()
	}
}

// yield lowers the priority of slow statements, since others wait; p.mu is held. Where nobody waits they keep it: the
// machine may be busy with something else, and their time runs.
func (p *Pool) yield() {
	for w := range p.aside {
		w.lowerPriority()
	}
}

// giveBack returns a worker after use. It is ended when it is dead, worn, or one too many.
func (p *Pool) giveBack(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w.loan++
	if p.aside[w] {
		delete(p.aside, w)
	} else {
		p.active--
	}
	if w.dead || w.served >= recycleAfter || p.closed || len(p.idle)+p.active >= p.size+maxReserve {
		go w.process.stop()
	} else {
		p.idle = append(p.idle, w)
	}
	p.balance()
}

// lend gives a connection to the database on some worker.
func (p *Pool) lend(ctx context.Context, ref *dbRef) (runner, error) {
	for try := 1; ; try++ {
		w, err := p.take(ctx, ref.id)
		if err != nil {
			return nil, err
		}
		err = w.open(ctx, ref)
		if err == nil {
			return &workerRunner{pool: p, worker: w, loan: w.loan, db: ref.id}, nil
		}
		p.giveBack(w)
		if !isDeath(err) || try == 3 { // something else may have ended it
			return nil, err
		}
	}
}

func (p *Pool) takeBack(r runner) { p.giveBack(r.(*workerRunner).worker) }

// pin lends a connection of its own for long: the worker does not count as ready.
func (p *Pool) pin(ctx context.Context, ref *dbRef) (runner, error) {
	r, err := p.lend(ctx, ref)
	if err != nil {
		return nil, err
	}
	wr := r.(*workerRunner)
	p.setAside(wr.worker, wr.loan)
	return r, nil
}

func (p *Pool) unpin(r runner) {
	wr := r.(*workerRunner)
	wr.worker.closeDatabase(wr.db)
	p.takeBack(r)
}

// forget closes the database in the idle workers; the busy ones drop it in time, as one not used for long.
func (p *Pool) forget(ref *dbRef) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, w := range p.idle {
		w.closeDatabase(ref.id)
	}
}
