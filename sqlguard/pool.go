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
	size int // workers that are ready for statements, or busy with one that is not slow yet

	mu      sync.Mutex
	ready   int       // workers that count towards size: starting, idle, busy and not set aside
	total   int       // all workers
	idle    []*worker // the last one was used last
	reserve []*worker // idle beyond size, to take the place of the next one that is set aside
	aside   map[*worker]bool
	waiting []chan lent
	closed  bool
}

// lent is what a waiting caller gets: a worker, or why there is none.
type lent struct {
	worker *worker
	err    error
}

// ErrClosed is returned by what was closed.
var ErrClosed = errors.New("sqlguard: closed")

const (
	// slowAfter is when a running statement gives its place in the pool to a further worker, and its priority when others wait.
	// Most statements are over long before.
	slowAfter = 20 * time.Millisecond

	// maxAside bounds the workers beyond size: slow ones and those that sessions hold.
	maxAside = 32

	// maxReserve bounds the idle workers beyond size.
	maxReserve = 4

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
	p.refill()
	return p, nil
}

// Open is [Open] on the workers of the pool. Closing the Guard leaves the pool running.
func (p *Pool) Open(ctx context.Context, path string, policy Policy) (*Guard, error) {
	return openGuard(ctx, path, policy, p)
}

// Close stops the workers; statements under way fail. It may be called twice.
func (p *Pool) Close() error {
	p.mu.Lock()
	idle, waiting := slices.Concat(p.idle, p.reserve), p.waiting
	p.idle, p.reserve, p.waiting, p.closed = nil, nil, nil, true
	p.mu.Unlock()
	for _, ch := range waiting {
		ch <- lent{err: ErrClosed}
	}
	for _, w := range idle {
		w.process.stop()
	}
	return nil
}

// refill takes workers from the reserve, or starts them, until size of them are ready or coming; p.mu is held.
func (p *Pool) refill() {
	for !p.closed && p.ready < p.size {
		if n := len(p.reserve); n > 0 {
			w := p.reserve[n-1]
			p.reserve = p.reserve[:n-1]
			p.ready++
			p.handOver(w)
		} else if p.total < p.size+maxAside {
			p.ready++
			p.total++
			go p.start()
		} else {
			return
		}
	}
}

// start brings one worker in, already counted.
func (p *Pool) start() {
	w, err := startWorker()
	if err != nil {
		p.mu.Lock()
		p.ready--
		p.total--
		waiting := p.waiting
		p.waiting = nil
		p.mu.Unlock()
		for _, ch := range waiting {
			ch <- lent{err: err}
		}
		return
	}
	go func() {
		<-w.process.exited
		p.exited(w)
	}()
	p.mu.Lock()
	defer p.mu.Unlock()
	p.handOver(w)
}

// handOver gives a worker that counts as ready to whoever waits longest, or lets it idle; p.mu is held.
func (p *Pool) handOver(w *worker) {
	switch {
	case p.closed:
		p.ready--
		p.total--
		go w.process.stop()
	case len(p.waiting) > 0:
		p.waiting[0] <- lent{worker: w}
		p.waiting = p.waiting[1:]
	default:
		p.idle = append(p.idle, w)
	}
}

// exited forgets a worker that ended while idle and starts another.
func (p *Pool) exited(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.idle, w); i >= 0 {
		p.idle = slices.Delete(p.idle, i, i+1)
		p.ready--
	} else if i := slices.Index(p.reserve, w); i >= 0 {
		p.reserve = slices.Delete(p.reserve, i, i+1)
	} else {
		return // busy: who uses it notices
	}
	p.total--
	go w.process.stop()
	p.refill()
}

// take waits for a worker, best one that has the database open.
func (p *Pool) take(ctx context.Context, db uint32) (*worker, error) {
	p.mu.Lock()
	if p.closed {
		p.mu.Unlock()
		return nil, ErrClosed
	}
	if n := len(p.idle); n > 0 {
		i := n - 1
		for j, w := range p.idle {
			if w.has(db) {
				i = j
			}
		}
		w := p.idle[i]
		p.idle = slices.Delete(p.idle, i, i+1)
		p.mu.Unlock()
		return w, nil
	}
	ch := make(chan lent, 1)
	p.waiting = append(p.waiting, ch)
	p.refill()
	p.yield()
	p.mu.Unlock()
	select {
	case l := <-ch:
		return l.worker, l.err
	case <-ctx.Done():
		p.stopWaiting(ch)
		return nil, ctx.Err()
	}
}

func (p *Pool) stopWaiting(ch chan lent) {
	p.mu.Lock()
	i := slices.Index(p.waiting, ch)
	if i >= 0 {
		p.waiting = slices.Delete(p.waiting, i, i+1)
	}
	p.mu.Unlock()
	if i < 0 { // it was served meanwhile
		if l := <-ch; l.worker != nil {
			p.giveBack(l.worker)
		}
	}
}

// setAside lets a further worker take this one's place among the ready ones: its statement is slow, or a session holds it.
func (p *Pool) setAside(w *worker) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.aside[w] {
		p.aside[w] = true
		p.ready--
		p.refill()
	}
	if len(p.waiting) > 0 {
		p.yield()
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
	if p.aside[w] {
		delete(p.aside, w)
	} else {
		p.ready--
	}
	switch {
	case w.dead || w.served >= recycleAfter || p.closed:
	case p.ready < p.size:
		p.ready++
		p.handOver(w)
		return
	case len(p.reserve) < maxReserve:
		p.reserve = append(p.reserve, w)
		return
	}
	p.total--
	p.refill()
	go w.process.stop()
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
			return &workerRunner{pool: p, worker: w, db: ref.id}, nil
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
	if err == nil {
		p.setAside(r.(*workerRunner).worker)
	}
	return r, err
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
	for _, w := range slices.Concat(p.idle, p.reserve) {
		w.closeDatabase(ref.id)
	}
}
