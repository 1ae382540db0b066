package toolloop

import (
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"quern/internal/pytext"
	"quern/internal/testenv"
	"quern/toolloop/internal/looptest"
)

type parseRow struct {
	ID, Text, Agreement, Tools string
	ExpectedCalls              json.RawMessage `json:"expected_calls"`
	ExpectedContent            *string         `json:"expected_content"`
}

// verl decides: every row.
func TestParseHermesOracle(t *testing.T) {
	rows := looptest.Rows[parseRow](t, testenv.Oracles(t, "chat", "tool_calls_hermes.jsonl"))
	for _, row := range rows {
		content, calls := ParseHermes(row.Text)
		if got, want := callsJSON(calls), wantCalls(t, row.ExpectedCalls); got != want {
			t.Errorf("%s\n got %s\nwant %s", row.ID, got, want)
		}
		if row.ExpectedContent != nil && content != *row.ExpectedContent {
			t.Errorf("%s: content %q, want %q", row.ID, content, *row.ExpectedContent)
		}
	}
	t.Logf("%d rows, all as verl", len(rows))
}

// xmlTools are the declarations that the golden rows were made with: one string parameter, and one of each type.
const (
	executeSQL = `{"type": "function", "function": {"name": "execute_sql", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}`
	describe   = `{"type": "function", "function": {"name": "describe", "parameters": {"type": "object", "properties": {"table": {"type": "string"},
		"limit": {"type": "integer"}, "ratio": {"type": "number"}, "deep": {"type": "boolean"}, "cols": {"type": "array"}, "opts": {"type": "object"}}, "required": ["table"]}}}`
)

// All rows on which the published parsers agree, and those with a majority, but for one kind: where a tag of the syntax
// is text inside a value, theirs cut the SQL there and ours keeps it whole.
func TestParseXMLOracle(t *testing.T) {
	tools := []Definition{definition(t, executeSQL), definition(t, describe)}
	rows := looptest.Rows[parseRow](t, testenv.Oracles(t, "chat", "tool_calls_xml.jsonl"))
	count := map[string]int{}
	for _, row := range rows {
		count[row.Agreement]++
		_, calls := ParseXML(row.Text, tools)
		if row.Agreement == "split" {
			continue // the references have no common result
		}
		got, want := callsJSON(calls), wantCalls(t, row.ExpectedCalls)
		switch {
		case got == want:
		case row.Agreement == "majority" && keepsTagInValue(calls, want):
			count["kept whole"]++
			t.Logf("known deviation, %s: a tag inside the SQL does not cut it; ours %s, theirs %s", row.ID, got, want)
		default:
			t.Errorf("%s (%s) %q\n got %s\nwant %s", row.ID, row.Agreement, row.Text, got, want)
		}
	}
	t.Logf("rows: %v", count)
}

// keepsTagInValue says whether a value of ours holds a tag of the syntax that the reference's result has lost.
func keepsTagInValue(calls []ToolCall, want string) bool {
	got := callsJSON(calls)
	for _, tag := range []string{parameterClose, functionClose, toolCallClose, parameterOpen, functionOpen, toolCallOpen} {
		if strings.Count(got, tag) > strings.Count(want, tag) {
			return true
		}
	}
	return false
}

func definition(t testing.TB, text string) Definition {
	t.Helper()
	d, err := NewDefinition(text)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func callsJSON(calls []ToolCall) string {
	list := []any{}
	for _, c := range calls {
		list = append(list, &Object{Members: []Member{{Key: "name", Value: c.Name}, {Key: "arguments", Value: plain(c.Arguments)}}})
	}
	return pytext.JSON(looptest.Finite(list))
}

func wantCalls(t *testing.T, raw json.RawMessage) string {
	t.Helper()
	v, err := pytext.DecodeJSON(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	return pytext.JSON(plain(v))
}

// plain makes values comparable: 1.0 and 1 are the same number.
func plain(v any) any {
	switch v := v.(type) {
	case float64:
		if n := big.NewFloat(0); v == float64(int64(v)) {
			n.SetFloat64(v)
			i, _ := n.Int(nil)
			return i
		}
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = plain(e)
		}
		return list
	case *Object:
		o := &Object{}
		for _, m := range v.Members {
			o.Set(m.Key, plain(m.Value))
		}
		return o
	}
	return v
}

// What a model writes through FormatCall is what the parser reads.
func FuzzFormatThenParse(f *testing.F) {
	f.Add("SELECT 1", "query")
	f.Add("SELECT '</parameter>' AS h FROM t", "query")
	f.Add("\n a \n\n", "q")
	f.Fuzz(func(t *testing.T, value, key string) {
		if !strings.Contains(value, "<") && !strings.ContainsAny(key, ">\r\n<") {
			roundTrip(t, formatXML, func(s string) []ToolCall { _, c := ParseXML(s, nil); return c }, key, value)
		}
		if !strings.Contains(value, toolCallClose) && !strings.Contains(key, toolCallClose) {
			roundTrip(t, formatHermes, func(s string) []ToolCall { _, c := ParseHermes(s); return c }, key, value)
		}
	})
}

func roundTrip(t *testing.T, format func(ToolCall) string, parse func(string) []ToolCall, key, value string) {
	key, value = strings.ToValidUTF8(key, "?"), strings.ToValidUTF8(value, "?")
	call := ToolCall{Name: "run_sql", Arguments: &Object{Members: []Member{{Key: key, Value: value}}}}
	text := format(call)
	if got := callsJSON(parse(text)); got != callsJSON([]ToolCall{call}) {
		t.Fatalf("%q\nread as %s", text, got)
	}
}

// Both parsers take anything, give only calls that were closed, and cutting a text never invents a call that the whole
// text did not have before the cut.
func FuzzParsers(f *testing.F) {
	for _, s := range []string{
		"<tool_call>\n<function=run_sql>\n<parameter=query>\nSELECT 1\n</parameter>\n</function>\n</tool_call>",
		"<tool_call>\n{\"name\": \"run_sql\", \"arguments\": {\"query\": \"SELECT 1\"}}\n</tool_call>",
		"<tool_call><function=a><parameter=b>1<parameter=c>2</function></tool_call>",
	} {
		f.Add(s)
	}
	tools := []Definition{}
	f.Fuzz(func(t *testing.T, text string) {
		_, calls := ParseHermes(text)
		if len(calls) > strings.Count(text, toolCallClose) {
			t.Fatalf("%d calls in %q", len(calls), text)
		}
		_, calls = ParseXML(text, tools)
		if len(calls) > strings.Count(text, functionOpen) {
			t.Fatalf("%d calls in %q", len(calls), text)
		}
		splitThinking(text, true)
		TurnSQL(text)
		OumiFinalSQL(text)
	})
}

func TestParseXMLKeepsTagsInSQL(t *testing.T) {
	for _, sql := range []string{
		"SELECT '</parameter>' AS h FROM t", "SELECT '</function>' AS h", "SELECT '</tool_call>' AS h", "SELECT '<parameter=query>' AS h",
		"SELECT '<tool_call>', '<function=x>'", "SELECT '</parameter>\n' AS h\nFROM t", "SELECT a < b, c <> d FROM t",
	} {
		text := formatXML(ToolCall{Name: "run_sql", Arguments: &Object{Members: []Member{{Key: "query", Value: sql}}}})
		_, calls := ParseXML("Text.\n\n"+text+"\n\n"+text, nil)
		if len(calls) != 2 {
			t.Errorf("%q: %d calls", sql, len(calls))
			continue
		}
		for _, c := range calls {
			if got, _ := c.Arguments.(*Object).Get("query"); got != sql {
				t.Errorf("%q read as %q", sql, got)
			}
		}
	}
}

// Where closing tags are missing or text strays between them, the value is what stands before the first sign of its end.
func TestParseXMLMissingTags(t *testing.T) {
	for text, want := range map[string]string{
		"<tool_call><function=f><parameter=q>\nSELECT 1\n</parameter> stray\n</function></tool_call>":                          `{"q": "SELECT 1"}`,
		"<tool_call><function=f><parameter=q>SELECT 1</parameter> stray </function></tool_call>":                               `{"q": "SELECT 1"}`,
		"<tool_call>\n<function=f>\n<parameter=q>\nSELECT 1\n<parameter=r>\n2\n</parameter>\n</function>\n</tool_call>":        `{"q": "SELECT 1", "r": "2"}`,
		"<tool_call>\n<function=f>\n<parameter=q>\nSELECT 1\n</function>\nThen text":                                           `{"q": "SELECT 1"}`,
		"<tool_call>\n<function=f>\n<parameter=q>\nSELECT 1\n</tool_call>\nThen text":                                          `{"q": "SELECT 1"}`,
		"<tool_call>\n<function=f>\n<parameter=q>\nSELECT 1\n</parameter>\n<parameter=q>\nSELECT 2\n</parameter>\n</function>": `{"q": "SELECT 2"}`,
		"<tool_call>\n<function=f>\n<parameter=q":                                                                              `{}`,
	} {
		_, calls := ParseXML(text, nil)
		if len(calls) != 1 || pytext.JSON(calls[0].Arguments) != want {
			t.Errorf("%q: %s, want %s", text, callsJSON(calls), want)
		}
	}
}

func TestSplitThinking(t *testing.T) {
	for _, c := range []struct {
		text           string
		open           bool
		thinking, rest string
	}{
		{"plan\n</think>\n\nSELECT 1", true, "plan", "SELECT 1"},
		{"plan without an end", true, "plan without an end", ""},
		{"<think>\nplan\n</think>\n\nrest", false, "plan", "rest"},
		{"\n<think>plan", false, "plan", ""},
		{"SELECT '<think>' AS x", false, "", "SELECT '<think>' AS x"},
		{"no block</think> at all", false, "", "no block</think> at all"},
		{"a</think>b</think>c", true, "a", "b</think>c"},
	} {
		thinking, rest := splitThinking(c.text, c.open)
		if thinking != c.thinking || rest != c.rest {
			t.Errorf("%q (open %v): %q, %q; want %q, %q", c.text, c.open, thinking, rest, c.thinking, c.rest)
		}
	}
}
