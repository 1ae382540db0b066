package paritytest

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quern/engine"
	"quern/internal/testenv"
	"quern/toolloop/internal/looptest"
)

// qwenTemplates are the files behind the template names of render_qwen.jsonl.
var qwenTemplates = map[string]string{
	"qwen2.5":     "Qwen-Qwen2.5-7B-Instruct.jinja",
	"qwen3":       "Qwen-Qwen3-0.6B.jinja",
	"qwen3.5":     "Qwen3.5-4B.jinja",
	"qwen3-coder": "Qwen3-Coder.jinja",
}

type renderRow struct {
	ID, Template string
	Tags         []string
	TemplateFile string `json:"template_file"`
	TemplateSum  string `json:"template_sha256"`
	Now          string
	Messages     json.RawMessage
	Tools        json.RawMessage
	Kwargs       map[string]any
	Expect       struct {
		Text  string
		Error *struct{ Type, Message string }
	}
}

func TestRenderQwen(t *testing.T) {
	var count renderCount
	for _, row := range looptest.Rows[renderRow](t, testenv.Oracles(t, "chat", "render_qwen.jsonl")) {
		count.check(t, row, testenv.OracleInputs(t, "chat", "templates", qwenTemplates[row.Template]))
	}
	count.report(t)
}

func TestRenderBreadth(t *testing.T) {
	source := filepath.Join(testenv.Root(), "third_party", "llama.cpp", "src")
	if _, err := os.Stat(source); err != nil {
		testenv.Missing(t, "the templates of llama.cpp: run `make llama`")
	}
	var count renderCount
	for _, row := range looptest.Rows[renderRow](t, testenv.Oracles(t, "chat", "render_breadth.jsonl")) {
		count.check(t, row, filepath.Join(source, filepath.FromSlash(row.TemplateFile)))
	}
	count.report(t)
}

type renderCount struct {
	text, errors int
	deviations   map[string]int
}

// check renders one row and compares. A deviation is admitted by its kind; anything else fails.
func (c *renderCount) check(t *testing.T, row renderRow, path string) {
	t.Helper()
	source, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if sum := sha256.Sum256(source); row.TemplateSum != "" && hex.EncodeToString(sum[:]) != row.TemplateSum {
		t.Fatalf("%s: %s is not the file that the golden was made with", row.ID, path)
	}
	got, err := renderText(row, string(source))
	want := row.Expect
	switch {
	case want.Error == nil && err == nil && got == want.Text:
		c.text++
	case want.Error != nil && err != nil && (want.Error.Type != "TemplateError" || strings.Contains(err.Error(), want.Error.Message)):
		c.errors++
	default:
		kind := deviation(row, got, err)
		if kind == "" {
			t.Errorf("%s\n got %q, %v\nwant %q, %v", row.ID, got, err, want.Text, want.Error)
			return
		}
		if c.deviations == nil {
			c.deviations = map[string]int{}
		}
		c.deviations[kind]++
		t.Logf("known deviation, %s: %s", row.ID, kind)
	}
}

func (c *renderCount) report(t *testing.T) {
	t.Logf("%d texts and %d errors as expected; known deviations: %v", c.text, c.errors, c.deviations)
}

// deviation names the kind of a known difference to the reference, "" when there is none.
func deviation(row renderRow, got string, err error) string {
	switch {
	case slices.Contains(row.Tags, "pyfloat"):
		return "floats in a template: llama.cpp's engine prints them with %g"
	case row.Expect.Error != nil && row.Expect.Error.Type != "TemplateError" && err == nil:
		return "a Python error of type " + row.Expect.Error.Type + " which llama.cpp's engine lets pass"
	case err == nil && row.Expect.Text != html.UnescapeString(row.Expect.Text) && got == html.UnescapeString(row.Expect.Text):
		return "HTML escapes that Jinja adds when a template joins text to the output of tojson"
	}
	return ""
}

func renderText(row renderRow, source string) (string, error) {
	kwargs := map[string]any{}
	for k, v := range row.Kwargs {
		kwargs[k] = v
	}
	bos, _ := kwargs["bos_token"].(string)
	eos, _ := kwargs["eos_token"].(string)
	for _, name := range []string{"bos_token", "eos_token", "continue_final_message"} {
		delete(kwargs, name)
	}
	template, err := engine.ParseChatTemplate(source, bos, eos)
	if err != nil {
		return "", err
	}
	chat := engine.Chat{Messages: row.Messages, Tools: row.Tools, Kwargs: kwargs}
	if row.Now != "" {
		if chat.Now, err = time.Parse("2006-01-02T15:04:05", row.Now); err != nil {
			return "", err
		}
	}
	segments, err := template.Render(chat)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, s := range segments {
		text.WriteString(s.Text)
	}
	if row.Kwargs["continue_final_message"] == true {
		return continueFinal(text.String(), row.Messages), nil
	}
	return text.String(), nil
}

// continueFinal cuts the text behind the content of the last message. That is no part of the template: transformers
// does it afterwards (apply_chat_template, continue_final_message).
func continueFinal(text string, messages json.RawMessage) string {
	var list []struct{ Content string }
	if json.Unmarshal(messages, &list) != nil || len(list) == 0 {
		return text
	}
	content := strings.TrimLeft(list[len(list)-1].Content, " \t\n")
	at := strings.LastIndex(text, strings.TrimSpace(content))
	if strings.HasPrefix(text[at:], content) {
		return text[:at+len(content)]
	}
	return text[:at+len(strings.TrimSpace(content))]
}
