package assistant

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/sqlguard"
	"quern/toolloop"
)

func result(rows ...string) sqlguard.Result {
	r := sqlguard.Result{Columns: []sqlguard.Column{{Name: "a"}}}
	for _, text := range rows {
		r.Rows = append(r.Rows, []sqlguard.Value{{Kind: sqlguard.Text, Data: text}})
	}
	return r
}

func TestResultNotes(t *testing.T) {
	cut := result("x")
	cut.Truncated = sqlguard.CutByMaxRows
	failed := sqlguard.Result{Failure: &sqlguard.Failure{Message: "no such table: x", Hint: "did you mean y?"}}
	for sql, c := range map[string]struct {
		result sqlguard.Result
		want   string
	}{
		"SELECT 1":                     {result("x"), ""},
		"SELECT 2":                     {result(), "found no rows"},
		"SELECT 3":                     {cut, "--sql-max-rows"},
		"SELECT 4":                     {failed, "no such table: x (did you mean y?)"},
		"SELECT 5 LIMIT 2":             {result("x", "y"), "stops at LIMIT 2"},
		"SELECT 6 LIMIT 2 OFFSET 4 ;":  {result("x", "y"), "stops at LIMIT 2"},
		"SELECT 6 LIMIT 4, 2":          {result("x", "y"), "stops at LIMIT 2"},
		"SELECT 7 LIMIT 3":             {result("x", "y"), ""},
		"SELECT 8 ORDER BY a LIMIT 1":  {result("x"), ""}, // one row was asked for: the largest, the first
		"SELECT (SELECT 9 LIMIT 1), 2": {result("x", "y"), ""},
	} {
		got := strings.Join(resultNotes(sql, c.result), " ")
		if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", sql, got, c.want)
		}
	}
}

func TestEveryStopIsExplained(t *testing.T) {
	for _, stop := range []toolloop.StopReason{toolloop.StopForcedFinal, toolloop.StopNoSQL, toolloop.StopMaxTurns, toolloop.StopMaxTokens, toolloop.StopContextFull, toolloop.StopCancelled} {
		if notes := stopNotes(context.Background(), &toolloop.Transcript{Stop: stop}); len(notes) != 1 || notes[0] == "" {
			t.Errorf("%s: %q", stop, notes)
		}
	}
	if notes := stopNotes(context.Background(), &toolloop.Transcript{Stop: toolloop.StopFinalSQL}); len(notes) > 0 {
		t.Errorf("an answer needs no note: %q", notes)
	}
	words := &toolloop.Transcript{Stop: toolloop.StopNoSQL, Turns: []toolloop.Turn{{Content: "I cannot\nsay " + strings.Repeat("ü", 500)}}}
	if notes := stopNotes(context.Background(), words); !strings.Contains(notes[0], "It said: I cannot say üü") || len(notes[0]) > 1000 {
		t.Errorf("what the model said: %q", notes)
	}
	over, cancel := context.WithTimeout(context.Background(), 0)
	defer cancel()
	if notes := stopNotes(over, &toolloop.Transcript{Stop: toolloop.StopCancelled}); !strings.Contains(notes[0], "time") {
		t.Errorf("at a time limit: %q", notes)
	}
}

func TestSimilarExamples(t *testing.T) {
	examples := []Example{{"Count the cats.", "1"}, {"List the names of all dogs.", "2"}, {"How old are the cats?", "3"}, {"Which city is the largest?", "4"}}
	best := similar(examples, "How many cats are there?", 2)
	if len(best) != 2 || best[0].SQL != "3" || best[1].SQL != "1" {
		t.Errorf("%+v", best)
	}
	if got := similar(examples, "Zebra?", 3); len(got) != 0 {
		t.Errorf("nothing is similar, got %+v", got)
	}
	a := &Assistant{options: Options{Examples: examples}}
	if got := a.withExamples("Zebra?"); got != "Zebra?" {
		t.Errorf("without a similar example the question stays as it is: %q", got)
	}
	if got := a.withExamples("Count cats"); !strings.HasSuffix(got, "Now answer this one: Count cats") || !strings.Contains(got, "SQL: 1") {
		t.Errorf("%q", got)
	}
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func TestReadExamples(t *testing.T) {
	got, err := ReadExamples(write(t, "e.json", `[{"question": "q", "sql": "s"}, {"question": "p", "query": "r"}, {"question": "o", "SQL": "n"}]`))
	if err != nil || len(got) != 3 || got[1].SQL != "r" || got[2].SQL != "n" {
		t.Errorf("%v %+v", err, got)
	}
	for _, text := range []string{`{}`, `[{"question": "q"}]`, `nonsense`} {
		if _, err := ReadExamples(write(t, "e.json", text)); err == nil {
			t.Errorf("%s was read", text)
		}
	}
}

func TestDescriptions(t *testing.T) {
	fromJSON, err := ReadDescriptions(write(t, "d.json", `{"Pets": {"": "animals", "Name": "what it\nis called"}}`))
	if err != nil {
		t.Fatal(err)
	}
	bird := write(t, "pets.csv", "\ufefforiginal_column_name,column_name,column_description,data_format,value_description\nname,name,what it is called,text,\"common: Rex\"\nage,years,,integer,\n")
	fromCSV, err := ReadDescriptions(bird)
	if err != nil {
		t.Fatal(err)
	}
	fromFolder, err := ReadDescriptions(filepath.Dir(bird))
	if err != nil || len(fromFolder["pets"]) != 2 {
		t.Errorf("folder: %v %v", err, fromFolder)
	}
	pets := sqlguard.Table{Name: "pets", Columns: []sqlguard.TableColumn{{Name: "name"}, {Name: "age"}}}
	if got, want := fromJSON.comments(pets), "\n-- pets: animals\n-- pets.name: what it is called"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if got, want := fromCSV.comments(pets), "\n-- pets.name: what it is called; common: Rex\n-- pets.age: years"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	for name, text := range map[string]string{"x.json": "[]", "x.csv": "a,b\n1,2\n"} {
		if _, err := ReadDescriptions(write(t, name, text)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
}

func TestWinner(t *testing.T) {
	run := func(r sqlguard.Result, stop toolloop.StopReason, logProb float64) trajectory {
		return trajectory{Answer: Answer{SQL: "s", Result: r, Transcript: &toolloop.Transcript{Stop: stop, Turns: []toolloop.Turn{{LogProb: logProb}}}}}
	}
	failed := sqlguard.Result{Failure: &sqlguard.Failure{Message: "no"}}
	best, agree := winner([]trajectory{
		run(failed, toolloop.StopFinalSQL, 0), run(failed, toolloop.StopFinalSQL, 0), run(failed, toolloop.StopFinalSQL, 0),
		run(result("a", "b"), toolloop.StopFinalSQL, -9), run(result("b", "a"), toolloop.StopFinalSQL, -5),
		run(result("c"), toolloop.StopFinalSQL, -1), run(result("c"), toolloop.StopMaxTokens, 0),
	})
	if agree != 2 || logProb(best) != -5 {
		t.Errorf("%d agree on %+v", agree, best.Result)
	}
	best, agree = winner([]trajectory{run(result("a"), toolloop.StopFinalSQL, -9), run(result("b"), toolloop.StopFinalSQL, -5)})
	if agree != 1 || logProb(best) != -5 {
		t.Errorf("a tie goes to the more probable: %v", logProb(best))
	}
	if best, agree = winner([]trajectory{run(failed, toolloop.StopFinalSQL, -9)}); agree != 0 || best.Result.Failure == nil {
		t.Errorf("when all fail the first is told: %d", agree)
	}
}

// Old conversations are forgotten, the others are found in any order.
func TestConversationsAreBounded(t *testing.T) {
	a := &Assistant{}
	var ids []string
	for range keptConversations + 1 {
		c, err := a.conversation("")
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, c.ID)
	}
	if _, err := a.conversation(ids[0]); err == nil {
		t.Error("the oldest conversation is still there")
	}
	for _, id := range ids[1:] {
		if c, err := a.conversation(id); err != nil || c.ID != id {
			t.Errorf("%s: %v", id, err)
		}
	}
}

// fakeTool counts its calls.
type fakeTool struct {
	definition toolloop.Definition
	calls      int
}

func (f *fakeTool) Definition() toolloop.Definition { return f.definition }
func (f *fakeTool) Call(context.Context, toolloop.Invocation) (toolloop.Observation, error) {
	f.calls++
	return toolloop.Observation{Text: "rows"}, nil
}

func TestConfirmedAsksFirst(t *testing.T) {
	definition, err := toolloop.NewDefinition(`{"type": "function", "function": {"name": "run_sql", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}`)
	if err != nil {
		t.Fatal(err)
	}
	tool := &fakeTool{definition: definition}
	inv := toolloop.Invocation{Arguments: &toolloop.Object{Members: []toolloop.Member{{Key: "query", Value: "SELECT 1"}}}}
	for i, yes := range []bool{false, true} {
		var asked string
		wrapped := confirmed{tool, newApproval(func(_ context.Context, sql string) bool { asked = sql; return yes })}
		obs, err := wrapped.Call(context.Background(), inv)
		if err != nil || asked != "SELECT 1" || tool.calls != i || yes != (obs.Text == "rows") {
			t.Errorf("yes %v: asked %q, %d calls, %+v", yes, asked, tool.calls, obs)
		}
	}
}

// The final query needs a yes too; one that was said to the same query on the way is enough.
func TestFinalQueryIsApproved(t *testing.T) {
	asked := 0
	for _, c := range []struct {
		before, final string
		yes, want     bool
		wantAsked     int
	}{
		{"SELECT 1", "SELECT 1 ;\n", true, true, 1},
		{"SELECT 1", "SELECT 2", true, true, 2},
		{"SELECT 1", "SELECT 1", false, false, 2},
		{"SELECT 1", "SELECT 2", false, false, 2},
	} {
		asked = 0
		person := newApproval(func(context.Context, string) bool { asked++; return c.yes })
		person.each(context.Background(), c.before)
		if got := person.final(context.Background(), c.final); got != c.want || asked != c.wantAsked {
			t.Errorf("%+v: %v after %d questions", c, got, asked)
		}
	}
}
