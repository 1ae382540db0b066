package engine

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/internal/testenv"
)

// templateFiles are the template names of render_qwen.jsonl.
var templateFiles = map[string]string{
	"qwen2.5": "Qwen-Qwen2.5-7B-Instruct.jinja", "qwen3": "Qwen-Qwen3-0.6B.jinja",
	"qwen3.5": "Qwen3.5-4B.jinja", "qwen3-coder": "Qwen3-Coder.jinja",
}

type renderRow struct {
	ID              string
	Template        string // in render_qwen.jsonl
	TemplateFile    string `json:"template_file"` // in render_breadth.jsonl
	Messages, Tools json.RawMessage
	Kwargs          map[string]any
	Expect          struct {
		Text  *string
		Error *struct{ Type, Message string }
	}
}

func (r *renderRow) template(t testing.TB) *ChatTemplate {
	t.Helper()
	path := filepath.Join(testenv.Root(), "third_party", "llama.cpp", "src", r.TemplateFile)
	if name := templateFiles[r.Template]; name != "" {
		path = testenv.OracleInputs(t, "chat", "templates", name)
	}
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	tmpl, err := ParseChatTemplate(string(source), "", "")
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return tmpl
}

// textOf joins segments.
func textOf(segments []Segment) string {
	var b strings.Builder
	for _, s := range segments {
		b.WriteString(s.Text)
	}
	return b.String()
}

// renderDeviations are known, by a part of the row's id, with the reason. None concerns a template that Quern's loops use.
var renderDeviations = map[string]string{
	"functionary":           "the reference escapes a quote here as HTML",
	"Kimi-K2":               "the reference's sandbox forbids list.append, the engine runs it",
	"llama-cpp-deepseek-r1": "the reference cannot print a generator as JSON, the engine has lists instead",
}

// TestRenderOracle compares with what transformers renders. Rows with continue_final_message are left out: that is no
// part of a template.
func TestRenderOracle(t *testing.T) {
	templates := map[string]*ChatTemplate{}
	for _, file := range []string{"render_qwen.jsonl", "render_breadth.jsonl"} {
		right := 0
		for _, row := range rows[renderRow](t, testenv.Oracles(t, "chat", file)) {
			if row.Kwargs["continue_final_message"] != nil {
				continue
			}
			key := row.Template + row.TemplateFile
			if templates[key] == nil {
				templates[key] = row.template(t)
			}
			segments, err := templates[key].Render(Chat{
				Messages: row.Messages, Tools: row.Tools, Kwargs: row.Kwargs,
				Now: time.Date(2026, 1, 15, 13, 14, 15, 0, time.Local),
			})
			problem := compareRendered(&row, segments, err)
			if problem == "" {
				right++
				continue
			}
			if why := deviation(row.ID); why != "" {
				t.Logf("known deviation: %s: %s", row.ID, why)
			} else {
				t.Errorf("%s: %s", row.ID, problem)
			}
		}
		t.Logf("%s: %d rows right", file, right)
	}
}

func compareRendered(row *renderRow, segments []Segment, err error) string {
	switch want := row.Expect; {
	case want.Error == nil && err != nil:
		return err.Error()
	case want.Error == nil && textOf(segments) != *want.Text:
		return "text differs:\n" + textOf(segments) + "\nwant:\n" + *want.Text
	case want.Error != nil && err == nil:
		return "no error, want " + want.Error.Message
	case want.Error != nil && want.Error.Type == "TemplateError" && !strings.HasSuffix(err.Error(), want.Error.Message):
		return "error " + err.Error() + ", want " + want.Error.Message
	case want.Error != nil && !errors.Is(err, ErrTemplate):
		return "the error has the wrong kind: " + err.Error()
	}
	return ""
}

func deviation(id string) string {
	for part, why := range renderDeviations {
		if strings.Contains(id, part) {
			return why
		}
	}
	return ""
}

// TestInputIsMarked renders conversations in which every text and every key holds the same odd word, with all templates,
// and looks for it in what is said to come from the template.
func TestInputIsMarked(t *testing.T) {
	const odd = "Zq<|im_end|>"
	messages := json.RawMessage(`[
		{"role": "system", "content": "s Zq<|im_end|> s"},
		{"role": "user", "content": "u Zq<|im_end|>"},
		{"role": "assistant", "content": "a</think>b Zq<|im_end|>", "reasoning_content": "r Zq<|im_end|>", "tool_calls": [
			{"type": "function", "id": "abcdefghi", "function": {"name": "run_sql", "arguments": {"sql": "x Zq<|im_end|>", "Zq<|im_end|>": [1.5, "Zq<|im_end|>"]}}}]},
		{"role": "tool", "name": "run_sql", "tool_call_id": "abcdefghi", "content": "t Zq<|im_end|>\n1"},
		{"role": "assistant", "content": "<think>p Zq<|im_end|></think>q Zq<|im_end|>"},
		{"role": "user", "content": "again Zq<|im_end|>"}]`)
	tools := json.RawMessage(`[{"type": "function", "function": {"name": "run_sql", "description": "d Zq<|im_end|>", "parameters":
		{"type": "object", "properties": {"sql": {"type": "string", "description": "p Zq<|im_end|>"}, "Zq<|im_end|>": {"type": "number", "enum": ["Zq<|im_end|>"]}}}}}]`)
	for name := range templateFiles {
		segments, err := (&renderRow{Template: name}).template(t).Render(Chat{Messages: messages, Tools: tools, Kwargs: map[string]any{"add_generation_prompt": true}})
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := strings.Count(textOf(segments), odd); n < 8 {
			t.Errorf("%s: only %d places with input", name, n)
		}
		for _, s := range segments {
			if s.FromTemplate && strings.Contains(s.Text, "Zq") {
				t.Errorf("%s: said to come from the template: %q", name, s.Text)
			}
		}
	}
}

// TestHostileTemplates: none may end the process, whatever else it does.
func TestHostileTemplates(t *testing.T) {
	deep := strings.Repeat
	for name, source := range map[string]string{
		"parentheses":   "{{ " + deep("(", 20_000) + "1" + deep(")", 20_000) + " }}",
		"lists":         "{{ " + deep("[", 20_000) + deep("]", 20_000) + " }}",
		"sum":           "{{ 1" + deep("+1", 20_000) + " }}",
		"members":       "{{ messages" + deep(".a", 20_000) + " }}",
		"not":           "{{ " + deep("not ", 20_000) + "1 }}",
		"ifs":           deep("{% if 1 %}", 20_000) + deep("{% endif %}", 20_000),
		"range":         "{% for i in range(1000000000000) %}x{% endfor %}",
		"break":         "{% break %}",
		"unclosed":      "{{ 'a",
		"recursion":     "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
		"zero":          "\x00{{ 1 % 0 }}{{ 1 / 0 }}",
		"not a call":    "{% call 1 %}{% endcall %}",
		"filter of nil": "{{ x|tojson|join|string|safe }}{{ none|join }}",
		"no text":       "",
	} {
		tmpl, err := ParseChatTemplate(source, "", "")
		if err != nil {
			continue
		}
		if _, err := tmpl.Render(Chat{Messages: json.RawMessage("[]")}); err != nil && strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: the message has several lines: %q", name, err)
		}
	}
	tmpl, err := ParseChatTemplate("{{ messages }}", "", "")
	if err != nil {
		t.Fatal(err)
	}
	for _, messages := range []string{"", "{", "[1", deep("[", 10_000) + deep("]", 10_000), `"\ud800"`, "[\"\xff\"]"} {
		tmpl.Render(Chat{Messages: json.RawMessage(messages)})
	}
}

func BenchmarkRender(b *testing.B) {
	row := rows[renderRow](b, testenv.Oracles(b, "chat", "render_qwen.jsonl"))[0]
	tmpl := row.template(b)
	for b.Loop() {
		if _, err := tmpl.Render(Chat{Messages: row.Messages, Tools: row.Tools, Kwargs: row.Kwargs}); err != nil {
			b.Fatal(err)
		}
	}
}
