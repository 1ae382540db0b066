package lora

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"sync"

	"quern/safetensors"
	"quern/tensor"
)

// check opens what was written and compares it with the base: the same tensors, all equal to the last bit but the
// targets, and the targets different where the merge counted changes.
func (m *merger) check(ctx context.Context, path string) error {
	written, err := openWritten(path, m.Base.IsGGUF())
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

// sameData compares the stored bytes of two tensors, piece by piece.
func sameData(a, b *tensor.Stored) (bool, error) {
	if a.Bytes() != b.Bytes() {
		return false, nil
	}
	const piece = 1 << 20
	x, y := make([]byte, piece), make([]byte, piece)
	for off := int64(0); off < a.Bytes(); off += piece {
		n := min(piece, a.Bytes()-off)
		if got, err := a.Data.ReadAt(x[:n], off); int64(got) < n {
			return false, err
		}
		if got, err := b.Data.ReadAt(y[:n], off); int64(got) < n {
			return false, err
		}
		if !bytes.Equal(x[:n], y[:n]) {
			return false, nil
		}
	}
	return true, nil
}

// openWritten opens weights that have no configuration beside them yet.
func openWritten(path string, isGGUF bool) (*Base, error) {
	b := &Base{Path: path, byKey: map[string][]*Weight{}}
	if isGGUF {
		return b, b.openGGUF()
	}
	checkpoint, err := safetensors.OpenCheckpoint(path)
	if err != nil {
		return nil, err
	}
	b.closer = checkpoint
	for _, t := range checkpoint.Tensors {
		b.add(newWeight(t, rootless(t.Name)))
	}
	return b, nil
}
