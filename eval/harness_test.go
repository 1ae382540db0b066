package eval

import (
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReadHarness(t *testing.T) {
	examples := []Example{{ID: "0", DB: "a", Question: "how many?"}, {ID: "1", DB: "b", Question: "which?"}}
	for _, c := range []struct {
		name, file string
		want       map[string]string
		err        string
	}{
		{"list by position", `[{"db_id":"a","pred_sql":"x"},{"db_id":"b","pred_sql":"y"}]`, map[string]string{"0": "x", "1": "y"}, ""},
		{"list in an object, by id", `{"accuracy":0.5,"results":[{"idx":1,"sql":"y","question":"which?"}]}`, map[string]string{"1": "y"}, ""},
		{"one a line", "{\"id\":\"0\",\"prediction\":null}\n\n{\"id\":\"1\",\"prediction\":\"y\"}\n", map[string]string{"0": "", "1": "y"}, ""},
		{"mixed up databases", `[{"db":"b","pred":"x"}]`, nil, "for database b, but question 0 is about a"},
		{"other questions", `[{"question":"when?","pred":"x"}]`, nil, "question is not that of 0"},
		{"an id too many", `[{"id":7,"pred":"x"}]`, nil, "no question has the id 7"},
		{"twice", `[{"id":0,"pred":"x"},{"id":0,"pred":"y"}]`, nil, "second prediction for question 0"},
		{"no SQL", `[{"id":0,"text":"x"}]`, nil, "no SQL: there is none of pred_sql"},
		{"no JSON", `SELECT 1`, nil, "neither a JSON list"},
		{"empty", ``, nil, "no prediction"},
	} {
		path := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
			t.Fatal(err)
		}
		predictions, err := ReadHarness(path, examples)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: %v, want %q", c.name, err, c.err)
		}
		got := map[string]string{}
		for id, p := range predictions {
			got[id] = p.SQL
		}
		if c.err == "" && !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
	path := filepath.Join(t.TempDir(), "p.json")
	record := `[{"id":0,"pred":"x","stop_reason":"max_turns","n_calls":3,"turns":[1,2,3,4]}]`
	if err := os.WriteFile(path, []byte(record), 0o644); err != nil {
		t.Fatal(err)
	}
	predictions, err := ReadHarness(path, examples)
	if p := predictions["0"]; err != nil || p.Stop != "max_turns" || p.ToolCalls != 3 || p.Turns != 4 {
		t.Errorf("%+v, %v", p, err)
	}
}

func FuzzReadHarness(f *testing.F) {
	f.Add(`[{"id":0,"sql":"x","turns":[1]}]`)
	f.Add(`{"results":[{"pred":null}]}`)
	f.Add("{\"id\":\"0\"}\n{}")
	examples := []Example{{ID: "0", DB: "a", Question: "q"}}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "p.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if predictions, err := ReadHarness(path, examples); err == nil && len(predictions) > len(examples) {
			t.Errorf("%d predictions for %d questions", len(predictions), len(examples))
		}
	})
}
