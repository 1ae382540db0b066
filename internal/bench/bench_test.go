package bench

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/engine"
	"quern/internal/synth"
	"quern/internal/testenv"
	"quern/tensor"
)

// tinyModel writes a model that runs in no time.
func tinyModel(t *testing.T, shape string) string {
	t.Helper()
	s, err := synth.Find(shape)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), shape+".gguf")
	if err := synth.WriteGGUF(t.Context(), s, tensor.F32, path); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestRecordedLoad(t *testing.T) {
	l, err := ReadLoad("demo")
	if err != nil {
		t.Fatal(err)
	}
	if len(l.Questions) != 64 || len(l.Schemas) != 8 {
		t.Errorf("%d questions over %d databases", len(l.Questions), len(l.Schemas))
	}
	a, b := l.conversations(2048), l.First(9).conversations(2048)
	for i := range b {
		n := commonLength(a[0].prompt, b[i].prompt)
		if want := l.Questions[i].Schema == l.Questions[0].Schema; (n >= a[0].prefix) != want {
			t.Errorf("question %d shares %d tokens with the first", i, n)
		}
		if commonLength(a[i].prompt, b[i].prompt) != len(a[i].prompt) {
			t.Errorf("question %d has other tokens in a shorter load", i)
		}
	}
}

func commonLength(a, b []int32) int {
	n := 0
	for n < min(len(a), len(b)) && a[n] == b[n] {
		n++
	}
	return n
}

func TestBadLoads(t *testing.T) {
	for _, text := range []string{
		`{`, `{}`, `{"schemas": [], "questions": [{"schema": 0, "question": 1, "turns": [[1, 0]]}]}`,
		`{"schemas": [5], "questions": [{"schema": 0, "question": 1, "turns": []}]}`,
		`{"schemas": [5], "questions": [{"schema": 0, "question": 1, "turns": [[0, 0]]}]}`,
		`{"schemas": [5], "questions": [{"schema": -1, "question": 1, "turns": [[1, 0]]}]}`,
	} {
		path := filepath.Join(t.TempDir(), "load.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := ReadLoad(path); err == nil {
			t.Errorf("accepted: %s", text)
		}
	}
}

func TestFigure(t *testing.T) {
	var f Figure
	for _, x := range []float64{3, 100, 1} {
		f.add(x)
	}
	if f.Median != 3 || f.String() != "3.00 (1.00–100)" {
		t.Errorf("%v is %s", f, &f)
	}
	f.add(5)
	if f.Median != 4 {
		t.Errorf("median of four: %v", f.Median)
	}
}

func TestReadBatchedBench(t *testing.T) {
	widths := []GenWidth{{Lanes: 1}, {Lanes: 4}}
	out := `{"n_kv_max": 1024, "pp": 8, "tg": 4, "pl": 1, "speed_pp": 100.5, "speed_tg": 10.5}
{"pp": 8, "tg": 4, "pl": 4, "speed_pp": 200, "speed_tg": 30}
`
	if err := readBatchedBench([]byte(out), widths); err != nil {
		t.Fatal(err)
	}
	if widths[0].PeerDecode.Median != 10.5 || widths[1].PeerPrefill.Median != 200 {
		t.Errorf("%+v", widths)
	}
	if err := readBatchedBench([]byte("main: error\n"), widths); err == nil || !strings.Contains(err.Error(), "main: error") {
		t.Errorf("without rows: %v", err)
	}
}

// All parties that are here, on small models: the figures are there and the documents can be written.
func TestRunBesideThePeers(t *testing.T) {
	tools := filepath.Dir(testenv.Tool(t, "llama-server"))
	for _, shape := range []string{"qwen2-mini", "qwen3.5-mini"} {
		t.Run(shape, func(t *testing.T) {
			o := Options{Model: tinyModel(t, shape), Threads: 1, Chunk: 64, Repeats: 1, Tools: tools, Flash: engine.On}
			report := measure(t, o)
			for _, w := range report.Gen.Widths {
				if w.Decode.Median <= 0 || w.PeerDecode.Median <= 0 || w.DecodeOf <= 0 || w.PrefillOf <= 0 {
					t.Errorf("%+v", w)
				}
			}
			if report.Agent[0].OverServer <= 0 {
				t.Errorf("%+v", report.Agent[0])
			}
		})
	}
}

func TestRunAlone(t *testing.T) {
	report := measure(t, Options{Model: tinyModel(t, "qwen2-mini"), Threads: 1, Chunk: 64, Repeats: 2})
	if w := report.Gen.Widths[1]; w.Lanes != 3 || len(w.Decode.Runs) != 2 || w.PeerDecode != nil || w.OfBandwidth <= 0 {
		t.Errorf("%+v", w)
	}
	s := report.Agent[0].Stats
	if s.PrefixHits == 0 || s.Continued == 0 || s.DecodeTokens == 0 {
		t.Errorf("%+v", s)
	}
	if report.Agent[0].Missing == "" || report.Model.Type != "f32" || report.Model.Parameters == 0 {
		t.Errorf("%+v", report)
	}
}

func measure(t *testing.T, o Options) *Report {
	t.Helper()
	report, err := NewReport(o)
	if err != nil {
		t.Fatal(err)
	}
	if report.Gen, err = Gen(t.Context(), GenOptions{Options: o, Lanes: []int{1, 3}, Prompt: 20, Generate: 6}); err != nil {
		t.Fatal(err)
	}
	load, err := ReadLoad("demo")
	if err != nil {
		t.Fatal(err)
	}
	agent, err := Agent(t.Context(), AgentOptions{Options: o, Load: load.First(5), Lanes: 3})
	if report.Agent = append(report.Agent, agent); err != nil {
		t.Fatal(err)
	}
	var text, document strings.Builder
	if err := report.WriteTable(&text); err != nil {
		t.Fatal(err)
	}
	if err := report.WriteMarkdown(&document); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(report)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"llama-batched-bench", "llama-server", "tokens per second"} {
		if !strings.Contains(text.String(), word) || !strings.Contains(document.String(), word) {
			t.Errorf("%q is missing in:\n%s\n%s", word, &text, &document)
		}
	}
	t.Logf("%s\n%s", &text, data)
	return report
}
