package sched

import (
	"errors"
	"time"
)

// kind is what a step does: read one token for every lane that generates, read prompts, or both.
type kind struct{ decode, prompt bool }

// nextKind decides what the next step does. An attention-only memory reads prompts and single tokens in one batch, so
// that the weights are gone through once for both. A recurrent state is computed in equal stretches over all sequences
// of a batch, which single tokens beside a prompt would cut to pieces: there the two take turns, and decode steps keep
// the shape that the library's graph was built for.
func (s *Scheduler) nextKind() (k kind) {
	for q := range s.lanes {
		if q.job.unread(q) > 1 {
			k.prompt = true
		} else {
			k.decode = true
		}
	}
	if k.decode && k.prompt && !s.caps.TrimAny {
		k = kind{decode: s.last.prompt, prompt: !s.last.prompt}
	}
	s.last = k
	return k
}

// step makes one call of the Backend.
func (s *Scheduler) step() error {
	rows := s.allot(s.nextKind())
	if rows == 0 {
		return nil
	}
	if done, err := s.makeRoom(rows); err != nil || !done {
		return err // with a lane less there is another step to be put together
	}
	s.fill()
	if err := s.decode(); err != nil {
		return err
	}
	return s.harvest()
}

// allot decides how many tokens each lane reads in this step, and returns their sum. Lanes that generate come first;
// among prompts the lane that was seated first, so that it starts to generate soonest.
func (s *Scheduler) allot(k kind) (rows int) {
	for q := range s.lanes {
		q.job.quota = 0
		if k.decode && q.job.unread(q) == 1 {
			q.job.quota = 1
			rows++
		}
	}
	budget := min(s.cfg.PromptTokens, s.caps.BatchTokens-rows)
	for k.prompt && budget > 0 {
		q := s.nextPrompt()
		if q == nil {
			break
		}
		q.job.quota = min(s.untilBound(q), budget)
		budget -= q.job.quota
		rows += q.job.quota
	}
	return rows
}

// nextPrompt is the lane seated first among those with a prompt to read and no share yet.
func (s *Scheduler) nextPrompt() *sequence {
	var next *sequence
	for q := range s.lanes {
		j := q.job
		if j.unread(q) > 1 && j.quota == 0 && (next == nil || j.seated < next.job.seated) {
			next = q
		}
	}
	return next
}

// untilBound is the number of unread tokens up to where a copy is to be kept, or to the prompt's end.
func (s *Scheduler) untilBound(q *sequence) int {
	if len(q.job.bounds) > 0 {
		return q.job.bounds[0] - len(q.tokens)
	}
	return q.job.unread(q)
}

// fill puts the allotted tokens into the batch, in the order of the sequence ids.
func (s *Scheduler) fill() {
	s.batch.reset()
	for q := range s.lanes {
		j := q.job
		j.row = -1
		if j.quota == 0 {
			continue
		}
		at := len(q.tokens)
		last := at+j.quota == len(j.tokens)
		row := s.batch.add(q.id, at, j.tokens[at:at+j.quota], last)
		if last {
			j.row = row
		}
	}
}

// decode runs the batch, and takes account of what was read or of what went wrong.
func (s *Scheduler) decode() error {
	if err := s.mem.checkBatch(s.batch); err != nil {
		return err
	}
	began := time.Now()
	err := s.mem.backend.Decode(s.batch)
	s.stats.BackendTime += time.Since(began)
	if err != nil {
		return s.decodeFailed(err)
	}
	for q := range s.lanes {
		if j := q.job; j.quota > 0 {
			if j.unread(q) > 1 {
				s.stats.PrefillTokens += j.quota
			} else {
				s.stats.DecodeTokens++
			}
			s.mem.grow(q, j.tokens, len(q.tokens)+j.quota)
		}
	}
	if s.last.prompt {
		s.stats.PromptSteps++
	}
	if s.last.decode {
		s.stats.DecodeSteps++
	}
	return nil
}

// decodeFailed leaves every lane of the failed batch in a known state. What the batch left in memory is not known, and a
// recurrent state cannot be cut back, so what it touched is emptied.
func (s *Scheduler) decodeFailed(err error) error {
	if errors.Is(err, ErrNoSlot) { // nothing has changed; less must be held than we thought
		return s.shrink()
	}
	for q := range s.lanes {
		if q.job.quota == 0 {
			continue
		}
		q.job.row = -1
		lost := s.requeue
		if !errors.Is(err, ErrAborted) {
			lost = func(q *sequence) error { return s.fail(q, err) }
		}
		if err := lost(q); err != nil {
			return err
		}
	}
	return nil
}

// shrink gives up something after the backend had no room where cells were free by our count.
func (s *Scheduler) shrink() error {
	for q := range s.lanes {
		q.job.row = -1
	}
	if q := s.mem.leastRecentlyUsed(nil, false); q != nil {
		return s.evict(q)
	}
	return s.yieldYoungest()
}

// harvest keeps copies at the boundaries that were reached, and samples the next token of every lane whose last token
// has been read.
func (s *Scheduler) harvest() error {
	for q := range s.lanes {
		if err := s.keepAtBound(q); err != nil {
			return err
		}
		if q.job.row >= 0 {
			s.sample(q)
		}
	}
	return nil
}

// keepAtBound puts a copy of q aside where others begin with the same tokens.
func (s *Scheduler) keepAtBound(q *sequence) error {
	j := q.job
	if len(j.bounds) == 0 || len(q.tokens) < j.bounds[0] {
		return nil
	}
	j.bounds = j.bounds[1:]
	s.changed = true // whoever waited for this prefix need not any more
	copied, err := s.claim(s.mem.lastEmpty(), nil)
	if copied == nil || err != nil {
		return err
	}
	if err := s.mem.fork(copied, q); err != nil {
		return err
	}
	s.stats.Kept++
	copied.kept, copied.usedAt = true, s.tick()
	s.held.add(copied)
	return nil
}

// sample draws the next token of a lane, hands it out, and ends the lane where nothing follows.
func (s *Scheduler) sample(q *sequence) {
	j := q.job
	began := time.Now()
	choice, err := j.Sampler.Sample(j.row)
	s.stats.BackendTime += time.Since(began)
	if err != nil {
		s.end(q, Failed, err)
		return
	}
	j.generated++
	j.tokens = append(j.tokens, choice.Token)
	j.stream.push(choice)
	switch {
	case choice.Final:
		s.end(q, Stopped, nil)
	case j.generated >= j.MaxTokens:
		s.end(q, MaxTokens, nil)
	case len(j.tokens) > s.mem.caps.SeqTokens: // the new token would have no position
		s.end(q, ContextFull, nil)
	}
}
