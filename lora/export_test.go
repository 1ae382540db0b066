package lora

import (
	"context"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/gguf"
	"quern/internal/testenv"
	"quern/tensor"
)

// TestExport: the GGUF adapter, applied as llama.cpp does (base + alpha/rank · B · A), gives the merged model. What
// llama.cpp cannot apply at run time is refused.
func TestExport(t *testing.T) {
	for _, c := range mergeCases(t) {
		if len(c.adapters) > 1 {
			continue
		}
		t.Run(c.Case, func(t *testing.T) {
			t.Parallel()
			base := toGGUF(t, testenv.OracleInputs(t, "models", "checkpoints", c.Base), convert.F32)
			p, err := openPlan(t, base, c.adapters...)
			if err != nil {
				t.Skip(err) // an adapter on parts that a GGUF lacks
			}
			out := filepath.Join(t.TempDir(), "adapter.gguf")
			if _, err := p.Export(context.Background(), out); err != nil {
				if _, there := os.Stat(out); there == nil || !strings.Contains(err.Error(), "cannot be applied at run time") {
					t.Errorf("refused, but: %v", err)
				}
				t.Logf("refused: %v", err)
				return
			}
			adapter, merged := openGGUF(t, out), openGGUF(t, merge(t, base, MergeOptions{}, c.adapters...))
			before := openGGUF(t, base)
			worst := 0.0
			for i := range merged.Tensors {
				m := &merged.Tensors[i]
				want, got := floatsOf(t, m), floatsOf(t, before.Lookup(m.Name))
				applyAtRunTime(t, adapter, m.Name, got, int(m.Shape.RowLen()))
				for k := range want {
					worst = max(worst, math.Abs(float64(got[k])-float64(want[k])))
				}
			}
			t.Logf("worst difference from the merge: %.3g", worst)
			if worst > 2e-6 {
				t.Errorf("the adapter gives other weights than the merge: off by up to %g", worst)
			}
			compareWithReference(t, p.Stages[0].Adapter, adapter, c)
		})
	}
}

// applyAtRunTime adds what llama.cpp would add to a weight.
func applyAtRunTime(t *testing.T, adapter *gguf.File, name string, w []float32, cols int) {
	t.Helper()
	a, b := adapter.Lookup(name+".lora_a"), adapter.Lookup(name+".lora_b")
	if a == nil || b == nil {
		return
	}
	alpha, _ := adapter.Meta.Float("adapter.lora.alpha")
	rank := int(b.Shape.RowLen()) // llama-adapter.h: get_scale
	x, y := floatsOf(t, a), floatsOf(t, b)
	for i := range w {
		row, col := i/cols, i%cols
		var sum float64
		for k := range rank {
			if name == "token_embd.weight" { // looked up by token, B not transposed
				sum += float64(x[row*rank+k]) * float64(y[col*rank+k])
			} else {
				sum += float64(y[row*rank+k]) * float64(x[k*cols+col])
			}
		}
		w[i] += float32(sum * alpha / float64(rank))
	}
}

// compareWithReference holds the tensors against the reference script's, where that script is right.
func compareWithReference(t *testing.T, a *Adapter, got *gguf.File, c mergeCase) {
	t.Helper()
	file := filepath.Join(testenv.Oracles(t, "models"), "lora-gguf", c.Case+".manifest.json")
	if !isFile(file) {
		return
	}
	var manifest struct {
		Tensors []struct{ Name, Type, SHA256 string }
	}
	readJSON(t, file, &manifest)
	if a.Config.RSLoRA || len(a.Config.AlphaPattern) > 0 {
		t.Logf("known deviation: llama.cpp's script takes one alpha/r for all modules of %s", c.Case)
		return
	}
	if len(manifest.Tensors) != len(got.Tensors) {
		t.Errorf("%d tensors, the reference has %d", len(got.Tensors), len(manifest.Tensors))
	}
	for _, want := range manifest.Tensors {
		if g := got.Lookup(want.Name); g == nil || g.DType != tensor.F32 || hashOf(t, g) != want.SHA256 {
			t.Errorf("%s differs from the reference", want.Name)
		}
	}
}
