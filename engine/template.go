package engine

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"time"

	"quern/engine/internal/llama"
)

// Templates and chats come from files and from the network: these bounds keep the engine's recursion within its stack.
const (
	maxTemplate  = 1 << 19 // bytes
	maxJSONDepth = 500
)

// ChatTemplate is a Jinja chat template. It does not change and may be shared.
type ChatTemplate struct {
	source   string
	bos, eos string
}

// Chat is what a template renders.
type Chat struct {
	Messages json.RawMessage // a JSON list of messages: {"role": …, "content": …, "tool_calls": …}
	Tools    json.RawMessage // a JSON list of tool declarations; nil when there are none
	// Kwargs are further variables: "add_generation_prompt", "enable_thinking", ….
	Kwargs map[string]any
	// Now is what strftime_now reads; the zero value is the time of the call.
	Now time.Time
}

// ChatTemplate is the model's own template, from its file.
func (m *Model) ChatTemplate() (*ChatTemplate, error) {
	source, ok := m.Metadata("tokenizer.chat_template")
	if !ok || source == "" {
		return nil, &Error{Op: "chat template of", Path: m.path, Kind: ErrTemplate, Err: errors.New("the file has none; give one with --chat-template")}
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.llama == nil {
		return nil, &Error{Op: "chat template of", Path: m.path, Kind: ErrClosed, Err: ErrClosed}
	}
	t, err := ParseChatTemplate(source, m.llama.TokenText(m.llama.BOS()), m.llama.TokenText(m.llama.EOS()))
	if err != nil {
		return nil, fmt.Errorf("model %s: %w", m.path, err)
	}
	return t, nil
}

// ParseChatTemplate checks a template. bos and eos are the values of bos_token and eos_token in it.
func ParseChatTemplate(source, bos, eos string) (*ChatTemplate, error) {
	t := &ChatTemplate{source: source, bos: bos, eos: eos}
	parsed, err := t.parse()
	if err != nil {
		return nil, &Error{Op: "parse chat template", Kind: ErrTemplate, Err: err}
	}
	parsed.Close()
	return t, nil
}

// parse is cheap beside a generation, so that a ChatTemplate holds no C memory and needs no Close.
func (t *ChatTemplate) parse() (*llama.Template, error) {
	if len(t.source) > maxTemplate {
		return nil, fmt.Errorf("it has %d bytes, more than the %d allowed", len(t.source), maxTemplate)
	}
	return llama.ParseTemplate(t.source)
}

// Source is the template's text.
func (t *ChatTemplate) Source() string { return t.source }

// Render renders a conversation. The order of keys in the JSON is kept, as the template may print it. An error
// raised by the template (raise_exception) has kind ErrTemplate and the template's message.
func (t *ChatTemplate) Render(chat Chat) ([]Segment, error) {
	segments, err := t.render(chat)
	if err != nil {
		return nil, &Error{Op: "render chat", Kind: ErrTemplate, Err: err}
	}
	return segments, nil
}

func (t *ChatTemplate) render(chat Chat) ([]Segment, error) {
	input, err := chatInput(chat)
	if err != nil {
		return nil, err
	}
	plain, err := t.variables(chat.Kwargs)
	if err != nil {
		return nil, err
	}
	parsed, err := t.parse()
	if err != nil {
		return nil, err
	}
	defer parsed.Close()
	now := chat.Now
	if now.IsZero() {
		now = time.Now()
	}
	parts, err := parsed.Render(input, plain, now.Unix())
	if err != nil {
		return nil, err
	}
	segments := make([]Segment, len(parts))
	for i, p := range parts {
		segments[i] = Segment{Text: p.Text, FromTemplate: !p.Input}
	}
	return segments, nil
}

// chatInput is {"messages": …, "tools": …}, the variables whose strings are marked as input. As in Hugging Face's
// apply_chat_template, tools and documents are defined, and none where they are not given.
func chatInput(chat Chat) ([]byte, error) {
	tools := chat.Tools
	if len(tools) == 0 {
		tools = json.RawMessage("null")
	}
	for name, raw := range map[string]json.RawMessage{"messages": chat.Messages, "tools": tools} {
		if err := checkJSON(raw); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return bytes.Join([][]byte{[]byte(`{"messages":`), chat.Messages, []byte(`,"tools":`), tools, []byte(`,"documents":null}`)}, nil), nil
}

func (t *ChatTemplate) variables(kwargs map[string]any) ([]byte, error) {
	all := map[string]any{"add_generation_prompt": false, "bos_token": t.bos, "eos_token": t.eos}
	maps.Copy(all, kwargs)
	return json.Marshal(all)
}

// checkJSON refuses what is no JSON, and what is nested so deep that only an attacker can have written it.
func checkJSON(raw json.RawMessage) error {
	if !json.Valid(raw) {
		return errors.New("this is not valid JSON")
	}
	depth, inString := 0, false
	for i := 0; i < len(raw); i++ {
		switch c := raw[i]; {
		case inString && c == '\\':
			i++
		case c == '"':
			inString = !inString
		case !inString && (c == '{' || c == '['):
			if depth++; depth > maxJSONDepth {
				return fmt.Errorf("nested more than %d deep", maxJSONDepth)
			}
		case !inString && (c == '}' || c == ']'):
			depth--
		}
	}
	return nil
}
