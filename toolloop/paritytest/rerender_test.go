package paritytest

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"quern/engine"
	"quern/internal/enginegen"
	"quern/prompts"
	"quern/toolloop"
)

// Appending turns gives the ids that rendering and tokenizing the whole conversation would give, but for the newline
// after an assistant's turn, which the hermes profile leaves out as its training did.
func TestAppendedIsRendered(t *testing.T) {
	for _, c := range []struct {
		profile                toolloop.Profile
		name                   string // of vocabulary and template
		tool                   string
		call, reasoning, prior string // a turn that calls; its reasoning; what the last turn says before its content
	}{
		{toolloop.Hermes(), "qwen2.5", "run_sql", "<tool_call>\n{\"name\": \"run_sql\", \"arguments\": {\"query\": \"SELECT v FROM t\"}}\n</tool_call>", "", ""},
		{toolloop.QwenXML(), "qwen3.5", "execute_sql", "plan it\n</think>\n\n<tool_call>\n<function=execute_sql>\n<parameter=query>\nSELECT v FROM t\n</parameter>\n</function>\n</tool_call>", "plan it", "done\n</think>\n\n"},
	} {
		const final = "```sql\nSELECT 1\n```"
		model, chatTemplate := vocabulary(t, c.name), template(t, c.name)
		db := guard(t, "CREATE TABLE t (v TEXT)", "INSERT INTO t VALUES ('x é 日本')")
		appended := scriptedIDs(t, c.profile, model, chatTemplate, db, []string{c.call, c.prior + final}, "Find x", false)

		pack, err := prompts.ForProfile(c.profile.Name)
		if err != nil {
			t.Fatal(err)
		}
		observation := observationIn(t, model, appended)
		messages := firstMessages(t, c.profile, db, "Find x")
		list := []map[string]any{}
		for _, m := range messages {
			list = append(list, map[string]any{"role": m.Role, "content": m.Content})
		}
		assistant := map[string]any{"role": "assistant", "content": "", "tool_calls": []any{
			map[string]any{"type": "function", "function": map[string]any{"name": c.tool, "arguments": map[string]any{"query": "SELECT v FROM t"}}},
		}}
		last := map[string]any{"role": "assistant", "content": final}
		if c.reasoning != "" {
			assistant["reasoning_content"], last["reasoning_content"] = c.reasoning, "done"
		}
		list = append(list, assistant, map[string]any{"role": "tool", "content": observation}, last)
		raw, err := json.Marshal(list)
		if err != nil {
			t.Fatal(err)
		}
		segments, err := chatTemplate.Render(engine.Chat{Messages: raw, Tools: json.RawMessage("[" + pack.Tool + "]")})
		if err != nil {
			t.Fatal(err)
		}
		rendered, err := model.Tokenize(segments)
		if err != nil {
			t.Fatal(err)
		}
		rendered = rendered[:len(rendered)-1] // the newline after the last turn
		if c.profile.Name == toolloop.ProfileHermes {
			rendered = withoutNewline(model, rendered)
		}
		if !slices.Equal(appended, rendered) {
			tokenizer := enginegen.Tokenizer{Model: model}
			t.Errorf("%s\nappended %q\nrendered %q", c.profile.Name, tokenizer.Detokenize(appended, true), tokenizer.Detokenize(rendered, true))
		}
	}
}

// withoutNewline drops the newline behind the third turn, the assistant's first.
func withoutNewline(model *engine.Model, ids []toolloop.Token) []toolloop.Token {
	end, _ := model.SpecialToken("<|im_end|>")
	turns := 0
	for i, id := range ids {
		if id == end {
			if turns++; turns == 3 {
				return slices.Delete(slices.Clone(ids), i+1, i+2)
			}
		}
	}
	return ids
}

// observationIn reads the tool's text out of a conversation.
func observationIn(t *testing.T, model *engine.Model, ids []toolloop.Token) string {
	t.Helper()
	text := enginegen.Tokenizer{Model: model}.Detokenize(ids, true)
	_, text, found := strings.Cut(text, "<tool_response>\n")
	text, _, closed := strings.Cut(text, "\n</tool_response>")
	if !found || !closed {
		t.Fatal("no tool turn")
	}
	return text
}
