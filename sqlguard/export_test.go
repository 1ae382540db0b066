package sqlguard

// IdleWorkers are the process ids of the pool's idle workers.
func (p *Pool) IdleWorkers() []int {
	p.mu.Lock()
	defer p.mu.Unlock()
	var pids []int
	for _, w := range p.idle {
		pids = append(pids, w.process.cmd.Process.Pid)
	}
	return pids
}

// Workers counts all workers of the pool, and those that count as ready.
func (p *Pool) Workers() (total, ready int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.total, p.ready
}

// PoolOf is the pool of a guard.
func PoolOf(g *Guard) *Pool { return g.source.(*Pool) }

// FileURI is fileURI.
func FileURI(path, goos, query string) string { return fileURI(path, goos, query) }
