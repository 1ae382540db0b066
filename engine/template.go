package engine

import (
	"encoding/json"
	"time"
)

// ChatTemplate is a parsed Jinja chat template. It does not change and may be shared.
type ChatTemplate struct{}

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
func (m *Model) ChatTemplate() (*ChatTemplate, error) { return nil, errStub }

// ParseChatTemplate parses a template. bos and eos are the values of bos_token and eos_token in it.
func ParseChatTemplate(source, bos, eos string) (*ChatTemplate, error) { return nil, errStub }

// Source is the template's text.
func (t *ChatTemplate) Source() string { return "" }

// Render renders a conversation. The order of keys in the JSON is kept, as the template may print it. An error
// raised by the template (raise_exception) has kind ErrTemplate and its message as text.
func (t *ChatTemplate) Render(chat Chat) ([]Segment, error) { return nil, errStub }
