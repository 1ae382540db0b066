package spider

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/eval"
	"quern/internal/testenv"
)

// optionsOf reads the flags from the name of a golden report, such as testsuite_exec_plug_value.
func optionsOf(name string) (opts Options, legacy bool) {
	opts.Type = All
	for _, kind := range []string{Exec, Match} {
		if strings.Contains(name, "_"+kind) {
			opts.Type = kind
		}
	}
	opts.PlugValue = strings.Contains(name, "plug_value")
	if opts.PlugValue {
		opts.Type = Exec
	}
	opts.KeepDistinct = strings.Contains(name, "keep_distinct")
	opts.Legacy = strings.Contains(name, "legacy")
	return opts, opts.Legacy
}

func checkReport(t *testing.T, exec *eval.Executor, golden string, files Files, opts Options, legacy bool) {
	t.Helper()
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	report, err := ScoreFiles(context.Background(), exec, files, opts, 4, nil)
	if err != nil {
		t.Fatal(err)
	}
	got, ends := report.Text, report.Ends
	if legacy {
		got, ends = report.Legacy, report.LegacyEnds
	}
	if ends != "" {
		t.Errorf("%s: the script ends: %s", golden, ends)
	}
	if got != string(want) {
		t.Errorf("%s\n got:\n%s\nwant:\n%s", golden, got, want)
	}
}

// The printed totals of the authored pairs, byte for byte.
func TestReports(t *testing.T) {
	dir := testenv.Oracles(t, "eval", "spider", "report")
	files := Files{Gold: filepath.Join(dir, "gold.txt"), Pred: filepath.Join(dir, "pred.txt"),
		Databases: testenv.OracleInputs(t, "eval", "spider", "database"), Tables: testenv.OracleInputs(t, "eval", "spider", "tables.json")}
	exec := newExecutor(t, eval.Deadlines{})
	cases := 0
	for _, golden := range glob(t, dir, "*_*.txt") {
		opts, legacy := optionsOf(filepath.Base(golden))
		checkReport(t, exec, golden, files, opts, legacy)
		cases++
	}
	t.Logf("%d reports", cases)
}

// The printed totals over the real dev set and the multi-turn example, byte for byte.
func TestRealReports(t *testing.T) {
	dir := testenv.OracleInputs(t, "eval", "spider", "real_report")
	data := testenv.Shared(t, "data", "spider")
	exec := newExecutor(t, eval.Deadlines{})
	for _, golden := range glob(t, dir, "*.txt") {
		name := filepath.Base(golden)
		opts, legacy := optionsOf(name)
		gold, pred := "dev_gold.sql", "pred_example.txt"
		switch {
		case strings.HasPrefix(name, "multiturn"):
			gold, pred = "test_suite_gold_example.txt", "test_suite_predict_example.txt"
		case strings.HasPrefix(name, "dev_gold_self"):
			pred = gold
			opts.KeepDistinct = !legacy // as its generator has it
		}
		files := Files{Gold: filepath.Join(data, gold), Pred: filepath.Join(data, pred), Databases: filepath.Join(data, "database"), Tables: filepath.Join(data, "tables.json")}
		checkReport(t, exec, golden, files, opts, legacy)
	}
}

func glob(t *testing.T, dir, pattern string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, pattern))
	if err != nil || len(paths) == 0 {
		t.Fatalf("%s has no %s (%v)", dir, pattern, err)
	}
	return paths
}
