// Package fakemodel stands in for a model in the loop's tests: a template and a vocabulary of bytes in the manner of
// Qwen's, and a generator that follows a script.
package fakemodel

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"quern/toolloop"
)

// Vocabulary is a tokenizer with one id for each byte and one for each added token.
type Vocabulary struct{}

// added are the tokens beside the bytes; the first three are control tokens, the second ends a turn.
var added = []string{
	"<|im_start|>", "<|im_end|>", "<|endoftext|>",
	"<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>", "<think>", "</think>",
}

const controls = 3

// ID is the id of an added token.
func ID(text string) toolloop.Token {
	for i, a := range added {
		if a == text {
			return toolloop.Token(256 + i)
		}
	}
	panic(text)
}

// Tokenize implements toolloop.Tokenizer.
func (Vocabulary) Tokenize(segments []toolloop.Segment) (ids []toolloop.Token, err error) {
	for _, s := range segments {
		for text := s.Text; text != ""; {
			if i := addedPrefix(text); s.Template && i >= 0 {
				ids = append(ids, toolloop.Token(256+i))
				text = text[len(added[i]):]
				continue
			}
			ids = append(ids, toolloop.Token(text[0]))
			text = text[1:]
		}
	}
	return ids, nil
}

func addedPrefix(text string) int {
	for i, a := range added {
		if strings.HasPrefix(text, a) {
			return i
		}
	}
	return -1
}

// Detokenize implements toolloop.Tokenizer.
func (Vocabulary) Detokenize(ids []toolloop.Token, keepControl bool) string {
	var b strings.Builder
	for _, id := range ids {
		switch {
		case id < 256:
			b.WriteByte(byte(id))
		case id-256 >= controls || keepControl:
			b.WriteString(added[id-256])
		}
	}
	return strings.ToValidUTF8(b.String(), "\ufffd")
}

// IsEOG implements toolloop.Tokenizer.
func (Vocabulary) IsEOG(id toolloop.Token) bool {
	return id == ID("<|im_end|>") || id == ID("<|endoftext|>")
}

// Template renders as the templates of the Qwen family do.
type Template struct{ Thinks bool } // Thinks: the generation prompt opens a think block unless it is switched off

// Render implements toolloop.Renderer.
func (t Template) Render(messages []toolloop.Message, opts toolloop.RenderOptions) (segments []toolloop.Segment, err error) {
	write := func(text string) { segments = append(segments, toolloop.Segment{Text: text, Template: true}) }
	content := func(text string) { segments = append(segments, toolloop.Segment{Text: text}) }
	for i, m := range messages {
		switch m.Role {
		case toolloop.RoleSystem:
			write("<|im_start|>system\n")
			content(m.Content)
			for _, tool := range opts.Tools {
				write("\n# Tool\n")
				content(tool.JSON)
			}
			write("<|im_end|>\n")
		case toolloop.RoleUser, toolloop.RoleAssistant:
			write("<|im_start|>" + m.Role + "\n")
			content(m.Content)
			write("<|im_end|>\n")
		case toolloop.RoleTool:
			if i == 0 || messages[i-1].Role != toolloop.RoleTool {
				write("<|im_start|>user")
			}
			write("\n<tool_response>\n")
			content(m.Content)
			write("\n</tool_response>")
			if i == len(messages)-1 || messages[i+1].Role != toolloop.RoleTool {
				write("<|im_end|>\n")
			}
		default:
			return nil, fmt.Errorf("unexpected role %q", m.Role)
		}
	}
	if opts.AddGenerationPrompt {
		write("<|im_start|>assistant\n")
		switch {
		case t.Thinks && opts.Thinking != nil && !*opts.Thinking:
			write("<think>\n\n</think>\n\n")
		case t.Thinks:
			write("<think>\n")
		}
	}
	return segments, nil
}

// Script is a generator that says its turns one after the other, the last one again when they run out. Each is closed
// by <|im_end|> unless the token limit cuts it.
type Script struct {
	Tokenizer toolloop.Tokenizer
	Turns     []string

	mu       sync.Mutex
	Requests []toolloop.GenerateRequest // what it was asked
}

// Generate implements toolloop.Generator.
func (s *Script) Generate(ctx context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	s.mu.Lock()
	text := s.Turns[min(len(s.Requests), len(s.Turns)-1)]
	s.Requests = append(s.Requests, req)
	s.mu.Unlock()
	ids, err := s.Tokenizer.Tokenize([]toolloop.Segment{{Text: text + "<|im_end|>", Template: true}})
	if err != nil {
		return toolloop.Generation{}, err
	}
	g := toolloop.Generation{Tokens: ids, Finish: toolloop.FinishEOG}
	switch {
	case ctx.Err() != nil:
		g.Tokens, g.Finish = nil, toolloop.FinishCancelled
	case len(ids) > req.MaxTokens || len(ids) == req.MaxTokens && !s.Tokenizer.IsEOG(ids[len(ids)-1]):
		g.Tokens, g.Finish = ids[:req.MaxTokens], toolloop.FinishLength
	}
	shown := g.Tokens
	if g.Finish == toolloop.FinishEOG {
		shown = shown[:len(shown)-1]
	}
	g.Text = s.Tokenizer.Detokenize(shown, true)
	g.Usage = toolloop.Usage{PromptTokens: len(req.Prompt), GeneratedTokens: len(g.Tokens)}
	if req.OnText != nil {
		req.OnText(g.Text)
	}
	return g, nil
}

// Tool is a tool that answers what its function says.
type Tool struct {
	Def    toolloop.Definition
	Answer func(toolloop.Invocation) (toolloop.Observation, error)
}

// RunSQL is a tool with one parameter, query, which its answer sees.
func RunSQL(answer func(query string) string) *Tool {
	def, err := toolloop.NewDefinition(`{"type": "function", "function": {"name": "run_sql", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}`)
	if err != nil {
		panic(err)
	}
	return &Tool{def, func(inv toolloop.Invocation) (toolloop.Observation, error) {
		query, _ := inv.Arguments.Get("query")
		return toolloop.Observation{Text: answer(fmt.Sprint(query))}, nil
	}}
}

// Definition implements toolloop.Tool.
func (t *Tool) Definition() toolloop.Definition { return t.Def }

// Call implements toolloop.Tool.
func (t *Tool) Call(_ context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	return t.Answer(inv)
}
