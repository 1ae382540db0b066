package eval

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"time"
)

// RunOptions say how a run is done. They do not change what comes out, but for Votes.
type RunOptions struct {
	Lanes         int            // questions (trajectories, with Votes) at a time; at least 1
	Votes         int            // sampled trajectories a question beside the greedy one; 0: greedy only
	Deterministic bool           // leave times out of the results, so that equal runs give equal files
	Checkpoint    string         // file to go on from; empty: none
	Out           string         // results file, written whole at the end
	Progress      func(Progress) // called after each question, from one goroutine at a time; may be nil
}

// Progress is how far a run has come.
type Progress struct {
	Done, Total int // questions, those from the checkpoint included
	Resumed     int // of Done, those from the checkpoint
	Right       int // by the official rules, of Scored
	Scored      int
	Broken      int           // questions on which our side failed
	Elapsed     time.Duration // of this process
}

// Rate is questions per second of this process; 0 before the first.
func (p Progress) Rate() float64 {
	if p.Elapsed <= 0 {
		return 0
	}
	return float64(p.Done-p.Resumed) / p.Elapsed.Seconds()
}

// ETA is the time left at this rate; 0 when it cannot be told.
func (p Progress) ETA() time.Duration {
	if rate := p.Rate(); rate > 0 {
		return time.Duration(float64(p.Total-p.Done) / rate * float64(time.Second))
	}
	return 0
}

// Interrupted is returned by Run when its context ended: what was finished is in the checkpoint.
type Interrupted struct {
	Done, Total int
	Checkpoint  string
}

func (e *Interrupted) Error() string {
	if e.Checkpoint == "" {
		return fmt.Sprintf("stopped after %d of %d questions; without --ckpt they are lost", e.Done, e.Total)
	}
	return fmt.Sprintf("stopped after %d of %d questions; the same command goes on from %s", e.Done, e.Total, e.Checkpoint)
}

// tooManyFailures is how many questions in a row may fail on our side before a run gives up: a server that is gone fails all.
const tooManyFailures = 20

// Run answers and scores the examples and writes the results file. scorer may be nil where there is no gold; exec is needed
// for votes and for doubts about gold queries, and may be nil without them. A question on which our side breaks is recorded as such and the run goes on; a later run with the
// same checkpoint does it again.
func Run(ctx context.Context, m Manifest, examples []Example, predictor Predictor, scorer Scorer, exec *Executor, opts RunOptions) (Progress, error) {
	r := &run{predictor: predictor, scorer: scorer, opts: opts, start: time.Now()}
	if exec != nil {
		r.exec = exec
		r.doubts = func(ctx context.Context, ex Example) ([]Doubt, error) { return GoldDoubts(ctx, exec, ex) }
	}
	r.progress.Total = len(examples)
	ck := &checkpoint{done: map[string][]byte{}}
	if opts.Checkpoint != "" {
		var err error
		if ck, err = openCheckpoint(opts.Checkpoint, m); err != nil {
			return r.progress, err
		}
		defer ck.close()
	}
	r.checkpoint = ck
	if _, repeatable := predictor.(Repeatable); repeatable && opts.Deterministic {
		r.groups = r.unfinishedGroups(examples)
	}
	if err := r.resume(examples); err != nil {
		return r.progress, err
	}
	err := r.work(ctx, examples)
	if err == nil && ctx.Err() != nil {
		err = &Interrupted{r.progress.Done, r.progress.Total, opts.Checkpoint}
	}
	if err != nil {
		return r.progress, err
	}
	return r.progress, r.finish(m, examples)
}

type run struct {
	predictor  Predictor
	scorer     Scorer
	exec       runner
	doubts     func(context.Context, Example) ([]Doubt, error)
	opts       RunOptions
	checkpoint *checkpoint
	start      time.Time
	groups     [][]Example // of a deterministic run, those to do

	mu       sync.Mutex
	progress Progress
	failures int // in a row
}

// resume counts what the checkpoint holds.
func (r *run) resume(examples []Example) error {
	for _, ex := range examples {
		line, done := r.checkpoint.done[ex.ID]
		if !done {
			continue
		}
		result, err := parseResult(line)
		if err != nil {
			return err
		}
		r.count(result)
		r.progress.Resumed++
	}
	return nil
}

func (r *run) count(result Result) {
	r.progress.Done++
	switch {
	case result.Failed():
		r.progress.Broken++
	case result.Score != nil:
		r.progress.Scored++
		if result.Score.Right() {
			r.progress.Right++
		}
	}
}

// question collects the trajectories of one example.
type question struct {
	example Example
	mu      sync.Mutex
	samples []Prediction
	left    int
}

type trajectory struct {
	question *question
	sample   int
}

// work runs the trajectories of all questions that are not done: lanes predict, and hand finished questions to as many
// graders as there are CPUs, so that a slow gold query keeps no lane idle.
func (r *run) work(ctx context.Context, examples []Example) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	graded := make(chan *question)
	var graders sync.WaitGroup
	for range runtime.NumCPU() {
		graders.Go(func() {
			for q := range graded {
				if err := r.grade(ctx, q); err != nil {
					cancel(err)
				}
			}
		})
	}
	if repeatable, ok := r.predictor.(Repeatable); ok && r.opts.Deterministic {
		if err := r.predictGroups(ctx, repeatable, r.groups, graded); err != nil {
			cancel(err)
		}
	} else {
		r.predictAll(ctx, r.pending(examples), graded)
	}
	close(graded)
	graders.Wait()
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) && !errors.Is(cause, context.DeadlineExceeded) {
		return cause
	}
	return nil
}

// predictAll lets each lane take the next trajectory when it has finished one.
func (r *run) predictAll(ctx context.Context, pending []Example, graded chan<- *question) {
	todo := make(chan trajectory)
	var lanes sync.WaitGroup
	for range max(r.opts.Lanes, 1) {
		lanes.Go(func() {
			for t := range todo {
				r.predict(ctx, t, graded)
			}
		})
	}
	for _, t := range r.trajectories(pending) {
		select {
		case todo <- t:
		case <-ctx.Done():
		}
	}
	close(todo)
	lanes.Wait()
}

// predictGroups runs one group after the other. Which lane runs which trajectory is fixed.
func (r *run) predictGroups(ctx context.Context, predictor Repeatable, groups [][]Example, graded chan<- *question) error {
	for _, group := range groups {
		if ctx.Err() != nil {
			return nil
		}
		if err := predictor.Begin(ctx); err != nil {
			return err
		}
		todo := r.trajectories(group)
		lanes := min(max(r.opts.Lanes, 1), len(todo))
		leave := make([]func(), lanes)
		for i := range leave {
			leave[i] = predictor.Enter()
		}
		var running sync.WaitGroup
		for lane := range lanes {
			running.Go(func() {
				defer leave[lane]()
				for i := lane; i < len(todo); i += lanes {
					r.predict(ctx, todo[i], graded)
				}
			})
		}
		running.Wait()
	}
	return nil
}

// groupRounds is how many questions a lane answers in one group: what a killed run loses at most, against how often a
// schema is read anew.
const groupRounds = 4

// unfinishedGroups are the groups of which any question is not done; a group's questions are about one database. What is
// done of them is forgotten: a group is repeated as a whole, since its answers depend on what runs beside them.
func (r *run) unfinishedGroups(examples []Example) [][]Example {
	size := groupRounds * max(r.opts.Lanes, 1)
	var groups [][]Example
	for _, ex := range ByDatabase(examples) {
		if last := len(groups) - 1; last >= 0 && groups[last][0].DB == ex.DB && len(groups[last]) < size {
			groups[last] = append(groups[last], ex)
		} else {
			groups = append(groups, []Example{ex})
		}
	}
	return slices.DeleteFunc(groups, func(group []Example) bool {
		if len(r.pending(group)) == 0 {
			return true
		}
		for _, ex := range group {
			delete(r.checkpoint.done, ex.ID)
		}
		return false
	})
}

// pending are the examples that are not done, database after database.
func (r *run) pending(examples []Example) []Example {
	var out []Example
	for _, ex := range ByDatabase(examples) {
		if _, done := r.checkpoint.done[ex.ID]; !done {
			out = append(out, ex)
		}
	}
	return out
}

// trajectories are the questions' trajectories, the greedy one of each first.
func (r *run) trajectories(examples []Example) []trajectory {
	n := 1 + r.opts.Votes
	var out []trajectory
	for _, ex := range examples {
		q := &question{example: ex, samples: make([]Prediction, n), left: n}
		for sample := range n {
			out = append(out, trajectory{q, sample})
		}
	}
	return out
}

// predict runs one trajectory. The last one of its question sends it on to be graded.
func (r *run) predict(ctx context.Context, t trajectory, graded chan<- *question) {
	if ctx.Err() != nil {
		return
	}
	q := t.question
	p, err := r.predictor.Predict(ctx, q.example, t.sample)
	if ctx.Err() != nil {
		return // an interrupted trajectory is no answer
	}
	if err != nil {
		p = Prediction{Stop: "error", Error: err.Error()}
	}
	if r.opts.Deterministic {
		p.Seconds = 0
	}
	q.mu.Lock()
	q.samples[t.sample] = p
	q.left--
	last := q.left == 0
	q.mu.Unlock()
	if last {
		graded <- q
	}
}

// grade scores a question and puts it on disk.
func (r *run) grade(ctx context.Context, q *question) error {
	result := Result{Example: q.example, Prediction: q.samples[0]}
	if err := r.judge(ctx, q, &result); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		result.Prediction.Error = err.Error()
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.checkpoint.record(result); err != nil {
		return err
	}
	r.count(result)
	r.progress.Elapsed = time.Since(r.start)
	if r.opts.Progress != nil {
		r.opts.Progress(r.progress)
	}
	return r.giveUp(result)
}

func (r *run) judge(ctx context.Context, q *question, result *Result) (err error) {
	if r.opts.Votes > 0 && result.Prediction.Error == "" {
		if result.Prediction, err = vote(ctx, r.exec, q.example, q.samples); err != nil {
			return err
		}
	}
	p := &result.Prediction
	if r.scorer == nil || p.Error != "" {
		return nil
	}
	if result.Score, err = ScorePrediction(ctx, r.scorer, q.example, *p); err != nil {
		return err
	}
	if r.doubts != nil && !result.Score.Right() && result.Score.Official != HarnessError {
		if result.Score.Doubts, err = r.doubts(ctx, q.example); err != nil {
			return err
		}
	}
	if p.Vote != nil {
		greedy := q.samples[0]
		p.Vote.Score, err = ScorePrediction(ctx, r.scorer, q.example, greedy)
	}
	return err
}

// ScorePrediction scores a prediction. One that gives no rows because the trajectory ended without an answer is classed by
// how it ended: some profiles take the last line for SQL then.
func ScorePrediction(ctx context.Context, scorer Scorer, ex Example, p Prediction) (*Score, error) {
	score, err := scorer.Score(ctx, ex, p.SQL)
	if err == nil && (score.Failure == NoSQL || score.Failure == SQLError) {
		switch p.Stop {
		case "max_turns":
			score.Failure = MaxTurns
		case "no_sql":
			score.Failure = NoSQL
		}
	}
	return score, err
}

// giveUp ends a run whose questions all fail on our side.
func (r *run) giveUp(result Result) error {
	if !result.Failed() {
		r.failures = 0
		return nil
	}
	r.failures++
	if r.failures < tooManyFailures {
		return nil
	}
	message := result.Prediction.Error
	if message == "" {
		message = result.Score.Message
	}
	return fmt.Errorf("%d questions in a row failed on our side, the last one (%s) with: %s", r.failures, result.ID, message)
}

// record puts one finished question on disk, or in memory where there is no checkpoint file.
func (c *checkpoint) record(r Result) error {
	if c.file != nil {
		return c.add(r)
	}
	line, err := EncodeResult(r)
	if err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[r.ID] = line
	return nil
}

// finish writes the results file in the dataset's order, from the very lines of the checkpoint.
func (r *run) finish(m Manifest, examples []Example) error {
	if r.opts.Out == "" {
		return nil
	}
	lines := make([][]byte, 0, len(examples))
	for _, ex := range examples {
		line, done := r.checkpoint.done[ex.ID]
		if !done {
			return fmt.Errorf("question %s has no result", ex.ID)
		}
		lines = append(lines, line)
	}
	return WriteResults(r.opts.Out, m, lines)
}
