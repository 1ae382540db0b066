package openaiapi

import (
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"quern/engine"
)

// completions answers POST /v1/completions: raw text or token ids are continued, without a chat template.
func (s *Server) completions(w http.ResponseWriter, r *http.Request, body []byte) error {
	var req completionRequest
	if err := read(body, &req); err != nil {
		return err
	}
	if err := s.checkCompletion(req); err != nil {
		return err
	}
	prompts, err := s.promptIDs(req.Prompt)
	if err != nil {
		return err
	}
	reply := completionReply{ID: "cmpl-" + rand.Text(), Object: "text_completion", Created: time.Now().Unix(), Model: s.Name}
	var stream *events
	if req.Stream {
		stream = &events{w: w, flush: http.NewResponseController(w)}
	}
	var total usage
	for _, ids := range prompts {
		base, n, err := s.request(req.sampling, ids, firstSet(req.MaxTokens, ptr(16))) // the API's default
		if err != nil {
			return err
		}
		base.Logprobs = req.Logprobs != nil
		if base.Logprobs {
			base.TopLogprobs = *req.Logprobs
		}
		total.PromptTokens += len(ids)
		for i := range n {
			choice := completionChoice{Index: len(reply.Choices)}
			used, err := s.complete(r.Context(), draw(base, i), &choice, req.ReturnTokenIDs, stream, reply)
			if err != nil {
				if stream != nil {
					return stream.fail(err)
				}
				return err
			}
			reply.Choices = append(reply.Choices, choice)
			total.add(used)
		}
	}
	if stream == nil {
		reply.Usage = &total
		writeJSON(w, http.StatusOK, reply)
		return nil
	}
	if req.StreamOptions.IncludeUsage {
		reply.Choices, reply.Usage = []completionChoice{}, &total
		if err := stream.send(reply); err != nil {
			return err
		}
	}
	return stream.done()
}

func (s *Server) checkCompletion(req completionRequest) error {
	switch {
	case len(req.Prompt) == 0:
		return invalid("prompt", "prompt must not be empty")
	case len(req.Prompt) > 128:
		return invalid("prompt", "at most 128 prompts at once")
	case req.Echo:
		return invalid("echo", "echo is not supported")
	case req.Suffix != "":
		return invalid("suffix", "suffix is not supported")
	case req.BestOf != nil && *req.BestOf != 1:
		return invalid("best_of", "best_of is not supported")
	case req.Logprobs != nil && (*req.Logprobs < 0 || *req.Logprobs > 20):
		return invalid("logprobs", "logprobs must be from 0 to 20")
	}
	return s.checkModel(req.Model)
}

// promptIDs tokenizes the prompts; control tokens in a text are recognised, as the text is the whole prompt.
func (s *Server) promptIDs(prompts promptList) ([][]engine.Token, error) {
	ids := make([][]engine.Token, len(prompts))
	for i, p := range prompts {
		ids[i] = p.ids
		if p.ids == nil {
			var err error
			if ids[i], err = s.Engine.Model().Tokenize([]engine.Segment{{Text: p.text, FromTemplate: true}}); err != nil {
				return nil, err
			}
		}
		if len(ids[i]) == 0 {
			return nil, invalid("prompt", "prompt %d is empty", i)
		}
		for _, id := range ids[i] {
			if id < 0 || int(id) >= s.Engine.Model().VocabSize() {
				return nil, invalid("prompt", "token id %d is outside the vocabulary of %d", id, s.Engine.Model().VocabSize())
			}
		}
	}
	return ids, nil
}

// complete runs one generation into choice, and to the stream where there is one.
func (s *Server) complete(ctx context.Context, req engine.Request, choice *completionChoice, withIDs bool, stream *events, reply completionReply) (engine.Usage, error) {
	if req.Logprobs {
		choice.Logprobs = &legacyLogprobs{}
	}
	send := func(c completionChoice) error {
		reply.Choices = []completionChoice{c}
		return stream.send(reply)
	}
	result, err := s.generate(ctx, req, func(e engine.Event) error {
		part := completionChoice{Index: choice.Index, Text: e.Text}
		if withIDs && e.Kind == engine.EventToken {
			part.TokenIDs = []int32{e.Token}
		}
		if req.Logprobs && e.Kind == engine.EventToken {
			part.Logprobs = &legacyLogprobs{}
			part.Logprobs.add(s.Engine.Model(), e, len(choice.Text))
			choice.Logprobs.add(s.Engine.Model(), e, len(choice.Text))
		}
		choice.Text += e.Text
		if stream == nil || e.Text == "" && !withIDs {
			return nil
		}
		return send(part)
	})
	if err != nil {
		return engine.Usage{}, err
	}
	choice.FinishReason = finish(result.Stop, nil)
	if withIDs {
		choice.TokenIDs = result.Tokens
	}
	if stream == nil {
		return result.Usage, nil
	}
	return result.Usage, send(completionChoice{Index: choice.Index, FinishReason: choice.FinishReason})
}

func (l *legacyLogprobs) add(m *engine.Model, e engine.Event, offset int) {
	chosen := tokenProb(m, engine.TokenLogprob{ID: e.Token, Logprob: e.Logprob})
	l.Tokens = append(l.Tokens, chosen.Token)
	l.TokenLogprobs = append(l.TokenLogprobs, e.Logprob)
	l.TextOffset = append(l.TextOffset, offset)
	top := map[string]float64{}
	for _, t := range e.Top {
		top[tokenProb(m, t).Token] = t.Logprob
	}
	l.TopLogprobs = append(l.TopLogprobs, top)
}

func ptr[T any](v T) *T { return &v }
