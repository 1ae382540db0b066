package backend

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"time"

	"quern/toolloop"
)

// Completions generates through /v1/completions with the prompt as token ids.
type Completions struct {
	Client    *Client
	Tokenizer toolloop.Tokenizer // of the model that is served
	End       toolloop.Token     // the token that ends the assistant's turn; servers leave it out
}

// wireSampling is the part of a request that both APIs share. Fields after Seed are not OpenAI's, and are left out for
// servers that refuse them.
type wireSampling struct {
	Temperature      float64 `json:"temperature"`
	TopP             float64 `json:"top_p,omitempty"`
	PresencePenalty  float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty float64 `json:"frequency_penalty,omitempty"`
	Seed             uint64  `json:"seed,omitempty"`
	TopK             int     `json:"top_k,omitempty"`
	MinP             float64 `json:"min_p,omitempty"`
	RepeatPenalty    float64 `json:"repeat_penalty,omitempty"`     // llama-server's name
	Repetition       float64 `json:"repetition_penalty,omitempty"` // vLLM's and SGLang's
}

func (c *Client) wireSampling(s toolloop.Sampling) wireSampling {
	w := wireSampling{
		Temperature: s.Temperature, TopP: s.TopP, PresencePenalty: s.PresencePenalty, FrequencyPenalty: s.FrequencyPenalty, Seed: s.Seed,
	}
	if !c.plain.Load() {
		w.TopK, w.MinP, w.RepeatPenalty, w.Repetition = s.TopK, s.MinP, s.RepeatPenalty, s.RepeatPenalty
	}
	return w
}

type streamOptions struct {
	IncludeUsage bool `json:"include_usage"`
}

type completionRequest struct {
	Model     string           `json:"model"`
	Prompt    []toolloop.Token `json:"prompt"`
	MaxTokens int              `json:"max_tokens"`
	wireSampling
	Stream        bool          `json:"stream"`
	StreamOptions streamOptions `json:"stream_options"`
	LogProbs      int           `json:"logprobs"` // llama-server tells the ids beside them
	*completionExtras
}

// completionExtras ask for token ids, in the words of several servers. Added tokens such as <tool_call> have to stay
// in the text.
type completionExtras struct {
	ReturnTokenIDs    bool `json:"return_token_ids"`    // vLLM
	SkipSpecialTokens bool `json:"skip_special_tokens"` // vLLM, SGLang
	CachePrompt       bool `json:"cache_prompt"`        // llama-server
}

type completionEvent struct {
	Choices []struct {
		Text         string
		FinishReason *string          `json:"finish_reason"`
		TokenIDs     []toolloop.Token `json:"token_ids"`
		LogProbs     *struct {
			Content []struct {
				ID      *toolloop.Token
				LogProb float64
			}
			Tokens        []string
			TokenLogProbs []*float64 `json:"token_logprobs"`
		} `json:"logprobs"`
	}
	Usage *wireUsage
}

type wireUsage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

func (u *wireUsage) usage() toolloop.Usage {
	return toolloop.Usage{PromptTokens: u.PromptTokens, CachedTokens: u.Details.CachedTokens, GeneratedTokens: u.CompletionTokens}
}

// Generate implements toolloop.Generator.
func (g *Completions) Generate(ctx context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	model, err := g.Client.Model(ctx)
	if err != nil {
		return toolloop.Generation{}, err
	}
	a := answer{onText: req.OnText, began: time.Now()}
	gen, err := a.run(ctx, g.Client, func() error {
		request := completionRequest{
			Model: model, Prompt: req.Prompt, MaxTokens: req.MaxTokens, wireSampling: g.Client.wireSampling(req.Sampling),
			Stream: true, StreamOptions: streamOptions{true}, LogProbs: 1,
		}
		if !g.Client.plain.Load() {
			request.completionExtras = &completionExtras{ReturnTokenIDs: true, CachePrompt: true}
		}
		return g.Client.stream(ctx, "/v1/completions", request, a.reset, a.completionEvent)
	})
	if err != nil {
		return toolloop.Generation{}, err
	}
	return g.finish(gen, &a)
}

// finish turns the answer into ids: the server's where it told all of them, else those of its text. (llama-server does
// not tell the ids of characters that take several tokens.)
func (g *Completions) finish(gen toolloop.Generation, a *answer) (toolloop.Generation, error) {
	gen.Tokens = a.ids
	if !a.idsComplete() {
		ids, err := g.Tokenizer.Tokenize([]toolloop.Segment{{Text: a.text, Template: true}})
		if err != nil {
			return toolloop.Generation{}, err
		}
		gen.Tokens = ids
	}
	n := len(gen.Tokens)
	ended := n > 0 && g.Tokenizer.IsEOG(gen.Tokens[n-1])
	shown := gen.Tokens
	switch {
	case ended:
		gen.Finish = toolloop.FinishEOG
		shown = shown[:n-1]
	case gen.Finish == toolloop.FinishEOG:
		gen.Tokens = append(gen.Tokens, g.End)
	}
	gen.Text = g.Tokenizer.Detokenize(shown, true)
	return gen, nil
}

// idsComplete says whether the ids that the server told are all that it generated; the end token may be missing.
func (a *answer) idsComplete() bool {
	counted := a.usage.GeneratedTokens
	known := counted == 0 || counted == len(a.ids) || counted == len(a.ids)+1 && a.finish == "stop"
	return known && !a.idsMissing && (len(a.ids) > 0 || a.text == "")
}

// answer gathers a streamed answer. A try that starts anew forgets it, but does not show the same text twice.
type answer struct {
	onText func(string)
	shown  string // given to onText
	began  time.Time

	text       string
	ids        []toolloop.Token
	idsMissing bool // some piece of text came without ids
	logProb    float64
	finish     string
	usage      toolloop.Usage
	firstPiece time.Duration
	calls      []wireCall
	reasoning  string
}

func (a *answer) reset() {
	*a = answer{onText: a.onText, shown: a.shown, began: a.began}
}

// run makes the request and reads its outcome: a request beyond the model's context and one that was cancelled are
// generations too.
func (a *answer) run(ctx context.Context, c *Client, request func() error) (toolloop.Generation, error) {
	err := request()
	var status *StatusError
	if errors.As(err, &status) && !status.contextFull() && refusesFields(status) && !c.plain.Swap(true) {
		err = request()
	}
	gen := toolloop.Generation{Text: a.text, LogProb: a.logProb, Usage: a.usage, Finish: toolloop.FinishLength}
	gen.Usage.FirstToken, gen.Usage.Total = a.firstPiece, time.Since(a.began)
	switch {
	case ctx.Err() != nil:
		gen.Finish = toolloop.FinishCancelled
		return gen, nil
	case errors.As(err, &status) && status.contextFull():
		gen.Finish = toolloop.FinishContextFull
		return gen, nil
	case err != nil:
		return gen, err
	case a.finish == "stop" || a.finish == "tool_calls":
		gen.Finish = toolloop.FinishEOG
	}
	return gen, nil
}

// refusesFields says whether a server may have refused a request for fields that it does not know.
func refusesFields(e *StatusError) bool { return e.Status == 400 || e.Status == 422 }

func (a *answer) completionEvent(data []byte) error {
	var e completionEvent
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
	before := len(a.ids)
	a.ids = append(a.ids, choice.TokenIDs...)
	if l := choice.LogProbs; l != nil {
		for _, p := range l.Content {
			a.logProb += p.LogProb
			if p.ID != nil && len(choice.TokenIDs) == 0 {
				a.ids = append(a.ids, *p.ID)
			}
		}
		for i, p := range l.TokenLogProbs {
			if p != nil {
				a.logProb += *p
			}
			if id, ok := namedID(l.Tokens, i); ok && len(choice.TokenIDs) == 0 {
				a.ids = append(a.ids, id)
			}
		}
	}
	if choice.Text != "" && len(a.ids) == before {
		a.idsMissing = true
	}
	a.add(choice.Text)
	if choice.FinishReason != nil {
		a.finish = *choice.FinishReason
	}
	return nil
}

// namedID reads the id out of "token_id:123", as vLLM writes it where it is told to.
func namedID(tokens []string, i int) (toolloop.Token, bool) {
	if i >= len(tokens) {
		return 0, false
	}
	number, isID := strings.CutPrefix(tokens[i], "token_id:")
	n, err := strconv.ParseInt(number, 10, 32)
	return toolloop.Token(n), isID && err == nil
}

// add appends a piece of text and shows what has not been shown.
func (a *answer) add(text string) {
	if text == "" {
		return
	}
	if a.firstPiece == 0 {
		a.firstPiece = time.Since(a.began)
	}
	a.text += text
	if a.onText != nil && len(a.text) > len(a.shown) && strings.HasPrefix(a.text, a.shown) {
		a.onText(a.text[len(a.shown):])
		a.shown = a.text
	}
}
