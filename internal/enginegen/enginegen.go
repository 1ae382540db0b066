// Package enginegen joins the engine to the tool loop: the few lines that make a model of the one the Renderer,
// Tokenizer and Generator of the other. Neither knows the other.
package enginegen

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"

	"quern/engine"
	"quern/toolloop"
)

// Renderer renders with a chat template, the model's own or another.
type Renderer struct{ Template *engine.ChatTemplate }

// Render implements toolloop.Renderer.
func (r Renderer) Render(messages []toolloop.Message, opts toolloop.RenderOptions) ([]toolloop.Segment, error) {
	chat := engine.Chat{Kwargs: map[string]any{"add_generation_prompt": opts.AddGenerationPrompt}}
	var err error
	if chat.Messages, err = json.Marshal(messages); err != nil {
		return nil, err
	}
	if len(opts.Tools) > 0 {
		texts := make([]string, len(opts.Tools))
		for i, t := range opts.Tools {
			texts[i] = t.JSON
		}
		chat.Tools = json.RawMessage("[" + strings.Join(texts, ",") + "]")
	}
	if opts.Thinking != nil {
		chat.Kwargs["enable_thinking"] = *opts.Thinking
	}
	rendered, err := r.Template.Render(chat)
	if err != nil {
		return nil, err
	}
	segments := make([]toolloop.Segment, len(rendered))
	for i, s := range rendered {
		segments[i] = toolloop.Segment{Text: s.Text, Template: s.FromTemplate}
	}
	return segments, nil
}

// Tokenizer uses a model's vocabulary.
type Tokenizer struct{ Model *engine.Model }

// Tokenize implements toolloop.Tokenizer. Text that the template wrote as a whole, which is what replaying a
// reference asks for, is tokenized as the reference does.
func (t Tokenizer) Tokenize(segments []toolloop.Segment) ([]toolloop.Token, error) {
	mine := make([]engine.Segment, len(segments))
	for i, s := range segments {
		mine[i] = engine.Segment{Text: s.Text, FromTemplate: s.Template}
	}
	return t.Model.Tokenize(mine)
}

// Detokenize implements toolloop.Tokenizer.
func (t Tokenizer) Detokenize(ids []toolloop.Token, keepControl bool) string {
	text, err := t.Model.Detokenize(ids, keepControl)
	if err != nil { // an id outside the vocabulary: nothing that this model generated
		return fmt.Sprintf("(no text: %v)", err)
	}
	return strings.ToValidUTF8(text, "\ufffd")
}

// IsEOG implements toolloop.Tokenizer.
func (t Tokenizer) IsEOG(id toolloop.Token) bool { return slices.Contains(t.Model.EndTokens(), id) }

// Generator generates with an engine.
type Generator struct {
	Engine   *engine.Engine
	LogProbs bool // sum up the log-probabilities of what is generated; costs time
	Order    int  // rank in a deterministic engine, see engine.Request
}

// Generate implements toolloop.Generator.
func (g Generator) Generate(ctx context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	stream, err := g.start(ctx, req)
	if err != nil {
		return toolloop.Generation{}, err
	}
	return g.read(stream, req)
}

func (g Generator) start(ctx context.Context, req toolloop.GenerateRequest) (*engine.Stream, error) {
	return g.Engine.Generate(ctx, engine.Request{
		Prompt: req.Prompt, MaxTokens: req.MaxTokens, Sampling: sampling(req.Sampling), Logprobs: g.LogProbs, Order: g.Order,
	})
}

func (g Generator) read(stream *engine.Stream, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	for event, err := range stream.Events() {
		if err != nil {
			return toolloop.Generation{}, err
		}
		if req.OnText != nil && event.Text != "" {
			req.OnText(event.Text)
		}
		if event.Kind == engine.EventDone {
			return g.generation(event.Result), nil
		}
	}
	return toolloop.Generation{}, fmt.Errorf("enginegen: the generation ended without a result")
}

func (g Generator) generation(r *engine.Result) toolloop.Generation {
	tokenizer := Tokenizer{g.Engine.Model()}
	text := r.Tokens
	if n := len(text); n > 0 && tokenizer.IsEOG(text[n-1]) {
		text = text[:n-1]
	}
	return toolloop.Generation{
		Tokens: r.Tokens, Text: tokenizer.Detokenize(text, true), Finish: finish[r.Stop], LogProb: r.LogprobTotal,
		Usage: toolloop.Usage{
			PromptTokens: r.Usage.PromptTokens, CachedTokens: r.Usage.CachedTokens, GeneratedTokens: r.Usage.Generated,
			FirstToken: r.Usage.FirstToken, Total: r.Usage.Total,
		},
	}
}

// Conversation is the Generator of one conversation that nobody goes on with after its end.
type Conversation struct {
	Generator
	asked int // tokens of the first prompt
	last  *engine.Stream
}

// Generate implements toolloop.Generator.
func (c *Conversation) Generate(ctx context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	stream, err := c.start(ctx, req)
	if err != nil {
		return toolloop.Generation{}, err
	}
	if c.last == nil {
		c.asked = len(req.Prompt)
	}
	c.last = stream
	return c.read(stream, req)
}

// Forget ends the conversation: its memory but for the first prompt is free for others.
func (c *Conversation) Forget() {
	if c.last != nil {
		c.last.Forget(c.asked)
	}
}

var finish = map[engine.StopReason]toolloop.Finish{
	engine.StopEnd:         toolloop.FinishEOG,
	engine.StopString:      toolloop.FinishEOG,
	engine.StopMaxTokens:   toolloop.FinishLength,
	engine.StopContextFull: toolloop.FinishContextFull,
	engine.StopCancelled:   toolloop.FinishCancelled,
}

func sampling(s toolloop.Sampling) engine.Sampling {
	seed := uint32(s.Seed) ^ uint32(s.Seed>>32)
	if s.Seed == 0 {
		seed = rand.Uint32()
	}
	return engine.Sampling{
		Temperature: float32(s.Temperature), TopK: s.TopK, TopP: float32(s.TopP), MinP: float32(s.MinP), Seed: seed,
		RepeatPenalty: float32(s.RepeatPenalty), PresencePenalty: float32(s.PresencePenalty), FrequencyPenalty: float32(s.FrequencyPenalty),
	}
}
