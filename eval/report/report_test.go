package report

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"quern/eval"
	"quern/internal/testenv"
)

// hostile is text that would end up as markup, or break out of it, if it were not escaped.
const hostile = `</details><script>alert(1)</script>&lt;"'|` + "\n`x`"

func testRun(name string, right ...bool) *eval.ResultsFile {
	run := &eval.ResultsFile{Path: name + ".jsonl", Manifest: eval.Manifest{Format: 1, Model: "m.gguf", Dataset: eval.Spider, Flags: map[string]string{"max-turns": "8"}}}
	for i, ok := range right {
		score := &eval.Score{Official: eval.Wrong, Strict: eval.Wrong, Failure: eval.ValueMismatch, Difficulty: "easy", Message: hostile,
			Gold:      &eval.Table{Columns: []string{"a", hostile}, Rows: [][]any{{int64(1), "x"}, {nil, hostile}}, Total: 2},
			Predicted: &eval.Table{Columns: []string{"a", "b"}, Rows: [][]any{{int64(1), "x"}, {2.5, "y"}}, Total: 40},
			Doubts:    []eval.Doubt{{Kind: eval.DoubtTies, Evidence: "other rows come out"}}}
		if ok {
			score = &eval.Score{Official: eval.Correct, Strict: eval.Correct, Difficulty: "easy"}
		}
		transcript := json.RawMessage(`{"turns":[{"thinking":"hm","content":"let me see","calls":[{"name":"run_sql","arguments":{"query":"SELECT 1"},"observation":{"text":"{\"rows\": [[1]]}","sql":"SELECT 1"}}]},{"content":"done"}]}`)
		run.Results = append(run.Results, eval.Result{Example: eval.Example{ID: fmt.Sprint(i), Index: i, DB: "shop", Question: "how many? " + hostile, Gold: "SELECT 1"}, Score: score,
			Prediction: eval.Prediction{SQL: "SELECT 2", Stop: "final_sql", Turns: 2, ToolCalls: 1, Queries: []eval.Query{{SQL: "SELECT 1", Rows: 1}},
				Tokens: eval.Tokens{Prompt: 100, Generated: 20, Tool: 5}, Transcript: transcript,
				Vote: &eval.Vote{Greedy: "SELECT 3", Winner: 0, Candidates: []eval.Candidate{{SQL: hostile, Result: "abc"}, {SQL: "x", Error: "no SQL"}}, Score: score}}})
	}
	return run
}

func testTotals(eval.Manifest, []eval.Result) []eval.Totals {
	return []eval.Totals{{Title: "Official", Columns: []string{"", "all"}, Rows: [][]string{{"execution", "0.500"}}}}
}

func TestMarkdown(t *testing.T) {
	runs := []*eval.ResultsFile{testRun("before", true, false, false), testRun("after", true, true, false)}
	var b strings.Builder
	if err := Markdown(&b, eval.BuildReport(runs, testTotals)); err != nil {
		t.Fatal(err)
	}
	text := b.String()
	for _, want := range []string{"| official accuracy | 33.3 % (1/3) | 66.7 % (2/3) |", "| value mismatch | 100.0 % (2/2) | 100.0 % (1/1) |",
		"### Official", "| execution | 0.500 |", "### Suspected wrong golds", "other rows come out", "| --max-turns | 8 |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, line := range strings.Split(text, "\n") {
		if strings.HasPrefix(line, "|") && !strings.HasSuffix(line, "|") || strings.Contains(line, "<script>") {
			t.Errorf("text breaks out of its table: %q", line)
		}
	}
}

func TestCompareMarkdown(t *testing.T) {
	c, err := eval.Compare(testRun("before", true, false, false), testRun("after", true, true, false), false)
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if err := CompareMarkdown(&b, c); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"# after against before", "| fixed | 1 |", "| net | +1 |", "p = 1.000", "| shop | 3 | 1 | 2 | 1 | 0 | +1 |", "## Fixed\n\n1\n"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
}

func writePage(t *testing.T, runs ...*eval.ResultsFile) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "report.html")
	file, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if err := HTML(file, eval.BuildReport(runs, testTotals), runs); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestHTMLEscapes(t *testing.T) {
	page, err := os.ReadFile(writePage(t, testRun("a", true, false), testRun("b", false, false)))
	if err != nil {
		t.Fatal(err)
	}
	if strings.Contains(string(page), "<script>alert") || strings.Count(string(page), "</details>") != strings.Count(string(page), "<details") {
		t.Error("text from the results is markup in the page")
	}
	for _, foreign := range []string{"http://", "https://", "src=", "@import"} {
		if strings.Contains(string(page), foreign) {
			t.Errorf("the page is not self-contained: it holds %s", foreign)
		}
	}
}

// The page in a real browser: nothing is fetched, no script fails, questions open and filters work, in both colour schemes.
func TestHTMLInBrowser(t *testing.T) {
	path, err := exec.LookPath("chromium")
	if err != nil {
		testenv.Missing(t, "no chromium here to look at the page with (Debian/Ubuntu: sudo apt-get install chromium)")
	}
	page := "file://" + writePage(t, testRun("before", true, false, false), testRun("after", true, true, false))
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ctx, cancel = chromedp.NewContext(ctx, chromedp.WithAllocatorOptions(chromedp.ExecPath(path), chromedp.NoSandbox))
	defer cancel()
	var mu sync.Mutex
	var problems []string
	must(t, chromedp.Listen(ctx, func(event any) {
		mu.Lock()
		defer mu.Unlock()
		switch e := event.(type) {
		case *runtime.EventExceptionThrown:
			problems = append(problems, e.ExceptionDetails.Text)
		case *network.EventRequestWillBeSent:
			if url, _, _ := strings.Cut(e.Request.URL, "#"); url != page && url != "about:blank" {
				problems = append(problems, "fetches "+url)
			}
		}
	}))
	b := browser{t, ctx}
	scheme := func(name string) string {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
		must(t, err)
		return b.text(`getComputedStyle(document.body).backgroundColor`)
	}
	_, err = chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must(t, err)
	must(t, chromedp.Do(ctx, chromedp.Navigate(page)))
	const shown = `document.querySelectorAll('details.q:not(.hide)').length`
	for _, c := range []struct{ button, want string }{{"all", "3"}, {"wrong", "1"}, {"mixed", "1"}, {"right", "1"}, {"suspect", "2"}} {
		must(t, chromedp.Do(ctx, chromedp.Click(chromedp.CSS("button[data-show="+c.button+"]"))))
		if got := b.text(shown); got != c.want {
			t.Errorf("%s questions shown for %q, want %s", got, c.button, c.want)
		}
	}
	must(t, chromedp.Do(ctx, chromedp.SendKeys(chromedp.CSS("nav input"), "no such text")))
	if got := b.text(shown); got != "0" {
		t.Errorf("%s questions found by a text that none holds", got)
	}
	b.text(`location.hash = '#q-2'`)
	must(t, chromedp.Do(ctx, chromedp.WaitReady(chromedp.CSS("#q-2[open] pre"))))
	must(t, chromedp.Do(ctx, chromedp.Navigate("about:blank"), chromedp.Navigate(page+"#q-1"), chromedp.WaitReady(chromedp.CSS("#q-1[open] pre")))) // a link from elsewhere
	if light, dark := scheme("light"), scheme("dark"); light == dark {
		t.Errorf("the page is %s in both colour schemes", light)
	}
	mu.Lock()
	defer mu.Unlock()
	if len(problems) > 0 {
		t.Errorf("problems: %v", problems)
	}
}

type browser struct {
	t   *testing.T
	ctx context.Context
}

// text is what a JavaScript expression gives, as text.
func (b browser) text(expression string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string]("String("+expression+")"))
	must(b.t, err)
	return v
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
