package sched

// claim returns an empty sequence: the one given, or where that is nil the least recently used held one, given up. Spare
// is never given up; nil when there is no other.
func (s *Scheduler) claim(empty, spare *sequence) (*sequence, error) {
	if empty != nil {
		return empty, nil
	}
	q := s.mem.leastRecentlyUsed(spare, false)
	if q == nil {
		return nil, nil
	}
	return q, s.evict(q)
}

// evict gives up a held sequence.
func (s *Scheduler) evict(q *sequence) error {
	s.log.Debug("gave up a held sequence", "sequence", q.id, "tokens", len(q.tokens))
	s.stats.Evictions++
	s.held.remove(q)
	return s.mem.clear(q)
}

// forgetting is a conversation that has ended, and how many tokens of it may be asked for again.
type forgetting struct {
	stream *Stream
	keep   int
}

// forget frees what only an ended conversation holds. Its sequence goes altogether where another holds what is worth
// keeping of it, or, in a memory that cannot cut it there, the best part of that.
func (s *Scheduler) forget(f forgetting) error {
	for i := range s.mem.seqs {
		q := &s.mem.seqs[i]
		if q.ran != f.stream || !q.held() {
			continue
		}
		s.changed = true
		s.held.remove(q)
		wanted := q.tokens[:min(f.keep, len(q.tokens))]
		elsewhere := s.held.longest(wanted, s.caps).n
		if elsewhere == len(wanted) || !s.caps.TrimAny && elsewhere > 0 {
			return s.mem.clear(q)
		}
		if s.caps.TrimAny {
			if _, err := s.mem.trim(q, len(wanted)); err != nil {
				return err
			}
		}
		q.ran = nil
		s.held.add(q)
		return nil
	}
	return nil // another request has gone on in it, or it has been given up already
}

// makeRoom frees cells until there are n, or until one lane is left and holds all there is. Held sequences go first;
// then the youngest lane, whose job waits to be read again. In deterministic mode a lane ends instead: jobs were let in
// with all the room they could need, so this one is alone.
func (s *Scheduler) makeRoom(n int) (done bool, err error) {
	for s.mem.cells.free() < n {
		if q := s.mem.leastRecentlyUsed(nil, true); q != nil {
			if err := s.evict(q); err != nil {
				return false, err
			}
			continue
		}
		return false, s.yieldYoungest()
	}
	return true, nil
}

// yieldYoungest takes the memory of the lane that was seated last: by preemption, or for good where it is the only one.
func (s *Scheduler) yieldYoungest() error {
	var youngest *sequence
	for q := range s.lanes {
		if youngest == nil || q.job.seated > youngest.job.seated {
			youngest = q
		}
	}
	if s.running == 1 || s.cfg.Deterministic {
		s.end(youngest, ContextFull, nil)
		return nil
	}
	s.stats.Preemptions++
	return s.requeue(youngest)
}

// requeue takes a lane's job off its sequence, which is emptied, and puts it before all that wait. Nothing of the job is
// lost: what it has generated is read again together with its prompt.
func (s *Scheduler) requeue(q *sequence) error {
	j := q.job
	s.log.Debug("preempted", "sequence", q.id, "tokens", len(q.tokens))
	s.leave(q)
	j.stream.update(func(r *Result) { r.Preempted++ })
	s.waiting.pushFront(j)
	return s.mem.clear(q)
}
