package lora

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"quern/internal/testenv"
)

// TestBad: every adapter of the collection of faults is refused, with a message, before anything is written.
func TestBad(t *testing.T) {
	for _, c := range badCases(t) {
		t.Run(c.Case, func(t *testing.T) {
			p, err := openPlan(t, testenv.OracleInputs(t, "models", "checkpoints", c.Base), c.dir)
			if err == nil {
				out := filepath.Join(t.TempDir(), "merged")
				_, err = p.Merge(context.Background(), MergeOptions{Out: out, JudgeOptions: accept})
				if _, there := os.Stat(out); there == nil {
					t.Errorf("%s was written", out)
				}
			}
			if err == nil {
				t.Fatalf("not refused; the reason would be: %s", c.Reason)
			}
			t.Logf("%s\n\t→ %v", c.Reason, err)
		})
	}
}
