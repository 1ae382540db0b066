package lora

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"

	"quern/tensor"
)

// job is one tensor of the output: where its rows come from, what changes them, where they go. Its blocks are worked
// on by several goroutines.
type job struct {
	w     *Weight // the source
	key   string  // of the output: the source's, but for an untied head
	added bool    // the base has no such tensor
	spec  tensor.Spec
	edits []stagedEdit

	// castFirst: the base is rounded to the output's type before the first edit, as PEFT does when it loads a checkpoint
	// in another type. Else the first edit works on the base's values as they are.
	castFirst bool

	// emit takes the rows of a finished block, in the output's type; nil to compute hashes only.
	emit func(rows []byte, first, n int64) error

	sums  [][]sum // [0] of the base, [i] after stage i: by block; nil where a stage leaves the tensor as it was
	load  sync.Once
	ready []loadedEdit
	err   error

	mu    sync.Mutex
	stats changeStats
	noise requantStats
	left  atomic.Int64 // blocks to do
}

// stagedEdit is an edit by the adapter of a stage, counted from 1.
type stagedEdit struct {
	stage int
	edit
}

// requantStats measures what storing the result in a coarse type costs.
type requantStats struct {
	Delta2 float64 // of the change as computed, squared
	Error2 float64 // of the difference between stored and computed values, squared
}

func newJob(w *Weight, spec tensor.Spec, edits []stagedEdit, castFirst bool, stages int) *job {
	j := &job{w: w, key: w.Key, spec: spec, edits: edits, castFirst: castFirst, sums: make([][]sum, stages+1)}
	n := w.numBlocks()
	j.left.Store(n)
	j.sums[0] = make([]sum, n)
	for _, e := range edits {
		j.sums[e.stage] = make([]sum, n)
	}
	if stages > 0 && j.castAlone() && j.sums[1] == nil {
		j.sums[1] = make([]sum, n) // reading the base in another type changes it
	}
	return j
}

// writeTo makes the job write its rows to a tensor that begins at start.
func (j *job) writeTo(w io.WriterAt, start int64) {
	j.emit = func(rows []byte, first, n int64) error {
		return j.w.writeRows(w, rows, first, n, int64(len(rows))/n, start)
	}
}

// castAlone tells whether the base is brought to the output's type as a step of its own.
func (j *job) castAlone() bool {
	return j.spec.DType != j.w.DType && (j.castFirst || len(j.edits) == 0)
}

// sumsAfter returns the hashes of the tensor after a stage; 0 is the base.
func (j *job) sumsAfter(stage int) sums {
	for j.sums[stage] == nil {
		stage--
	}
	return sums{j.key, j.w, j.sums[stage]}
}

// run works on all blocks of all jobs, in order, on all processors. The first error or a cancelled ctx stops it.
// progress, if not nil, is told the bytes of the base that are done.
func run(ctx context.Context, jobs []*job, progress func(done int64)) error {
	type task struct {
		j     *job
		block int64
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	tasks := make(chan task)
	var done atomic.Int64
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			r := &renderer{}
			for t := range tasks {
				if ctx.Err() != nil {
					continue
				}
				n, err := r.block(t.j, t.block)
				if err != nil {
					cancel(fmt.Errorf("tensor %s: %w", t.j.spec.Name, err))
				}
				if total := done.Add(n); progress != nil {
					progress(total)
				}
			}
		})
	}
feed:
	for _, j := range jobs {
		for block := range j.w.numBlocks() {
			select {
			case tasks <- task{j, block}:
			case <-ctx.Done():
				break feed
			}
		}
	}
	close(tasks)
	workers.Wait()
	return context.Cause(ctx)
}

// renderer is one worker's buffers.
type renderer struct {
	in, out []byte
	x       []float32
	before  []float32
	scratch []float32
	rows    []float32
}

// block does one block: reads the base's rows, hashes them, changes them stage by stage, hashes and writes the result.
// It returns the bytes that it read.
func (r *renderer) block(j *job, block int64) (int64, error) {
	j.load.Do(j.prepare)
	if j.err != nil {
		return 0, j.err
	}
	first := block * j.w.blockRows()
	n := min(j.w.blockRows(), j.w.rows-first)
	rowBytes, err := j.w.DType.RowBytes(j.w.width)
	if err != nil {
		return 0, err
	}
	r.in = resize(r.in, n*rowBytes)
	if err := j.w.readRows(j.w.Data, r.in, first, n, rowBytes); err != nil {
		return 0, err
	}
	if j.w.hashed() {
		if j.sums[0][block], err = j.w.sumRows(&j.w.layout, r.in, j.w.DType); err != nil {
			return 0, err
		}
	}
	data, err := r.change(j, block, first)
	if err != nil {
		return 0, err
	}
	if j.emit != nil {
		if err := j.emit(data, first, n); err != nil {
			return 0, err
		}
	}
	if j.left.Add(-1) == 0 {
		j.ready = nil // so that only the adapter's tensors at work are in memory
	}
	return n * rowBytes, nil
}

func (j *job) prepare() {
	for _, e := range j.edits {
		loaded, err := e.load(j.spec.DType)
		if err != nil {
			j.err = err
			return
		}
		j.ready = append(j.ready, loaded)
	}
}

// change returns the block's rows as they are stored in the output. r.in holds them as the base stores them.
func (r *renderer) change(j *job, block, first int64) ([]byte, error) {
	t := j.spec.DType
	if len(j.edits) == 0 && t == j.w.DType {
		return r.in, nil
	}
	data := r.in
	if j.castAlone() {
		var err error
		if data, err = r.cast(j); err != nil {
			return nil, err
		}
		if len(j.edits) == 0 || j.edits[0].stage > 1 {
			if j.sums[1][block], err = j.w.sumRows(&j.w.layout, data, t); err != nil {
				return nil, err
			}
		}
	}
	from := j.w.DType
	if j.castAlone() {
		from = t
	}
	for i, e := range j.edits {
		var err error
		if data, err = r.applyEdit(j, j.ready[i], data, from, first); err != nil {
			return nil, err
		}
		from = t
		if (i+1 == len(j.edits) || j.edits[i+1].stage != e.stage) && j.w.hashed() {
			if j.sums[e.stage][block], err = j.w.sumRows(&j.w.layout, data, t); err != nil {
				return nil, err
			}
		}
	}
	return data, nil
}

// cast returns r.in in the output's type.
func (r *renderer) cast(j *job) ([]byte, error) {
	n := int64(len(r.in)) / int64(j.w.DType.BlockBytes()) * int64(j.w.DType.BlockLen())
	size, err := j.spec.DType.RowBytes(n)
	if err != nil {
		return nil, err
	}
	r.x, r.out = resize(r.x, n), resize(r.out, size)
	if err := tensor.Decode(r.x, r.in, j.w.DType); err != nil {
		return nil, err
	}
	return r.out, tensor.Encode(r.out, r.x, j.spec.DType)
}

// applyEdit changes rows that are stored as type from, and returns them in the output's type. The result may share
// memory with data.
func (r *renderer) applyEdit(j *job, e loadedEdit, data []byte, from tensor.DType, first int64) ([]byte, error) {
	if l, ok := e.(*loadedLowRank); ok && from == j.spec.DType && isFloat(from) && j.w.plain() {
		return data, r.addLowRank(j, l, data, from, first)
	}
	t := j.spec.DType
	n := int64(len(data)) / int64(from.BlockBytes()) * int64(from.BlockLen())
	size, err := t.RowBytes(n)
	if err != nil {
		return nil, err
	}
	r.before, r.x = resize(r.before, n), resize(r.x, n)
	if err := j.w.decode(r.before, data, from, j.w.width); err != nil {
		return nil, err
	}
	copy(r.x, r.before)
	e.apply(r.x, int(first))
	r.out = resize(r.out, size)
	if err := j.w.encode(r.out, r.x, t, j.w.width); err != nil {
		return nil, err
	}
	return r.out, r.measure(j, t)
}

// measure compares what was stored with what it was before, and with what was meant to be stored.
func (r *renderer) measure(j *job, t tensor.DType) error {
	r.scratch = resize(r.scratch, int64(len(r.x)))
	if err := j.w.decode(r.scratch, r.out, t, j.w.width); err != nil {
		return err
	}
	var stats changeStats
	var noise requantStats
	for i, want := range r.x {
		is, was := r.scratch[i], r.before[i]
		if is-is != 0 { // infinite or NaN
			return fmt.Errorf("the merged weight is %v at an element: it does not fit %v", is, t)
		}
		stats.count(was, is)
		d, e := float64(want)-float64(was), float64(is)-float64(want)
		noise.Delta2 += d * d
		noise.Error2 += e * e
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.add(stats)
	j.noise.Delta2 += noise.Delta2
	j.noise.Error2 += noise.Error2
	return nil
}

// addLowRank is the quick way for the common case: the delta is added in place, in the type that is stored.
func (r *renderer) addLowRank(j *job, l *loadedLowRank, data []byte, t tensor.DType, first int64) error {
	rowBytes := l.cols * t.BlockBytes()
	var stats changeStats
	r.rows = resize(r.rows, int64(rowGroup*l.width()))
	l.eachRow(r.rows, len(data)/rowBytes, int(first), func(i int, delta []float32) {
		row := data[i*rowBytes : (i+1)*rowBytes]
		stats.add(addDelta(row, row, delta, t))
	})
	if stats.Sum2-stats.Sum2 != 0 {
		return fmt.Errorf("a merged weight is not finite: it does not fit %v", t)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stats.add(stats)
	return nil
}

func isFloat(t tensor.DType) bool { return t == tensor.F32 || t == tensor.F16 || t == tensor.BF16 }

func resize[T any](s []T, n int64) []T {
	if int64(cap(s)) < n {
		return make([]T, n)
	}
	return s[:n]
}
