package sched

import (
	"context"
	"log/slog"
	"slices"
)

// minKept is the fewest tokens worth a sequence of their own: a shared prefix is put aside when it is at least this much
// longer than what is held already.
const minKept = 16

// admitMargin is how many tokens each lane is expected to generate before another ends: room that admission leaves free,
// so that a new lane does not push out the one before.
const admitMargin = 16

// admit gives free lanes to waiting jobs. It does so only after something has changed that could let one in.
func (s *Scheduler) admit() error {
	if !s.changed {
		return nil
	}
	s.changed = false
	var failed error
	s.waiting.each(func(j *job) bool {
		if s.running == s.cfg.Lanes {
			return false
		}
		from := s.bestStart(j)
		if s.sharedIsBeingRead(j, from.n) {
			return true // the others behind it need not wait
		}
		if s.mem.tooLong(j) {
			s.waiting.remove(j)
			s.finish(j, ContextFull, nil)
			return true
		}
		if s.running > 0 && !s.hasRoom(j, from) {
			return false // nor may others pass it: they would take its room again and again
		}
		bounds := s.bounds(j, from.n)
		s.waiting.remove(j)
		failed = s.start(j, from, bounds)
		return failed == nil
	})
	return failed
}

// tooLong says that a prompt can never be read.
func (m *memory) tooLong(j *job) bool { return len(j.tokens) > m.caps.SeqTokens }

// bestStart finds the longest part of j's prompt that is in memory, held or in a lane.
func (s *Scheduler) bestStart(j *job) match {
	best := s.held.longest(j.readable(), s.mem.caps)
	if !s.mem.caps.TrimAny {
		return best
	}
	for q := range s.lanes {
		if n := commonPrefix(q.tokens, j.readable()); n > best.n {
			best = match{q, n}
		}
	}
	return best
}

// sharedIsBeingRead says whether a lane is reading a prefix of j's prompt that it will put aside, longer than the n
// tokens that are there already: then it is worth waiting for, since it would be read twice otherwise.
func (s *Scheduler) sharedIsBeingRead(j *job, n int) bool {
	for q := range s.lanes {
		for _, b := range q.job.bounds {
			if b >= n+minKept && b < len(j.tokens) && commonPrefix(q.job.tokens[:b], j.tokens) == b {
				return true
			}
		}
	}
	return false
}

// bounds returns the lengths of j's prompt, beyond the n tokens it starts from, at which to keep a copy: where the
// caller marked a shared prefix, and where prompts that wait part from it. What part of a prompt is in memory but cannot
// be cut out was not foreseen as shared; it is kept this time.
func (s *Scheduler) bounds(j *job, n int) []int {
	at := []int{j.PrefixLen}
	s.waiting.prefixes.walk(j.readable(), func(node *radixNode[*job]) {
		if node.below > 1 {
			at = append(at, node.depth)
		}
	})
	shared, _ := s.held.tree.walk(j.readable(), nil)
	at = append(at, shared)
	for q := range s.lanes {
		at = append(at, commonPrefix(q.tokens, j.readable()))
	}
	slices.Sort(at)
	return slices.DeleteFunc(at, func(b int) bool {
		if b < n+minKept || b >= len(j.tokens) {
			return true
		}
		n = b
		return false
	})
}

// hasRoom says whether j can be read, and all lanes go on for a while, in what is free or held by sequences at rest. In
// deterministic mode it reserves all that the lanes may ever need, so that none is preempted.
func (s *Scheduler) hasRoom(j *job, from match) bool {
	need := s.growth(j, from.n)
	s.mem.cells.newCount()
	inUse := 0
	if from.seq != nil {
		inUse += s.mem.cells.reach(from.seq.last)
	}
	for q := range s.lanes {
		inUse += s.mem.cells.reach(q.last)
		need += s.growth(q.job, len(q.tokens))
	}
	return inUse+need <= s.mem.cells.total
}

// growth is the number of tokens that a job, of which n are in memory, will still put there: in deterministic mode at
// most, otherwise before long.
func (s *Scheduler) growth(j *job, n int) int {
	left := j.MaxTokens - j.generated
	if !s.cfg.Deterministic {
		left = min(left, admitMargin)
	}
	return min(len(j.tokens)+left, s.mem.caps.SeqTokens) - n
}

// start seats j in a lane: in the sequence of its last turn, in a copy of what is held, or in an empty one.
func (s *Scheduler) start(j *job, from match, bounds []int) error {
	q, err := s.seat(j, &from)
	if err != nil {
		s.finish(j, Failed, err)
		return err
	}
	q.tokens = j.tokens[:from.n] // the same tokens, in the list that now goes on
	q.job, q.kept = j, false
	q.usedAt = s.tick()
	j.bounds = bounds
	j.seated = q.usedAt
	j.Sampler.Bind(q.id)
	s.running++
	s.admitted(j, q, from)
	return nil
}

// seat finds the sequence for j and makes it hold the first from.n tokens of its prompt. It changes from where less can
// be had than was found.
func (s *Scheduler) seat(j *job, from *match) (*sequence, error) {
	if from.seq != nil && from.seq.job == nil && s.mayContinue(*from) {
		return s.continueIn(from)
	}
	q, err := s.claim(s.mem.firstEmpty(), from.seq)
	if err != nil {
		return nil, err
	}
	if q == nil { // no other sequence can be had: give up the source by going on in it
		return s.continueIn(from)
	}
	if from.seq == nil {
		s.stats.Misses++
		return q, nil
	}
	s.stats.Forked++
	from.seq.usedAt = s.tick()
	if err := s.mem.fork(q, from.seq); err != nil {
		return nil, err
	}
	return q, s.cut(q, from)
}

// mayContinue says whether a request can take over the held sequence it starts from: a conversation's next turn does. A
// kept prefix stays for others, and so does what another waiting request begins with too, or a tail that would be lost.
func (s *Scheduler) mayContinue(from match) bool {
	if from.seq.kept {
		return false
	}
	if !from.whole() {
		return !s.mem.caps.TrimAny // such a memory cannot cut a copy either: longest has seen to it that this tail can go
	}
	wanted := 0
	shared, node := s.waiting.prefixes.walk(from.seq.tokens, nil)
	if shared == from.n {
		wanted = node.below
	}
	return wanted == 0 // start has taken the request itself from the queue
}

// continueIn goes on in the sequence that holds the start, cut to what is common.
func (s *Scheduler) continueIn(from *match) (*sequence, error) {
	s.stats.Continued++
	s.held.remove(from.seq)
	return from.seq, s.cut(from.seq, from)
}

// cut trims q to the common part. A memory that refuses has its reasons; the prompt is then read from its beginning.
func (s *Scheduler) cut(q *sequence, from *match) error {
	ok, err := s.mem.trim(q, from.n)
	if err != nil || ok {
		return err
	}
	s.log.Debug("the memory did not cut a sequence; reading its prompt anew", "sequence", q.id, "tokens", len(q.tokens), "to", from.n)
	from.n = 0
	return s.mem.clear(q)
}

// admitted counts and logs where a request started from.
func (s *Scheduler) admitted(j *job, q *sequence, from match) {
	first := j.generated == 0 && j.stream.Result().Preempted == 0
	if first {
		s.stats.PromptTokens += len(j.tokens)
		s.stats.PrefixHits += from.n
		j.stream.update(func(r *Result) { r.Cached = from.n })
	}
	if s.log.Enabled(context.Background(), slog.LevelDebug) {
		s.log.Debug("admitted", "sequence", q.id, "prompt", len(j.tokens), "in memory", from.n, "keep at", j.bounds, "again", !first)
	}
}
