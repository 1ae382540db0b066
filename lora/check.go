package lora

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"quern/internal/atomicfile"
	"quern/safetensors"
	"quern/tensor"
)

// writeAndCheck does the work of all jobs, which write to the files, and then looks at what is in them. What is written
// goes to the disk meanwhile, so that the final sync of each file finds little to do.
func (m *merger) writeAndCheck(ctx context.Context, files []*atomicfile.File) error {
	written := make(chan struct{})
	var flusher sync.WaitGroup
	flusher.Go(func() {
		for {
			for _, f := range files {
				_ = f.Sync() // Commit's sync reports errors
			}
			select {
			case <-written:
				return
			case <-time.After(flushEvery):
			}
		}
	})
	defer flusher.Wait()
	defer close(written)
	if err := m.run(ctx); err != nil {
		return err
	}
	return m.check(ctx, files)
}

const flushEvery = 100 * time.Millisecond

// check opens what was written and compares it with the base: the same tensors, all equal to the last bit but the
// targets, and the targets different where the merge counted changes.
func (m *merger) check(ctx context.Context, files []*atomicfile.File) error {
	written, err := openWritten(files, m.Base.IsGGUF())
	if err != nil {
		return fmt.Errorf("check of the output: %w", err)
	}
	defer written.Close()
	stored := map[string]*Weight{}
	for _, w := range written.Weights {
		stored[fmt.Sprint(w.Name, w.slab)] = w
	}
	if len(written.Weights) != len(m.jobs) {
		return fmt.Errorf("check of the output: it has %d tensors instead of %d", len(written.Weights), len(m.jobs))
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	jobs := make(chan *job)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for j := range jobs {
				if err := j.checkWritten(stored[fmt.Sprint(j.spec.Name, j.w.slab)]); err != nil {
					cancel(fmt.Errorf("check of the output: tensor %s: %w", j.spec.Name, err))
				}
			}
		})
	}
	for _, j := range m.jobs {
		if ctx.Err() == nil {
			jobs <- j
		}
	}
	close(jobs)
	workers.Wait()
	return context.Cause(ctx)
}

// checkWritten compares a tensor of the output with the job that made it.
func (j *job) checkWritten(w *Weight) error {
	if w == nil || w.DType != j.spec.DType || !w.Shape.Equal(j.spec.Shape) {
		return fmt.Errorf("it is not there as it was written")
	}
	if w.DType != j.w.DType || j.added {
		return nil // nothing in the base to compare it with
	}
	same, err := sameData(&w.Stored, &j.w.Stored)
	switch {
	case err != nil:
		return err
	case len(j.edits) == 0 && !same:
		return fmt.Errorf("it differs from the base's, although no adapter changes it")
	case j.stats.Changed > 0 && len(j.stagesOf()) == 1 && same:
		return fmt.Errorf("it equals the base's, although %d of its values were changed", j.stats.Changed)
	}
	return nil
}

// sameData compares the stored bytes of two tensors, a large one on all processors.
func sameData(a, b *tensor.Stored) (bool, error) {
	if a.Bytes() != b.Bytes() {
		return false, nil
	}
	var differ atomic.Bool
	parts := int64(runtime.GOMAXPROCS(0))
	errs := make([]error, parts)
	var workers sync.WaitGroup
	for i := range parts {
		workers.Go(func() {
			errs[i] = compareBytes(a, b, a.Bytes()*i/parts, a.Bytes()*(i+1)/parts, &differ)
		})
	}
	workers.Wait()
	return !differ.Load(), errors.Join(errs...)
}

// compareBytes looks for a difference between two offsets, until one is found anywhere.
func compareBytes(a, b *tensor.Stored, from, to int64, differ *atomic.Bool) error {
	const piece = 1 << 18
	x, y := make([]byte, min(piece, to-from)), make([]byte, min(piece, to-from))
	for off := from; off < to && !differ.Load(); off += piece {
		n := min(piece, to-off)
		if got, err := a.Data.ReadAt(x[:n], off); int64(got) < n {
			return err
		}
		if got, err := b.Data.ReadAt(y[:n], off); int64(got) < n {
			return err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			differ.Store(true)
		}
	}
	return nil
}

// openWritten opens weights that have neither their name nor a configuration beside them yet.
func openWritten(files []*atomicfile.File, isGGUF bool) (*Base, error) {
	if isGGUF {
		b := &Base{Path: files[0].Name(), byKey: map[string][]*Weight{}}
		return b, b.openGGUF()
	}
	b := &Base{byKey: map[string][]*Weight{}}
	var open closers
	b.closer = &open
	for _, f := range files {
		shard, err := safetensors.Open(f.Name())
		if err != nil {
			open.Close()
			return nil, err
		}
		open = append(open, shard)
		for _, t := range shard.Tensors {
			b.add(newWeight(t, rootless(t.Name)))
		}
	}
	return b, nil
}

// closers closes several files as one.
type closers []io.Closer

func (c *closers) Close() error {
	var errs []error
	for _, f := range *c {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}
