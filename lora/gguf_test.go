package lora

import (
	"context"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/gguf"
	"quern/internal/testenv"
	"quern/tensor"
)

// toGGUF converts a checkpoint, without multi-token prediction.
func toGGUF(t testing.TB, dir string, kind convert.Type) string {
	t.Helper()
	out := filepath.Join(t.TempDir(), "model.gguf")
	if _, err := convert.Convert(context.Background(), dir, out, convert.Options{Type: kind, MTP: convert.DropMTP}); err != nil {
		t.Fatal(err)
	}
	return out
}

func openGGUF(t testing.TB, path string) *gguf.File {
	t.Helper()
	f, err := gguf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// TestGoldenGGUFMerges: merging straight into a GGUF of each type gives the golden tensors, and leaves all others.
func TestGoldenGGUFMerges(t *testing.T) {
	found := 0
	for _, c := range mergeCases(t) {
		goldens := filepath.Join(c.dir, "gguf-merge.json")
		if !isFile(goldens) {
			continue
		}
		found++
		var byType map[string]struct {
			Tensors map[string]struct{ Type, SHA256 string }
		}
		readJSON(t, goldens, &byType)
		for kind, want := range byType {
			base := toGGUF(t, testenv.OracleInputs(t, "models", "checkpoints", c.Base), convert.Type(kind))
			before, after := openGGUF(t, base), openGGUF(t, merge(t, base, MergeOptions{}, c.adapters...))
			for i := range after.Tensors {
				got := &after.Tensors[i]
				golden, changed := want.Tensors[got.Name]
				switch {
				case !changed && hashOf(t, got) != hashOf(t, before.Lookup(got.Name)):
					t.Errorf("%s/%s: %s changed", c.Case, kind, got.Name)
				case changed && (got.DType.String() != golden.Type || hashOf(t, got) != golden.SHA256):
					t.Errorf("%s/%s: %s (%v) differs from the golden one (%s)", c.Case, kind, got.Name, got.DType, golden.Type)
				}
			}
			t.Logf("%s/%s: %d tensors changed", c.Case, kind, len(want.Tensors))
		}
	}
	if found == 0 {
		t.Skip("no gguf-merge.json here")
	}
}

// TestMergeThenConvert: merging and converting gives the same tensors as converting and merging. In bf16 vectors are
// left out: a GGUF keeps them in F32, a checkpoint rounds them.
func TestMergeThenConvert(t *testing.T) {
	for _, c := range mergeCases(t) {
		for _, kind := range []tensor.DType{tensor.F32, tensor.BF16} {
			t.Run(c.Case+"/"+kind.String(), func(t *testing.T) {
				t.Parallel()
				checkpoint := testenv.OracleInputs(t, "models", "checkpoints", c.Base)
				to := convert.Type(strings.ToLower(kind.String()))
				p, err := openPlan(t, toGGUF(t, checkpoint, to), c.adapters...)
				if err != nil && strings.Contains(err.Error(), "visual") {
					t.Skipf("the adapter is on the vision tower too, which a GGUF has not: %v", err)
				}
				if err != nil {
					t.Fatal(err)
				}
				out := filepath.Join(t.TempDir(), "merged.gguf")
				if _, err := p.Merge(context.Background(), MergeOptions{Out: out, JudgeOptions: accept}); err != nil {
					t.Fatal(err)
				}
				want := openGGUF(t, toGGUF(t, merge(t, checkpoint, MergeOptions{Type: kind}, c.adapters...), to))
				got := openGGUF(t, out)
				if len(got.Tensors) != len(want.Tensors) {
					t.Errorf("%d tensors, want %d", len(got.Tensors), len(want.Tensors))
				}
				for i := range want.Tensors {
					w := &want.Tensors[i]
					g := got.Lookup(w.Name)
					if g == nil || g.DType != w.DType || hashOf(t, g) != hashOf(t, w) && (kind == tensor.F32 || len(w.Shape) > 1) {
						t.Errorf("%s differs", w.Name)
					}
				}
			})
		}
	}
}
