package transcriptview

import (
	"strings"
	"testing"

	"quern/toolloop"
)

func sample() []toolloop.Transcript {
	return []toolloop.Transcript{{
		Version: 1, Question: "How many <b>singers</b>?", Profile: "hermes", Pack: "hermes", PackHash: "0123456789abcdef", Notes: []string{"no sample values"},
		Turns: []toolloop.Turn{
			{Tokens: 20, Thinking: "hm", Content: "Let me look.", Finish: toolloop.FinishEOG, Calls: []toolloop.CallRecord{
				{Name: "run_sql", Arguments: []byte(`{"query": "SELECT 1"}`), Observation: &toolloop.Observation{Text: "\x1b[2J</pre><script>alert(1)</script>", Full: "whole", SQL: "SELECT 1"}},
				{Name: "run_sql", Arguments: []byte(`{"query": "SELECT 2"}`), Dropped: true},
				{Name: "other", Arguments: []byte(`{}`), Observation: &toolloop.Observation{Text: "no such tool", Failure: toolloop.FailUnknownTool}},
			}},
			{Tokens: 9, Content: "```sql\nSELECT 3\n```", Finish: toolloop.FinishLength, Forced: true},
		},
		FinalSQL: "SELECT 3", Stop: toolloop.StopForcedFinal,
	}}
}

func TestText(t *testing.T) {
	var b strings.Builder
	if err := WriteText(&b, append(sample(), sample()...)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"question   How many", "0123456789ab", "thinks hm", "run_sql SELECT 1", "dropped run_sql", "unknown_tool no such tool", "asked for the answer, length", "forced_final SELECT 3", "no sample values", "═"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "\x1b") {
		t.Error("a control character reaches the terminal")
	}
}

func TestHTML(t *testing.T) {
	var b strings.Builder
	if err := WriteHTML(&b, "Run", sample()); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"How many &lt;b&gt;", "SELECT 1", "not run: run_sql", "whole result", "SELECT 3", "forced_final"} {
		if !strings.Contains(b.String(), want) {
			t.Errorf("no %q in\n%s", want, b.String())
		}
	}
	if strings.Contains(b.String(), "<script>") {
		t.Error("text from a database became markup")
	}
}
