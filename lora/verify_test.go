package lora

import (
	"context"
	"testing"

	"quern/convert"
	"quern/internal/testenv"
	"quern/tensor"
)

func verify(t *testing.T, base, merged string, adapters ...string) *Fit {
	t.Helper()
	p, err := openPlan(t, base, adapters...)
	if err != nil {
		t.Fatal(err)
	}
	m, err := OpenBase(merged)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	fit, err := p.Verify(context.Background(), m)
	if err != nil {
		t.Fatal(err)
	}
	return fit
}

// TestVerify: a merge is recognised in a checkpoint and in GGUF files of it; the base alone and a merge into another
// base are not taken for it.
func TestVerify(t *testing.T) {
	for _, c := range mergeCases(t) {
		t.Run(c.Case, func(t *testing.T) {
			t.Parallel()
			base := testenv.OracleInputs(t, "models", "checkpoints", c.Base)
			merged := merge(t, base, MergeOptions{}, c.adapters...)
			if fit := verify(t, base, merged, c.adapters...); fit.Verdict != Merged || fit.Rounded > 0 {
				t.Errorf("the merge itself: %+v", fit)
			}
			if fit := verify(t, base, base, c.adapters...); fit.Verdict != Unmerged {
				t.Errorf("the base itself: %+v", fit)
			}
			if fit := verify(t, merged, merged, c.adapters...); fit.Verdict == Merged && addsDeltas(t, c.adapters) {
				t.Errorf("merged twice: %+v", fit)
			}
			for _, kind := range []convert.Type{convert.BF16, convert.Q8_0} {
				if fit := verify(t, base, toGGUF(t, merged, kind), c.adapters...); fit.Verdict != Merged {
					t.Errorf("the %s GGUF of the merge: %+v", kind, fit)
				}
			}
		})
	}
}

// addsDeltas tells whether merging the adapters twice is another thing than merging them once.
func addsDeltas(t *testing.T, adapters []string) bool {
	t.Helper()
	for _, path := range adapters {
		a, err := Open(path)
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		for _, m := range a.Modules {
			if m.Rank > 0 {
				return true
			}
		}
	}
	return false
}

// TestVerifySafeMerge: PEFT's safe_merge rounds the delta first; that is the same merge but for rounding.
func TestVerifySafeMerge(t *testing.T) {
	for _, c := range mergeCases(t) {
		if _, ok := c.Merges["bf16-safe-merge"]; !ok {
			continue
		}
		base := testenv.OracleInputs(t, "models", "checkpoints", c.Base)
		p, err := openPlan(t, base, c.adapters...)
		if err != nil {
			t.Fatal(err)
		}
		for _, target := range p.targets {
			for _, e := range target.edits {
				e.edit.(*lowRank).roundDelta = true
			}
		}
		out := t.TempDir() + "/merged"
		if _, err := p.Merge(context.Background(), MergeOptions{Out: out, Type: tensor.BF16, JudgeOptions: accept}); err != nil {
			t.Fatal(err)
		}
		for name, hash := range c.Merges["bf16-safe-merge"].Changed {
			if checkpointHash(t, out, name) != hash {
				t.Errorf("%s: %s is not what safe_merge gives", c.Case, name)
			}
		}
		fit := verify(t, base, out, c.adapters...)
		if fit.Verdict != Merged || fit.Rounded == 0 {
			t.Errorf("%s: %+v", c.Case, fit)
		}
		t.Logf("%s: %s", c.Case, fit.Why)
	}
}
