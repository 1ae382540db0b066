package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"quern/eval"
	"quern/internal/testenv"
)

// The published mistake and its remedy in small: the base alone, the second adapter on the wrong base, and the whole chain,
// made, run, reported and compared. On the 30 questions about one database the chain wins by the sign test.
func TestEvalThreeModels(t *testing.T) {
	parts, dir := filepath.Join(testenv.Root(), "testdata", "demo-model"), t.TempDir()
	base, first, second := filepath.Join(parts, "base"), filepath.Join(parts, "adapters", "stage1"), filepath.Join(parts, "adapters", "checkpoint-1066-adapter.zip")
	ok := func(args ...string) string {
		t.Helper()
		stdout, stderr, code := run(t, args...)
		if code != exitOK {
			t.Fatalf("%v: exit %d\n%s", args, code, stderr)
		}
		return stdout
	}
	file := func(name string) string { return filepath.Join(dir, name) }
	ok("lora", "merge", "--base", base, "--adapter", second, "--accept-base-mismatch", "--out", file("wrong"))
	print := strings.TrimSpace(ok("inspect", "--fingerprint", base))
	ok("lora", "merge", "--base", base, "--base-fingerprint", print, "--adapter", first, "--adapter", second, "--out", file("right"))
	for name, checkpoint := range map[string]string{"base": base, "wrong": file("wrong"), "right": file("right")} {
		ok("convert", checkpoint, "--type", "f32", "--out", file(name+".gguf"))
		ok("eval", "run", "--dataset", "spider", "--data", filepath.Join(parts, "heldout"), "--ids", idRange(30, 60), "--model", file(name+".gguf"), "--out", file(name+".jsonl"))
	}
	ok("eval", "report", file("base.jsonl"), file("wrong.jsonl"), file("right.jsonl"), "--html", file("page.html"), "--json", file("report.json"))
	var report eval.Report
	readJSON(t, file("report.json"), &report)
	for i, want := range []struct{ right, calls int }{{18, 0}, {18, 0}, {26, 30}} { // by the reference loop, within two
		accuracy, _ := report.Runs[i].Figure("accuracy.official")
		calls, _ := report.Runs[i].Figure("tools.no_call")
		if off := accuracy.Count - want.right; off < -2 || off > 2 || accuracy.Of != 30 || 30-calls.Count < want.calls-3 || 30-calls.Count > want.calls {
			t.Errorf("%s: %d of %d right, %d without a call; want about %d right and %d with one", report.Runs[i].Name, accuracy.Count, accuracy.Of, calls.Count, want.right, want.calls)
		}
	}
	var c eval.Comparison
	if err := json.Unmarshal([]byte(ok("eval", "compare", file("wrong.jsonl"), file("right.jsonl"), "--json", "-")), &c); err != nil {
		t.Fatal(err)
	}
	if c.Net < 4 || c.SignTest > 0.05 {
		t.Errorf("the right merge against the wrong one: %d fixed, %d broken, p = %.3f", len(c.Fixed), len(c.Broken), c.SignTest)
	}
	if page, err := os.ReadFile(file("page.html")); err != nil || !bytes.Contains(page, []byte("runs differ")) {
		t.Errorf("no page of three runs: %v", err)
	}
}

func idRange(from, to int) string {
	var ids []string
	for i := from; i < to; i++ {
		ids = append(ids, fmt.Sprint(i))
	}
	return strings.Join(ids, ",")
}

func readJSON(t *testing.T, path string, v any) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, v); err != nil {
		t.Fatal(err)
	}
}

// xmlServer is an OpenAI-compatible server that knows the answers to two of Spider2-lite's questions about chinook. It
// fails once, looks, and answers; or it goes on looking until it is asked to stop.
type xmlServer struct {
	endless bool
	asked   atomic.Int64
}

var chinookAnswers = map[string]string{
	"median value": "SELECT 249.53 AS m", // rounded as the gold table is
	"first names of customers": `SELECT FirstName, spent FROM (SELECT c.CustomerId, c.FirstName, SUM(ii.UnitPrice * ii.Quantity) AS spent FROM customers c
		JOIN invoices i ON i.CustomerId = c.CustomerId JOIN invoice_items ii ON ii.InvoiceId = i.InvoiceId JOIN tracks t ON t.TrackId = ii.TrackId
		JOIN albums al ON al.AlbumId = t.AlbumId WHERE al.ArtistId = (SELECT al.ArtistId FROM invoice_items ii JOIN tracks t ON t.TrackId = ii.TrackId
		JOIN albums al ON al.AlbumId = t.AlbumId GROUP BY al.ArtistId ORDER BY SUM(ii.UnitPrice * ii.Quantity) DESC LIMIT 1) GROUP BY c.CustomerId) WHERE spent < 1`,
}

func (s *xmlServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodGet {
		fmt.Fprint(w, `{"data": [{"id": "scripted"}]}`)
		return
	}
	s.asked.Add(1)
	var request struct {
		Messages []struct{ Role, Content string }
		Tools    []struct{ Function struct{ Name string } }
	}
	if err := json.NewDecoder(r.Body).Decode(&request); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	looked := 0
	for _, m := range request.Messages {
		if m.Role == "tool" {
			looked++
		}
	}
	last := request.Messages[len(request.Messages)-1]
	delta, _ := json.Marshal(map[string]any{"choices": []any{map[string]any{"delta": map[string]any{"content": s.answer(request.Tools[0].Function.Name, request.Messages[1].Content, looked, looked > 0 && last.Role == "user")}}}})
	fmt.Fprintf(w, "data: %s\n\ndata: {\"choices\": [{\"delta\": {}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n", delta)
}

func (s *xmlServer) answer(tool, question string, looked int, last bool) string {
	sql := "SELECT MAX(Total) FROM invoices"
	for words, answer := range chinookAnswers {
		if strings.Contains(question, words) {
			sql = answer
		}
	}
	call := func(sql string) string {
		return "Let me look.\n<tool_call>\n<function=" + tool + ">\n<parameter=query>\n" + sql + "\n</parameter>\n</function>\n</tool_call>"
	}
	switch {
	case last, !s.endless && looked == 2:
		return "Done.\n\n```sql\n" + sql + "\n```"
	case looked == 0:
		return call("SELECT count(*) FROM nosuch")
	}
	return call(sql)
}

// Spider2-lite through a server with XML calls: published limits and column policy, calls, a failed one, the answer, and the
// verdict in both modes. A stopped run ends in the same file.
func TestEvalSpider2OnServer(t *testing.T) {
	data, dir := testenv.Shared(t, "data", "spider2"), t.TempDir()
	server := &xmlServer{}
	listener := httptest.NewServer(server)
	defer listener.Close()
	args := func(out string) []string {
		return []string{"run", "--dataset", "spider2", "--data", data, "--ids", "local054,local055,local198", "--backend", listener.URL, "--profile", "qwen-xml",
			"--batch-size", "1", "--deterministic", "--out", filepath.Join(dir, out)}
	}
	if out := evalOK(t, args("run.jsonl")...); !strings.Contains(out, "Correct examples: 2, Total examples: 3") {
		t.Errorf("SQL mode:\n%s", out)
	}
	file, err := eval.ReadResults(filepath.Join(dir, "run.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	m := file.Manifest
	if m.Model != "scripted" || m.Engine != listener.URL || m.Profile != "qwen-xml" || m.Flags["max-turns"] != "20" || m.Flags["max-new-tokens"] != "2048" ||
		m.Flags["max-input-tokens"] != "30000" || m.Flags["col-policy"] != "spider2" {
		t.Errorf("manifest %+v", m)
	}
	for _, r := range file.Results {
		if p := r.Prediction; p.Stop != "final_sql" || p.ToolCalls != 2 || len(p.Queries) != 2 || !strings.Contains(p.Queries[0].Error, "nosuch") || p.Queries[1].Error != "" {
			t.Errorf("%s: %+v", r.ID, p)
		}
	}

	ctx, stop := context.WithCancel(context.Background())
	go func() {
		for before := server.asked.Load(); ctx.Err() == nil; {
			if server.asked.Load() > before+4 {
				stop()
			}
		}
	}()
	if _, stderr, code := evalRunTest(t, ctx, args("stopped.jsonl")...); code != exitFailed {
		t.Logf("the run was not stopped in time: exit %d, %s", code, stderr)
	}
	stop()
	evalOK(t, args("stopped.jsonl")...)
	want, _ := os.ReadFile(filepath.Join(dir, "run.jsonl"))
	if got, err := os.ReadFile(filepath.Join(dir, "stopped.jsonl")); err != nil || !bytes.Equal(got, want) {
		t.Errorf("a stopped run ends in another file: %v", err)
	}

	tables := filepath.Join(dir, "tables")
	if err := os.Mkdir(tables, 0o755); err != nil {
		t.Fatal(err)
	}
	for id, text := range map[string]string{"local198": "m\n249.53\n", "local054": "n\nnobody\n"} {
		if err := os.WriteFile(filepath.Join(tables, id+".csv"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if out := evalOK(t, "score", "--dataset", "spider2", "--data", data, tables); !strings.Contains(out, "Correct examples: 1, Total examples: 2") {
		t.Errorf("CSV mode:\n%s", out)
	}
}

// A model that looks for ever is asked for its answer when the turns are used up.
func TestEvalForcedFinal(t *testing.T) {
	data, out := testenv.Shared(t, "data", "spider2"), filepath.Join(t.TempDir(), "run.jsonl")
	listener := httptest.NewServer(&xmlServer{endless: true})
	defer listener.Close()
	evalOK(t, "run", "--dataset", "spider2", "--data", data, "--ids", "local198", "--backend", listener.URL, "--profile", "qwen-xml", "--out", out)
	file, err := eval.ReadResults(out)
	if err != nil {
		t.Fatal(err)
	}
	if r := file.Results[0]; r.Prediction.Stop != "forced_final" || r.Prediction.ToolCalls != 20 || r.Prediction.Turns != 21 || !r.Score.Right() {
		t.Errorf("%+v, %+v", r.Prediction, r.Score)
	}
}

// Whatever changes the prompts, the draw or the limits makes another run, whose checkpoint is refused with the difference.
func TestEvalOtherRun(t *testing.T) {
	data, out := testenv.Shared(t, "data", "spider2"), filepath.Join(t.TempDir(), "run.jsonl")
	listener := httptest.NewServer(&xmlServer{})
	defer listener.Close()
	args := []string{"run", "--dataset", "spider2", "--data", data, "--ids", "local198", "--backend", listener.URL, "--profile", "qwen-xml", "--out", out}
	evalOK(t, args...)
	for _, flags := range [][]string{
		{"--top-k", "5"}, {"--top-p", "0.5"}, {"--min-p", "0.1"}, {"--repeat-penalty", "1.1"}, {"--temperature", "1"}, {"--seed", "3"},
		{"--tables", "invoices"}, {"--sql-max-bytes", "1MB"}, {"--sql-memory", "64MB"}, {"--sql-timeout", "3s"}, {"--sql-max-rows", "9"},
		{"--max-turns", "3"}, {"--max-new-tokens", "99"}, {"--max-input-tokens", "9999"}, {"--col-policy", "v3"}, {"--thinking", "off"}, {"--kv-type", "f32"}, {"--ctx", "4096"},
		{"--score-timeout", "3s"}, {"--gold-timeout", "3s"}, {"--deterministic"},
	} {
		_, stderr, code := evalRunTest(t, context.Background(), append(args, flags...)...)
		if code != exitFailed || !strings.Contains(stderr, "made by another run") || !strings.Contains(stderr, flags[0]+": ") {
			t.Errorf("%v on the same checkpoint: exit %d, %s", flags, code, stderr)
		}
	}
	_, stderr, code := evalRunTest(t, context.Background(), append(args, "--backend-model", "other")...)
	if code != exitFailed || !strings.Contains(stderr, "model: scripted, now other") {
		t.Errorf("another model at the server: exit %d, %s", code, stderr)
	}
}

// Questions that our side cannot answer are no zeros, and the exit code tells.
func TestEvalPromptThatCannotFit(t *testing.T) {
	data, out := testenv.Shared(t, "data", "spider2"), filepath.Join(t.TempDir(), "run.jsonl")
	listener := httptest.NewServer(&xmlServer{})
	defer listener.Close()
	_, stderr, code := evalRunTest(t, context.Background(), "run", "--dataset", "spider2", "--data", data, "--ids", "local198", "--backend", listener.URL,
		"--profile", "qwen-xml", "--max-input-tokens", "100", "--out", out)
	if code != exitFailed || !strings.Contains(stderr, "failed on our side: 1") {
		t.Errorf("exit %d, %s", code, stderr)
	}
	file, err := eval.ReadResults(out)
	if err != nil {
		t.Fatal(err)
	}
	if r := file.Results[0]; r.Score != nil || !strings.Contains(r.Prediction.Error, "raise the input budget") {
		t.Errorf("%+v", r)
	}
}

// birdFolder lays a few questions out in BIRD's form, over databases made for the scorers' goldens.
func birdFolder(t *testing.T, withGold bool) string {
	t.Helper()
	from, dir := testenv.OracleInputs(t, "eval", "bird", "database"), t.TempDir()
	var questions []map[string]any
	for i, gold := range []string{"SELECT name FROM student", "SELECT count(*) FROM student", "SELECT nosuch FROM student"} {
		q := map[string]any{"question_id": i, "db_id": "campus", "question": "Which students are there?", "evidence": "a student is a person", "difficulty": "simple"}
		if withGold {
			q["SQL"] = gold
		}
		questions = append(questions, q)
	}
	text, _ := json.Marshal(questions)
	database := filepath.Join(dir, "dev_databases", "campus")
	if err := os.MkdirAll(filepath.Join(database, "database_description"), 0o755); err != nil {
		t.Fatal(err)
	}
	sqlite, err := os.ReadFile(filepath.Join(from, "campus", "campus.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	for name, text := range map[string][]byte{
		filepath.Join(dir, "dev.json"): text, filepath.Join(database, "campus.sqlite"): sqlite,
		filepath.Join(database, "database_description", "student.csv"): []byte("\ufefforiginal_column_name,column_name,column_description,data_format,value_description\nage,,years since birth,,\n"),
	} {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// BIRD's evidence and descriptions are in the prompt, its tables are printed, and golds that fail are told by the selftest.
func TestEvalBIRD(t *testing.T) {
	data, out := birdFolder(t, true), filepath.Join(t.TempDir(), "run.jsonl")
	var prompts []string
	listener := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			fmt.Fprint(w, `{"data": [{"id": "scripted"}]}`)
			return
		}
		var request struct{ Messages []struct{ Content string } }
		json.NewDecoder(r.Body).Decode(&request)
		prompts = append(prompts, request.Messages[0].Content+request.Messages[1].Content)
		fmt.Fprint(w, "data: {\"choices\": [{\"delta\": {\"content\": \"```sql\\nSELECT name FROM student\\n```\"}, \"finish_reason\": \"stop\"}]}\n\ndata: [DONE]\n\n")
	}))
	defer listener.Close()
	answer := func(data, out string, more ...string) (string, string) {
		stdout, stderr, code := evalRunTest(t, context.Background(), append([]string{"run", "--dataset", "bird", "--data", data, "--backend", listener.URL,
			"--profile", "qwen-xml", "--batch-size", "1", "--out", out}, more...)...)
		if code != exitOK {
			t.Fatalf("exit %d, %s", code, stderr)
		}
		return stdout, stderr
	}
	stdout, _ := answer(data, out)
	for _, want := range []string{"33.33", "Soft-F1", "simple"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("no %q in\n%s", want, stdout)
		}
	}
	for _, want := range []string{"years since birth", "a student is a person"} {
		if !strings.Contains(prompts[0], want) {
			t.Errorf("no %q in the prompt\n%s", want, prompts[0])
		}
	}
	var report selftestReport
	text, _, code := evalRunTest(t, context.Background(), "selftest", "--dataset", "bird", "--data", data, "--json")
	if err := json.Unmarshal([]byte(text), &report); err != nil || code != exitFailed || report.Right != 2 || len(report.Failed) != 1 ||
		report.Failed[0].Doubts[0].Kind != "prediction_failed" || report.Failed[0].Doubts[0].Evidence != "no such column: nosuch" {
		t.Errorf("selftest: exit %d, %v, %+v", code, err, report)
	}

	// Questions without gold are answered, not scored.
	hidden := filepath.Join(t.TempDir(), "hidden.jsonl")
	stdout, stderr := answer(birdFolder(t, false), hidden)
	if stdout != "" || !strings.Contains(stderr, "holds no gold") {
		t.Errorf("without gold: %s%s", stdout, stderr)
	}
	for _, verb := range [][]string{{"selftest"}, {"score", hidden}} {
		_, stderr, code := evalRunTest(t, context.Background(), append([]string{verb[0], "--dataset", "bird", "--data", birdFolder(t, false)}, verb[1:]...)...)
		if code != exitFailed || !strings.Contains(stderr, "holds no gold") {
			t.Errorf("%s without gold: exit %d, %s", verb[0], code, stderr)
		}
	}
	file, err := eval.ReadResults(hidden)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range file.Results {
		if r.Score != nil || r.Prediction.SQL != "SELECT name FROM student" {
			t.Errorf("%+v", r)
		}
	}
	evalOK(t, "report", hidden, "--html", filepath.Join(t.TempDir(), "hidden.html"), "--markdown", "-")
}
