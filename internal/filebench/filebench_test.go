package filebench_test

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/cli"
	"quern/internal/filebench"
	"quern/internal/testenv"
	"quern/lora"
)

// asProgram makes this test binary behave as the program itself, for the processes that are measured.
const asProgram = "QUERN_TEST_AS_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		os.Exit(cli.Run(context.Background(), os.Args, cli.Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr}))
	}
	os.Exit(m.Run())
}

var base = filepath.Join(testenv.Root(), "testdata", "demo-model", "base")

// run plays `quern bench files` on the demo model, with a Python that is not there.
func run(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	t.Setenv(asProgram, "1")
	var out, log bytes.Buffer
	args = append([]string{"quern", "bench", "files", "--checkpoint", base, "--work", t.TempDir(), "--repeats", "2",
		"--peers", filepath.Join(testenv.Root(), "scripts", "peers"), "--llama", t.TempDir(), "--python", "no-such-python"}, args...)
	code = cli.Run(t.Context(), args, cli.Env{Stdin: bytes.NewReader(nil), Stdout: &out, Stderr: &log})
	return code, out.String(), log.String()
}

func TestFilesWithoutPython(t *testing.T) {
	document := filepath.Join(t.TempDir(), "report.md")
	code, out, log := run(t, "--json", "--markdown", document)
	if code != 0 {
		t.Fatalf("exit %d: %s", code, log)
	}
	var r filebench.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(r.Jobs) != 3 || r.Bytes == 0 {
		t.Fatalf("%+v", r)
	}
	for _, j := range r.Jobs {
		if n := len(j.Quern.Seconds.Runs); n != 2 || j.Quern.CPU.Median <= 0 || j.Quern.Memory.Median <= 0 {
			t.Errorf("%s: %+v", j.Name, j.Quern)
		}
		for _, p := range j.Peers {
			if measured := len(p.Cost.Seconds.Runs) > 0; measured != (p.Missing == "") || measured != (p.Seconds > 0) {
				t.Errorf("%s, %s: %+v", j.Name, p.Name, p)
			}
			if !strings.HasPrefix(p.Name, "cp -r") && p.Missing == "" {
				t.Errorf("%s is not here, and nothing says so", p.Name)
			}
		}
	}
	text, err := os.ReadFile(document)
	if err != nil || !strings.Contains(string(text), "| merge an adapter | Quern |") || !strings.Contains(string(text), "setup.sh") {
		t.Errorf("%v: %s", err, text)
	}
}

func TestFilesLeavesNothing(t *testing.T) {
	work := t.TempDir()
	if code, out, log := run(t, "--work", work); code != 0 || !strings.Contains(out, "cp -r") {
		t.Fatalf("exit %d: %s%s", code, out, log)
	}
	if left, err := os.ReadDir(work); err != nil || len(left) > 0 {
		t.Errorf("%v, %v", left, err)
	}
}

func TestFilesMistakes(t *testing.T) {
	for want, args := range map[int][]string{2: {"--repeats", "0"}, 1: {"--checkpoint", t.TempDir()}} {
		if code, _, log := run(t, args...); code != want || log == "" {
			t.Errorf("%v: exit %d, want %d: %s", args, code, want, log)
		}
	}
}

// TestAdapter: what is written is an adapter that fits its checkpoint and changes all seven projections in each layer.
func TestAdapter(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "adapter")
	if err := filebench.WriteAdapter(base, dir); err != nil {
		t.Fatal(err)
	}
	a, err := lora.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	b, err := lora.OpenBase(base)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := lora.NewPlan(b, []lora.Stage{{Adapter: a, Scale: 1}}); err != nil {
		t.Error(err)
	}
	i, err := a.Inspect()
	if err != nil || len(i.Hits) != 7 {
		t.Errorf("%+v, %v", i, err)
	}
	if err := filebench.WriteAdapter(t.TempDir(), dir); err == nil {
		t.Error("a folder without a checkpoint is accepted")
	}
}
