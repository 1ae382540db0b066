package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/eval"
	"quern/internal/testenv"
)

// evalRunTest runs one command line and returns what it wrote and its exit code.
func evalRunTest(t *testing.T, ctx context.Context, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(ctx, append([]string{"quern", "eval"}, args...), Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	return out.String(), errs.String(), code
}

func evalOK(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := evalRunTest(t, context.Background(), args...)
	if code != 0 {
		t.Fatalf("%v: exit %d\n%s", args, code, stderr)
	}
	return stdout
}

// Every form of prediction file of the same answers gives the same verdicts, and reports and comparisons read them.
func TestEvalScoreForms(t *testing.T) {
	data, dir := testenv.Shared(t, "demo-model", "heldout"), t.TempDir()
	type question struct{ Query string }
	text, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var questions []question
	if err := json.Unmarshal(text, &questions); err != nil {
		t.Fatal(err)
	}
	var list []map[string]any
	for i, q := range questions {
		sql := q.Query
		if i%4 == 0 {
			sql = "SELECT 'wrong'"
		}
		list = append(list, map[string]any{"id": i, "sql": sql, "stop_reason": "final_sql", "n_calls": i % 3})
	}
	harness := filepath.Join(dir, "harness.json")
	text, _ = json.Marshal(map[string]any{"results": list})
	if err := os.WriteFile(harness, text, 0o644); err != nil {
		t.Fatal(err)
	}
	a, b := filepath.Join(dir, "a.jsonl"), filepath.Join(dir, "b.jsonl")
	first := evalOK(t, "score", "--dataset", "spider", "--data", data, harness, "--out", a)
	again := evalOK(t, "score", "--dataset", "spider", "--data", data, a, "--out", b)
	if first != again || !strings.Contains(first, "EXECUTION ACCURACY") {
		t.Errorf("scored again:\n%s\nbefore:\n%s", again, first)
	}
	want := float64(len(questions)-(len(questions)+3)/4) / float64(len(questions))
	var report eval.Report
	if err := json.Unmarshal([]byte(evalOK(t, "report", a, "--json", "-")), &report); err != nil {
		t.Fatal(err)
	}
	if f, _ := report.Runs[0].Figure("accuracy.official"); f.Value != want {
		t.Errorf("accuracy %v, want %v", f.Value, want)
	}
	if f, _ := report.Runs[0].Figure("tools.calls_per_question"); f.Value < 0.9 || f.Value > 1.1 {
		t.Errorf("calls per question %v, want 1", f.Value)
	}
	page := filepath.Join(dir, "page.html")
	evalOK(t, "report", a, b, "--html", page, "--markdown", filepath.Join(dir, "page.md"))
	if html, err := os.ReadFile(page); err != nil || !bytes.Contains(html, []byte("</html>")) {
		t.Errorf("no page: %v", err)
	}
	if out := evalOK(t, "compare", a, b); !strings.Contains(out, "| fixed | 0 |") {
		t.Errorf("a run against itself:\n%s", out)
	}
}

func TestEvalUsage(t *testing.T) {
	data := testenv.Shared(t, "demo-model", "heldout")
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"run", "--dataset", "spider"}, exitUsage, "--data is missing"},
		{[]string{"run", "--data", data}, exitUsage, "--dataset is missing"},
		{[]string{"run", "--dataset", "wikisql", "--data", data}, exitUsage, "there are spider, bird and spider2"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--batch-size", "0"}, exitUsage, "--batch-size 0"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--votes", "4"}, exitUsage, "give --temperature above 0"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--shard", "3/2"}, exitUsage, "write i/n"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--ids", "nobody"}, exitFailed, "no question with id nobody"},
		{[]string{"run", "--dataset", "bird", "--data", t.TempDir()}, exitFailed, "missing  questions: looked for"},
		{[]string{"score", "--dataset", "spider", "--data", data}, exitUsage, "takes one file or folder"},
		{[]string{"score", "--dataset", "spider2", "--data", data, "--mode", "csv", data}, exitUsage, "want sql or exec_result"},
		{[]string{"score", "--dataset", "bird", "--data", data, "--pair-by", "name", data}, exitUsage, "want key or position"},
		{[]string{"score", "--dataset", "spider", "--data", data, "--etype", "some", data}, exitUsage, "want all, exec or match"},
		{[]string{"run", "--dataset", "bird", "--data", data, "--ves", "-1"}, exitUsage, "--ves -1"},
		{[]string{"run", "--dataset", "bird", "--data", data}, exitFailed, "give --dataset spider"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--model", "m", "--max-turns", "-1"}, exitUsage, "--max-turns -1: must be above 0"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--model", "m", "--top-p", "2"}, exitUsage, "--top-p 2: must be from 0 to 1"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--backend", "http://127.0.0.1:9", "--profile", "qwen-xml", "--col-policy", "v4"}, exitFailed, "it has spider2, v3"},
		{[]string{"run", "--dataset", "spider", "--data", data, "--out", filepath.Join(data, "nowhere", "x.jsonl")}, exitFailed, "there is no folder"},
		{[]string{"report"}, exitUsage, "needs a results file"},
		{[]string{"report", filepath.Join(data, "dev.json")}, exitFailed, "no results file of quern eval"},
		{[]string{"compare", "a"}, exitUsage, "needs two results files"},
		{[]string{"merge"}, exitUsage, "needs a file to write"},
	} {
		_, stderr, code := evalRunTest(t, context.Background(), c.args...)
		if code != c.code || !strings.Contains(stderr, c.want) {
			t.Errorf("%v: exit %d, %q; want %d, %q", c.args, code, stderr, c.code, c.want)
		}
	}
}

func TestEvalSelftest(t *testing.T) {
	data := testenv.Shared(t, "demo-model", "heldout")
	var report selftestReport
	out, _, code := evalRunTest(t, context.Background(), "selftest", "--dataset", "spider", "--data", data, "--n", "40", "--json")
	if err := json.Unmarshal([]byte(out), &report); err != nil {
		t.Fatal(err)
	}
	if report.Questions != 40 || report.Right+len(report.Failed) != 40 || (code == 0) != (report.Right == 40) {
		t.Errorf("exit %d, %d of %d right, %d failed", code, report.Right, report.Questions, len(report.Failed))
	}
}

// Spider2's gold tables are right as their own predictions, without any database; a gold query that does not give its table
// is doubtful.
func TestEvalSelftestSpider2(t *testing.T) {
	data := testenv.Shared(t, "data", "spider2")
	var report selftestReport
	if err := json.Unmarshal([]byte(evalOK(t, "selftest", "--dataset", "spider2", "--data", data, "--json")), &report); err != nil {
		t.Fatal(err)
	}
	if report.Questions == 0 || report.Right != report.Questions {
		t.Errorf("%d of %d gold tables are right as their own predictions: %+v", report.Right, report.Questions, report.Failed)
	}
}

func TestDataLayout(t *testing.T) {
	for dataset, dir := range map[string]string{
		eval.Spider: testenv.Shared(t, "data", "spider"), eval.BIRD: testenv.Shared(t, "data", "bird"), eval.Spider2: testenv.Shared(t, "data", "spider2"),
	} {
		layout := checkDataLayout(dir)
		if layout.Dataset != dataset || layout.Complete != (dataset == eval.Spider) {
			t.Errorf("%s taken for %s", dir, layout)
		}
		if dataset != eval.Spider && (!strings.Contains(layout.String(), "missing  database ") || layout.Hint == "") {
			t.Errorf("%s: what is missing is not told: %s", dir, layout)
		}
	}
	if layout := checkDataLayout(t.TempDir()); layout.Complete || !strings.Contains(layout.String(), "missing  questions: looked for") {
		t.Errorf("an empty folder: %s", layout)
	}
}

// The demo model answers real questions; a run that is stopped goes on and ends in the same file.
func TestEvalRun(t *testing.T) {
	data, dir := testenv.Shared(t, "demo-model", "heldout"), t.TempDir()
	model := filepath.Join(testenv.Root(), "internal", "demo", "model.gguf")
	if _, err := os.Stat(model); err != nil {
		testenv.Missing(t, "the demo model is not here")
	}
	args := func(out string) []string {
		return []string{"run", "--dataset", "spider", "--data", data, "--model", model, "--ids", "0,1,2,30,31,60", "--batch-size", "2", "--deterministic", "--out", filepath.Join(dir, out)}
	}
	evalOK(t, args("quiet.jsonl")...)
	want, err := os.ReadFile(filepath.Join(dir, "quiet.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(context.Background())
	stopped := make(chan struct{})
	go func() { // after the first lines of the checkpoint
		defer close(stopped)
		for ctx.Err() == nil {
			data, _ := os.ReadFile(filepath.Join(dir, "stopped.jsonl.ckpt"))
			if bytes.Count(data, []byte("\n")) > 2 {
				stop()
			}
		}
	}()
	if _, stderr, code := evalRunTest(t, ctx, args("stopped.jsonl")...); code != exitFailed || !strings.Contains(stderr, "goes on from") {
		t.Logf("the run was not stopped in time: exit %d, %s", code, stderr)
	}
	stop()
	<-stopped
	evalOK(t, args("stopped.jsonl")...)
	if got, _ := os.ReadFile(filepath.Join(dir, "stopped.jsonl")); !bytes.Equal(got, want) {
		t.Error("a stopped run ends in another file")
	}
	_, stderr, code := evalRunTest(t, context.Background(), append(args("quiet.jsonl"), "--max-turns", "3")...)
	if code != exitFailed || !strings.Contains(stderr, "--max-turns: 5, now 3") {
		t.Errorf("other flags on the same checkpoint: exit %d, %s", code, stderr)
	}
	file, err := eval.ReadResults(filepath.Join(dir, "quiet.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Results {
		if r.Score == nil || r.Failed() || r.Prediction.Turns == 0 || len(r.Prediction.Transcript) == 0 {
			t.Errorf("question %s: %+v", r.ID, r)
		}
	}
	if m := file.Manifest; m.ModelHash == "" || m.PromptHash == "" || m.DatasetDigest == "" || m.SQLite == "" || m.Profile != "hermes" || m.Flags["response-length"] != "2048" {
		t.Errorf("manifest %+v", m)
	}
}
