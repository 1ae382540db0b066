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

// Workers counts the workers of the pool.
func (p *Pool) Workers() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.idle) + p.active + len(p.aside)
}

// PoolOf is the pool of a guard.
func PoolOf(g *Guard) *Pool { return g.source.(*Pool) }

// FileURI is fileURI.
func FileURI(path, goos, query string) string { return fileURI(path, goos, query) }
