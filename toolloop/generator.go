package toolloop

import (
	"context"
	"time"
)

// Token is an id in a model's vocabulary.
type Token = int32

// Generator continues a conversation: an engine in this process, or a server.
type Generator interface {
	// Generate continues req.Prompt. It blocks until the generation ends. Cancelling ctx is no error: the generation
	// ends early with FinishCancelled and holds what was generated so far. An error means that the generator broke.
	//
	// The prompts of one conversation extend each other, so that an implementation may keep what it computed.
	Generate(ctx context.Context, req GenerateRequest) (Generation, error)
}

// GenerateRequest is one turn to generate.
type GenerateRequest struct {
	Prompt    []Token // the whole conversation; the callee does not keep or change it
	MaxTokens int     // most tokens to generate, the end token included; at least 1
	Sampling  Sampling
	// OnText, when set, is called with each piece of text as it is generated, in order, on whole UTF-8 characters.
	OnText func(text string)
}

// Sampling says how the next token is chosen. The zero value is greedy.
type Sampling struct {
	Temperature      float64 `json:"temperature"` // 0: greedy, and the rest is ignored
	TopK             int     `json:"top_k,omitempty"`
	TopP             float64 `json:"top_p,omitempty"` // 0: off
	MinP             float64 `json:"min_p,omitempty"`
	RepeatPenalty    float64 `json:"repeat_penalty,omitempty"` // 0 or 1: off
	PresencePenalty  float64 `json:"presence_penalty,omitempty"`
	FrequencyPenalty float64 `json:"frequency_penalty,omitempty"`
	Seed             uint64  `json:"seed,omitempty"` // 0: drawn at random
}

// Finish says why one generation ended.
type Finish string

// Why a generation ended.
const (
	FinishEOG         Finish = "eog"          // the model closed its turn
	FinishLength      Finish = "length"       // MaxTokens
	FinishContextFull Finish = "context_full" // the model's context
	FinishCancelled   Finish = "cancelled"
)

// Generation is what the model wrote in one turn.
type Generation struct {
	Tokens  []Token // as generated; the last is the end token when Finish is FinishEOG
	Text    string  // the same as text, added tokens (<tool_call>, …) kept, the end token left out
	Finish  Finish
	LogProb float64 // sum of the natural log-probabilities of Tokens; 0 where the generator gives none
	Usage   Usage
}

// Usage counts tokens and times one generation.
type Usage struct {
	PromptTokens    int           `json:"prompt_tokens"`
	CachedTokens    int           `json:"cached_tokens"` // of PromptTokens, not computed again
	GeneratedTokens int           `json:"generated_tokens"`
	FirstToken      time.Duration `json:"first_token_ns"` // from the request to the first token, waiting included
	Total           time.Duration `json:"total_ns"`       // from the request to the end
}
