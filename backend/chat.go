package backend

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"quern/toolloop"
)

// Chat generates through /v1/chat/completions. The server applies the template and takes calls apart.
//
// The loop speaks in token ids, which this API does not have, so Chat brings a vocabulary of its own: it is Generator,
// Renderer and Tokenizer of a loop at once. One of its tokens is up to three bytes of text, so that budgets in tokens
// stay about what they are for a real vocabulary.
type Chat struct {
	Client   *Client
	Profile  toolloop.Profile
	Tools    []toolloop.Definition
	Thinking *bool // the template's enable_thinking, for servers that pass it on
}

// Tokens: up to three bytes, their number in bits 24 and 25; and one for the beginning of each role's message and one
// for its end.
const (
	tokenBytes   = 3
	tokenControl = toolloop.Token(1 << 26)
	tokenEnd     = tokenControl
)

var roles = []string{toolloop.RoleSystem, toolloop.RoleUser, toolloop.RoleAssistant, toolloop.RoleTool}

const endLiteral = "<|end|>"

func roleLiteral(role string) string { return "<|" + role + "|>" }

// Render implements toolloop.Renderer.
func (g *Chat) Render(messages []toolloop.Message, opts toolloop.RenderOptions) (segments []toolloop.Segment, err error) {
	for _, m := range messages {
		segments = append(segments,
			toolloop.Segment{Text: roleLiteral(m.Role), Template: true}, toolloop.Segment{Text: m.Content}, toolloop.Segment{Text: endLiteral, Template: true})
	}
	if opts.AddGenerationPrompt {
		segments = append(segments, toolloop.Segment{Text: roleLiteral(toolloop.RoleAssistant), Template: true})
	}
	return segments, nil
}

// Tokenize implements toolloop.Tokenizer.
func (g *Chat) Tokenize(segments []toolloop.Segment) (ids []toolloop.Token, err error) {
	for _, s := range segments {
		if id, ok := controlToken(s); ok {
			ids = append(ids, id)
		} else {
			ids = append(ids, packText(s.Text)...)
		}
	}
	return ids, nil
}

func controlToken(s toolloop.Segment) (toolloop.Token, bool) {
	if !s.Template {
		return 0, false
	}
	if s.Text == endLiteral {
		return tokenEnd, true
	}
	for i, role := range roles {
		if s.Text == roleLiteral(role) {
			return tokenControl + 1 + toolloop.Token(i), true
		}
	}
	return 0, false
}

func packText(text string) (ids []toolloop.Token) {
	for len(text) > 0 {
		n := min(tokenBytes, len(text))
		id := toolloop.Token(n) << 24
		for i := range n {
			id |= toolloop.Token(text[i]) << (8 * i)
		}
		ids = append(ids, id)
		text = text[n:]
	}
	return ids
}

// Detokenize implements toolloop.Tokenizer.
func (g *Chat) Detokenize(ids []toolloop.Token, keepControl bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id < tokenControl:
			for i := range int(id >> 24) {
				b.WriteByte(byte(id >> (8 * i)))
			}
		case keepControl && id == tokenEnd:
			b.WriteString(endLiteral)
		case keepControl:
			b.WriteString(roleLiteral(roles[id-tokenControl-1]))
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// IsEOG implements toolloop.Tokenizer.
func (g *Chat) IsEOG(id toolloop.Token) bool { return id == tokenEnd }

type wireMessage struct {
	Role       string     `json:"role"`
	Content    string     `json:"content"`
	Reasoning  string     `json:"reasoning_content,omitempty"`
	ToolCalls  []wireCall `json:"tool_calls,omitempty"`
	ToolCallID string     `json:"tool_call_id,omitempty"`
}

type wireCall struct {
	Index    int    `json:"index"`
	ID       string `json:"id,omitempty"`
	Type     string `json:"type,omitempty"`
	Function struct {
		Name      string `json:"name,omitempty"`
		Arguments string `json:"arguments"`
	} `json:"function"`
}

type chatRequest struct {
	Model     string            `json:"model"`
	Messages  []wireMessage     `json:"messages"`
	Tools     []json.RawMessage `json:"tools,omitempty"`
	MaxTokens int               `json:"max_tokens"`
	wireSampling
	Stream        bool           `json:"stream"`
	StreamOptions streamOptions  `json:"stream_options"`
	Kwargs        map[string]any `json:"chat_template_kwargs,omitempty"`
}

// Generate implements toolloop.Generator.
func (g *Chat) Generate(ctx context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	model, err := g.Client.Model(ctx)
	if err != nil {
		return toolloop.Generation{}, err
	}
	messages, err := g.messages(req.Prompt)
	if err != nil {
		return toolloop.Generation{}, err
	}
	a := answer{onText: req.OnText, began: time.Now()}
	gen, err := a.run(ctx, g.Client, func() error {
		request := chatRequest{
			Model: model, Messages: messages, MaxTokens: req.MaxTokens, wireSampling: g.Client.wireSampling(req.Sampling),
			Stream: true, StreamOptions: streamOptions{true},
		}
		for _, t := range g.Tools {
			request.Tools = append(request.Tools, json.RawMessage(t.JSON))
		}
		if g.Thinking != nil && !g.Client.plain.Load() {
			request.Kwargs = map[string]any{"enable_thinking": *g.Thinking}
		}
		return g.Client.stream(ctx, "/v1/chat/completions", request, a.reset, a.chatEvent)
	})
	if err != nil {
		return toolloop.Generation{}, err
	}
	if gen.Text, err = g.turnText(&a); err != nil {
		return toolloop.Generation{}, err
	}
	gen.Tokens = packText(gen.Text)
	if gen.Finish == toolloop.FinishEOG {
		gen.Tokens = append(gen.Tokens, tokenEnd)
	}
	return gen, nil
}

// messages reads the conversation back out of its ids.
func (g *Chat) messages(ids []toolloop.Token) (list []wireMessage, err error) {
	if n := len(ids); n > 0 && ids[n-1] == tokenControl+1+2 { // the opened assistant's turn
		ids = ids[:n-1]
	}
	var open []string // ids of calls that wait for their results
	for len(ids) > 0 {
		role := int(ids[0] - tokenControl - 1)
		if role < 0 || role >= len(roles) {
			return nil, errors.New("backend: the conversation was not made by this backend's own template")
		}
		end := 1
		for end < len(ids) && ids[end] < tokenControl {
			end++
		}
		m := wireMessage{Role: roles[role], Content: g.Detokenize(ids[1:end], false)}
		switch m.Role {
		case toolloop.RoleAssistant:
			m = g.assistantMessage(m.Content, len(list))
			open = open[:0]
			for _, c := range m.ToolCalls {
				open = append(open, c.ID)
			}
		case toolloop.RoleTool:
			if len(open) > 0 {
				m.ToolCallID, open = open[0], open[1:]
			}
		}
		list = append(list, m)
		if ids = ids[end:]; len(ids) > 0 && ids[0] == tokenEnd {
			ids = ids[1:]
		}
	}
	return answeredCalls(list), nil
}

// assistantMessage takes a turn's text apart as the server did before.
func (g *Chat) assistantMessage(text string, position int) wireMessage {
	m := wireMessage{Role: toolloop.RoleAssistant}
	var content string
	m.Reasoning, content = toolloop.SplitThinking(text)
	content, calls := g.Profile.Parse(content, g.Tools)
	m.Content = strings.TrimSpace(content)
	for i, call := range calls {
		c := wireCall{Index: i, ID: fmt.Sprintf("call_%d_%d", position, i), Type: "function"}
		c.Function.Name, c.Function.Arguments = call.Name, toolloop.EncodeArguments(call.Arguments)
		m.ToolCalls = append(m.ToolCalls, c)
	}
	return m
}

// answeredCalls drops calls without a result, which servers refuse.
func answeredCalls(list []wireMessage) []wireMessage {
	answered := map[string]bool{}
	for _, m := range list {
		answered[m.ToolCallID] = true
	}
	for i := range list {
		var kept []wireCall
		for _, c := range list[i].ToolCalls {
			if answered[c.ID] {
				kept = append(kept, c)
			}
		}
		list[i].ToolCalls = kept
	}
	return list
}

// turnText writes an answer as the model would have: thinking, content, calls.
func (g *Chat) turnText(a *answer) (string, error) {
	var parts []string
	if r := strings.TrimSpace(a.reasoning); r != "" {
		parts = append(parts, "<think>\n"+r+"\n</think>\n")
	}
	if a.text != "" {
		parts = append(parts, a.text)
	}
	for _, c := range a.calls {
		arguments, err := toolloop.DecodeArguments(c.Function.Arguments)
		if err != nil { // the model's mistake: shown as it is, and the parser finds no call in it
			parts = append(parts, "<tool_call>\n"+c.Function.Name+" "+c.Function.Arguments+"\n</tool_call>")
			continue
		}
		parts = append(parts, g.Profile.FormatCall(toolloop.ToolCall{Name: c.Function.Name, Arguments: arguments}))
	}
	return strings.Join(parts, "\n"), nil
}

type chatEvent struct {
	Choices []struct {
		Delta struct {
			Content   *string
			Reasoning *string    `json:"reasoning_content"`
			ToolCalls []wireCall `json:"tool_calls"`
		}
		FinishReason *string `json:"finish_reason"`
	}
	Usage *wireUsage
}

func (a *answer) chatEvent(data []byte) error {
	var e chatEvent
	if err := decodeEvent(data, &e); err != nil {
		return err
	}
	if e.Usage != nil {
		a.usage = e.Usage.usage()
	}
	if len(e.Choices) == 0 {
		return nil
	}
	choice := e.Choices[0]
	if choice.Delta.Reasoning != nil {
		a.reasoning += *choice.Delta.Reasoning
	}
	if choice.Delta.Content != nil {
		a.add(*choice.Delta.Content)
	}
	for _, c := range choice.Delta.ToolCalls {
		if err := a.addCall(c); err != nil {
			return err
		}
	}
	if choice.FinishReason != nil {
		a.finish = *choice.FinishReason
	}
	return nil
}

// addCall joins the pieces in which calls are streamed.
func (a *answer) addCall(c wireCall) error {
	const mostCalls = 1000
	if c.Index < 0 || c.Index > len(a.calls) || c.Index >= mostCalls {
		return passing{fmt.Errorf("piece of call %d after %d calls", c.Index, len(a.calls))}
	}
	if c.Index == len(a.calls) {
		a.calls = append(a.calls, wireCall{Index: c.Index})
	}
	call := &a.calls[c.Index]
	call.Function.Name += c.Function.Name
	call.Function.Arguments += c.Function.Arguments
	return nil
}
