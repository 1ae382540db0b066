package lora

import (
	"context"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/convert"
)

// killEnv tells this test binary, started again, to do one merge: base, out and adapters, one on a line.
const killEnv = "LORA_TEST_MERGE"

// TestMergeForKill is the process that TestKill kills.
func TestMergeForKill(t *testing.T) {
	job := os.Getenv(killEnv)
	if job == "" {
		return
	}
	parts := strings.Split(job, "\n")
	p, err := openPlan(t, parts[0], parts[2:]...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Merge(context.Background(), MergeOptions{Out: parts[1], JudgeOptions: accept}); err != nil {
		t.Fatal(err)
	}
}

// TestKill kills a merge at random moments: what has the final name is whole.
func TestKill(t *testing.T) {
	const kills = 50
	checkpoint, adapters := chainCase(t)
	rng := rand.New(rand.NewPCG(1, uint64(time.Now().UnixNano())))
	for name, base := range map[string]string{"merged": checkpoint, "merged.gguf": toGGUF(t, checkpoint, convert.F32)} {
		out := filepath.Join(t.TempDir(), name)
		start := time.Now()
		if err := startMerge(base, out, adapters).Run(); err != nil {
			t.Fatal(err)
		}
		whole := time.Since(start)
		want := fingerprintOf(t, out)
		written := 0
		for range kills / 2 {
			os.RemoveAll(out)
			cmd := startMerge(base, out, adapters)
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Duration(rng.Int64N(int64(whole) * 5 / 4)))
			cmd.Process.Kill()
			cmd.Wait()
			if _, err := os.Stat(out); err != nil {
				continue
			}
			written++
			if got := fingerprintOf(t, out); got != want {
				t.Fatalf("%s is there but not whole: %v", name, got)
			}
			if lineageOf(t, out) == nil {
				t.Fatalf("%s is there without its record", name)
			}
		}
		t.Logf("%s: %d of %d killed merges were complete", name, written, kills/2)
	}
}

func startMerge(base, out string, adapters []string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestMergeForKill$")
	cmd.Env = append(os.Environ(), killEnv+"="+strings.Join(append([]string{base, out}, adapters...), "\n"))
	return cmd
}
