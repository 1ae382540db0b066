package openaiapi

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"math"
	"net/http"
	"strings"
	"time"
	"unicode/utf8"

	"quern/engine"
)

// chat answers POST /v1/chat/completions.
func (s *Server) chat(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req chatRequest
	if err := read(body, &req); err != nil {
		return err
	}
	prompt, thinking, err := s.chatPrompt(req)
	if err != nil {
		return err
	}
	base, n, err := s.request(req.sampling, prompt, firstSet(req.MaxCompletionTokens, req.MaxTokens))
	if err != nil {
		return err
	}
	base.Logprobs, base.TopLogprobs = req.Logprobs, req.TopLogprobs
	reply := chatReply{ID: "chatcmpl-" + rand.Text(), Created: time.Now().Unix(), Model: s.Name}
	tools := len(req.Tools) > 0 && string(req.ToolChoice) != `"none"`
	if req.Stream {
		return s.chatStream(w, r.Context(), req, reply, base, n, splitter{thinking: thinking, tools: tools})
	}
	reply.Object = "chat.completion"
	total := usage{PromptTokens: len(prompt)}
	for i := range n {
		choice, used, err := s.chatChoice(r.Context(), draw(base, i), splitter{thinking: thinking, tools: tools})
		if err != nil {
			return err
		}
		choice.Index = i
		reply.Choices = append(reply.Choices, choice)
		total.add(used)
	}
	reply.Usage = &total
	writeJSON(w, http.StatusOK, reply)
	return nil
}

// chatPrompt checks what a request asks for and renders its conversation. thinking says whether the template left a
// think block open for the model to continue.
func (s *Server) chatPrompt(req chatRequest) (ids []engine.Token, thinking bool, err error) {
	if err := s.checkModel(req.Model); err != nil {
		return nil, false, err
	}
	switch choice := string(req.ToolChoice); {
	case len(req.Messages) == 0:
		return nil, false, invalid("messages", "messages must hold at least one message")
	case s.Template == nil:
		return nil, false, invalid("messages", "this model has no chat template: use /v1/completions, or start the server with --chat-template")
	case req.ResponseFormat != nil && req.ResponseFormat.Type != "text":
		return nil, false, invalid("response_format", "only the response format \"text\" is supported")
	case choice != "" && choice != "null" && choice != `"auto"` && choice != `"none"`:
		return nil, false, invalid("tool_choice", "tool_choice must be \"auto\" or \"none\"; a call cannot be forced")
	case req.TopLogprobs < 0 || req.TopLogprobs > 20:
		return nil, false, invalid("top_logprobs", "top_logprobs must be from 0 to 20")
	}
	messages, err := templateMessages(req.Messages)
	if err != nil {
		return nil, false, err
	}
	chat := engine.Chat{Messages: messages, Kwargs: map[string]any{"add_generation_prompt": true}}
	for name, value := range req.TemplateKwargs {
		chat.Kwargs[name] = value
	}
	if len(req.Tools) > 0 && string(req.ToolChoice) != `"none"` {
		if chat.Tools, err = json.Marshal(req.Tools); err != nil {
			return nil, false, err
		}
	}
	segments, err := s.Template.Render(chat)
	if err != nil {
		return nil, false, err
	}
	ids, err = s.Engine.Model().Tokenize(segments)
	return ids, endsInThinking(segments), err
}

func endsInThinking(segments []engine.Segment) bool {
	if len(segments) == 0 {
		return false
	}
	last := segments[len(segments)-1].Text
	return strings.HasSuffix(strings.TrimRight(last, "\n"), openThink)
}

// templateMessages brings messages into the form that chat templates read: contents as text, arguments as objects.
func templateMessages(raw []json.RawMessage) (json.RawMessage, error) {
	messages := make([]map[string]json.RawMessage, len(raw))
	for i, r := range raw {
		if err := json.Unmarshal(r, &messages[i]); err != nil || messages[i]["role"] == nil {
			return nil, invalid("messages", "message %d must be an object with a role", i)
		}
		m := messages[i]
		if string(m["role"]) == `"developer"` {
			m["role"] = json.RawMessage(`"system"`)
		}
		content, err := contentText(m["content"])
		if err != nil {
			return nil, invalid("messages", "message %d: %v", i, err)
		}
		m["content"] = content
		if calls, ok := m["tool_calls"]; ok {
			if m["tool_calls"], err = callObjects(calls); err != nil {
				return nil, invalid("messages", "message %d: %v", i, err)
			}
		}
	}
	return json.Marshal(messages)
}

// contentText joins a list of text parts; other content stays as it is, none at all is "".
func contentText(content json.RawMessage) (json.RawMessage, error) {
	if content == nil || string(content) == "null" {
		return json.RawMessage(`""`), nil
	}
	if content[0] == '"' {
		return content, nil
	}
	var parts []struct{ Type, Text string }
	if err := json.Unmarshal(content, &parts); err != nil {
		return nil, invalid("", "content must be a string or a list of text parts")
	}
	var text strings.Builder
	for _, p := range parts {
		if p.Type != "text" {
			return nil, invalid("", "content parts of type %q are not supported, only text", p.Type)
		}
		text.WriteString(p.Text)
	}
	return json.Marshal(text.String())
}

// callObjects turns each call's arguments from JSON text, as the API has them, into the object that templates print.
func callObjects(raw json.RawMessage) (json.RawMessage, error) {
	var calls []map[string]json.RawMessage
	if err := json.Unmarshal(raw, &calls); err != nil {
		return nil, invalid("", "tool_calls must be a list of objects")
	}
	for _, call := range calls {
		var function map[string]json.RawMessage
		if err := json.Unmarshal(call["function"], &function); err != nil {
			return nil, invalid("", "a tool call must have a function")
		}
		var text string
		if json.Unmarshal(function["arguments"], &text) == nil && json.Valid([]byte(text)) {
			function["arguments"] = json.RawMessage(text)
		}
		encoded, err := json.Marshal(function)
		if err != nil {
			return nil, err
		}
		call["function"] = encoded
	}
	return json.Marshal(calls)
}

// chatChoice runs one generation to its end.
func (s *Server) chatChoice(ctx context.Context, req engine.Request, split splitter) (chatChoice, engine.Usage, error) {
	var reasoning, content strings.Builder
	var probs logprobs
	result, err := s.generate(ctx, req, func(e engine.Event) error {
		r, c := split.push(e.Text)
		reasoning.WriteString(r)
		content.WriteString(c)
		probs.add(s.Engine.Model(), e, req)
		return nil
	})
	if err != nil {
		return chatChoice{}, engine.Usage{}, err
	}
	r, c := split.flush()
	calls, rest := s.finalCalls(split.calls, result)
	text := content.String() + c + rest
	answer := &message{Role: "assistant", Content: &text, Reasoning: strings.Trim(reasoning.String()+r, "\n"), ToolCalls: calls}
	choice := chatChoice{Message: answer, FinishReason: finish(result.Stop, calls)}
	if req.Logprobs {
		choice.Logprobs = &probs
	}
	return choice, result.Usage, nil
}

// finalCalls reads the calls at the end of an answer. A generation that was cut yields none: its text is content.
func (s *Server) finalCalls(text string, result engine.Result) (calls []toolCall, rest string) {
	if text == "" || s.Parse == nil || result.Stop != engine.StopEnd && result.Stop != engine.StopString {
		return nil, text
	}
	for _, c := range s.Parse(text) {
		calls = append(calls, toolCall{ID: "call_" + rand.Text(), Type: "function", Function: functionCall(c)})
	}
	if len(calls) == 0 {
		return nil, text
	}
	return calls, ""
}

// chatStream sends the choices one after the other as they are generated.
func (s *Server) chatStream(w http.ResponseWriter, ctx context.Context, req chatRequest, reply chatReply, base engine.Request, n int, blank splitter) error {
	out := &events{w: w, flush: http.NewResponseController(w)}
	reply.Object = "chat.completion.chunk"
	chunk := func(index int, delta message, probs *logprobs, why *string) error {
		reply.Choices = []chatChoice{{Index: index, Delta: &delta, Logprobs: probs, FinishReason: why}}
		return out.send(reply)
	}
	total := usage{PromptTokens: len(base.Prompt)}
	for i := range n {
		split, empty := blank, ""
		begun := false
		result, err := s.generate(ctx, draw(base, i), func(e engine.Event) error {
			if !begun { // only now is it sure that the request can be answered
				begun = true
				if err := chunk(i, message{Role: "assistant", Content: &empty}, nil, nil); err != nil {
					return err
				}
			}
			r, c := split.push(e.Text)
			var probs *logprobs
			if base.Logprobs {
				probs = &logprobs{}
				probs.add(s.Engine.Model(), e, base)
			}
			if r == "" && c == "" && probs == nil {
				return nil
			}
			return chunk(i, message{Content: nonEmpty(c), Reasoning: r}, probs, nil)
		})
		if err != nil {
			return out.fail(err)
		}
		r, c := split.flush()
		calls, rest := s.finalCalls(split.calls, result)
		for k := range calls {
			calls[k].Index = &k
		}
		if last := (message{Content: nonEmpty(c + rest), Reasoning: r, ToolCalls: calls}); last.Content != nil || r != "" || calls != nil {
			if err := chunk(i, last, nil, nil); err != nil {
				return err
			}
		}
		if err := chunk(i, message{}, nil, finish(result.Stop, calls)); err != nil {
			return err
		}
		total.add(result.Usage)
	}
	if req.StreamOptions.IncludeUsage {
		reply.Choices, reply.Usage = []chatChoice{}, &total
		if err := out.send(reply); err != nil {
			return err
		}
	}
	return out.done()
}

// request turns the API's sampling fields into the engine's, with the number of choices.
func (s *Server) request(p sampling, prompt []engine.Token, maxTokens *int) (engine.Request, int, error) {
	n := 1
	if p.N != nil {
		n = *p.N
	}
	temperature := s.Temperature
	if p.Temperature != nil {
		temperature = *p.Temperature
	}
	topP := 1.0
	if p.TopP != nil {
		topP = *p.TopP
	}
	switch {
	case n < 1 || n > 16:
		return engine.Request{}, 0, invalid("n", "n must be from 1 to 16")
	case temperature < 0 || temperature > 2:
		return engine.Request{}, 0, invalid("temperature", "temperature must be from 0 to 2")
	case topP <= 0 || topP > 1:
		return engine.Request{}, 0, invalid("top_p", "top_p must be over 0 and at most 1")
	case p.MinP < 0 || p.MinP > 1:
		return engine.Request{}, 0, invalid("min_p", "min_p must be from 0 to 1")
	case p.TopK < 0 || p.RepeatPenalty < 0:
		return engine.Request{}, 0, invalid("", "top_k and repeat_penalty must not be negative")
	case math.Abs(p.PresencePenalty) > 2 || math.Abs(p.FrequencyPenalty) > 2:
		return engine.Request{}, 0, invalid("presence_penalty", "penalties must be from -2 to 2")
	case len(p.Stop) > 16:
		return engine.Request{}, 0, invalid("stop", "at most 16 stop texts")
	case maxTokens != nil && *maxTokens < 1:
		return engine.Request{}, 0, invalid("max_tokens", "max_tokens must be at least 1")
	}
	req := engine.Request{Prompt: prompt, Stop: p.Stop, Sampling: engine.Sampling{
		Temperature: float32(temperature), TopK: p.TopK, TopP: float32(topP), MinP: float32(p.MinP),
		RepeatPenalty: float32(p.RepeatPenalty), PresencePenalty: float32(p.PresencePenalty), FrequencyPenalty: float32(p.FrequencyPenalty),
	}}
	if p.Seed != nil {
		req.Sampling.Seed = uint32(*p.Seed)
	} else {
		req.Sampling.Seed = uint32(time.Now().UnixNano())
	}
	if maxTokens != nil {
		req.MaxTokens = *maxTokens
	}
	return req, n, nil
}

// draw is the i-th choice of a request: the same with another seed.
func draw(req engine.Request, i int) engine.Request {
	req.Sampling.Seed += uint32(i)
	return req
}

func finish(stop engine.StopReason, calls []toolCall) *string {
	why := "stop"
	switch {
	case len(calls) > 0:
		why = "tool_calls"
	case stop == engine.StopMaxTokens || stop == engine.StopContextFull:
		why = "length"
	}
	return &why
}

func (u *usage) add(e engine.Usage) {
	u.CompletionTokens += e.Generated
	u.TotalTokens = u.PromptTokens + u.CompletionTokens
	u.Details.CachedTokens = max(u.Details.CachedTokens, e.CachedTokens)
}

func (l *logprobs) add(m *engine.Model, e engine.Event, req engine.Request) {
	if !req.Logprobs || e.Kind != engine.EventToken {
		return
	}
	entry := tokenProb(m, engine.TokenLogprob{ID: e.Token, Logprob: e.Logprob})
	for _, t := range e.Top {
		entry.Top = append(entry.Top, tokenProb(m, t))
	}
	l.Content = append(l.Content, entry)
}

func tokenProb(m *engine.Model, t engine.TokenLogprob) tokenLogprob {
	piece := m.Piece(t.ID, true)
	entry := tokenLogprob{Token: strings.ToValidUTF8(piece, string(utf8.RuneError)), Logprob: t.Logprob}
	for _, b := range []byte(piece) {
		entry.Bytes = append(entry.Bytes, int(b))
	}
	return entry
}

func nonEmpty(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func firstSet(a, b *int) *int {
	if a != nil {
		return a
	}
	return b
}
