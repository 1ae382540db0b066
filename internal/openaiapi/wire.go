package openaiapi

import (
	"encoding/json"
	"errors"
	"fmt"
)

// The wire types hold the fields of OpenAI's API that are honoured here. Fields that would change the answer and are
// not honoured are refused by name (see refuse); any other is ignored, as clients send many.

// sampling are the fields that both kinds of completion share.
type sampling struct {
	Temperature      *float64 `json:"temperature"`
	TopP             *float64 `json:"top_p"`
	TopK             int      `json:"top_k"`          // extension
	MinP             float64  `json:"min_p"`          // extension
	RepeatPenalty    float64  `json:"repeat_penalty"` // extension
	PresencePenalty  float64  `json:"presence_penalty"`
	FrequencyPenalty float64  `json:"frequency_penalty"`
	Seed             *int64   `json:"seed"`
	Stop             stopList `json:"stop"`
	N                *int     `json:"n"`
	Stream           bool     `json:"stream"`
	StreamOptions    struct {
		IncludeUsage bool `json:"include_usage"`
	} `json:"stream_options"`
}

type chatRequest struct {
	sampling
	Model               string            `json:"model"`
	Messages            []json.RawMessage `json:"messages"`
	Tools               []json.RawMessage `json:"tools"`
	ToolChoice          json.RawMessage   `json:"tool_choice"`
	MaxTokens           *int              `json:"max_tokens"`
	MaxCompletionTokens *int              `json:"max_completion_tokens"`
	Logprobs            bool              `json:"logprobs"`
	TopLogprobs         int               `json:"top_logprobs"`
	ResponseFormat      *struct {
		Type string `json:"type"`
	} `json:"response_format"`
	TemplateKwargs map[string]any `json:"chat_template_kwargs"` // extension, as in vLLM
}

type completionRequest struct {
	sampling
	Model     string     `json:"model"`
	Prompt    promptList `json:"prompt"`
	MaxTokens *int       `json:"max_tokens"`
	Logprobs  *int       `json:"logprobs"`
	Echo      bool       `json:"echo"`
	BestOf    *int       `json:"best_of"`
	Suffix    string     `json:"suffix"`
	// ReturnTokenIDs adds the ids of each completion as token_ids, as in vLLM.
	ReturnTokenIDs bool `json:"return_token_ids"`
}

// stopList is a string or a list of strings.
type stopList []string

func (s *stopList) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*s = nil
		if one != "" {
			*s = stopList{one}
		}
		return nil
	}
	var many []string
	if err := json.Unmarshal(data, &many); err != nil {
		return errors.New("stop must be a string or a list of strings")
	}
	*s = many
	return nil
}

// prompt is a text or, when ids is not nil, token ids.
type prompt struct {
	text string
	ids  []int32
}

// promptList is a string, a list of strings, a list of token ids, or a list of such lists.
type promptList []prompt

func (p *promptList) UnmarshalJSON(data []byte) error {
	var text string
	var texts []string
	var ids []int32
	var lists [][]int32
	*p = nil
	switch {
	case json.Unmarshal(data, &text) == nil:
		*p = promptList{{text: text}}
	case json.Unmarshal(data, &texts) == nil:
		for _, t := range texts {
			*p = append(*p, prompt{text: t})
		}
	case json.Unmarshal(data, &ids) == nil:
		*p = promptList{{ids: ids}}
	case json.Unmarshal(data, &lists) == nil:
		for _, l := range lists {
			*p = append(*p, prompt{ids: l})
		}
	default:
		return errors.New("prompt must be a string, a list of strings, a list of token ids, or a list of such lists")
	}
	return nil
}

// apiError is an error as OpenAI's clients read it.
type apiError struct {
	status  int
	Message string  `json:"message"`
	Type    string  `json:"type"`
	Param   *string `json:"param"`
	Code    *string `json:"code"`
}

func (e *apiError) Error() string { return e.Message }

func invalid(param, format string, args ...any) *apiError {
	e := &apiError{status: 400, Type: "invalid_request_error", Message: fmt.Sprintf(format, args...)}
	if param != "" {
		e.Param = &param
	}
	return e
}

func failure(status int, kind, code, format string, args ...any) *apiError {
	return &apiError{status: status, Type: kind, Code: &code, Message: fmt.Sprintf(format, args...)}
}

type usage struct {
	PromptTokens     int `json:"prompt_tokens"`
	CompletionTokens int `json:"completion_tokens"`
	TotalTokens      int `json:"total_tokens"`
	Details          struct {
		CachedTokens int `json:"cached_tokens"`
	} `json:"prompt_tokens_details"`
}

type toolCall struct {
	Index    *int         `json:"index,omitempty"` // in streams only
	ID       string       `json:"id"`
	Type     string       `json:"type"`
	Function functionCall `json:"function"`
}

type functionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"` // JSON text
}

// message is an answer's message, or a part of it in a stream.
type message struct {
	Role      string     `json:"role,omitempty"`
	Content   *string    `json:"content,omitempty"`
	Reasoning string     `json:"reasoning_content,omitempty"`
	ToolCalls []toolCall `json:"tool_calls,omitempty"`
}

type chatChoice struct {
	Index        int       `json:"index"`
	Message      *message  `json:"message,omitempty"`
	Delta        *message  `json:"delta,omitempty"`
	Logprobs     *logprobs `json:"logprobs"`
	FinishReason *string   `json:"finish_reason"`
}

type chatReply struct {
	ID      string       `json:"id"`
	Object  string       `json:"object"`
	Created int64        `json:"created"`
	Model   string       `json:"model"`
	Choices []chatChoice `json:"choices"`
	Usage   *usage       `json:"usage,omitempty"`
}

type logprobs struct {
	Content []tokenLogprob `json:"content"`
}

type tokenLogprob struct {
	Token   string         `json:"token"`
	Logprob float64        `json:"logprob"`
	Bytes   []int          `json:"bytes"`
	Top     []tokenLogprob `json:"top_logprobs,omitempty"`
}

type completionChoice struct {
	Index        int             `json:"index"`
	Text         string          `json:"text"`
	TokenIDs     []int32         `json:"token_ids,omitempty"`
	Logprobs     *legacyLogprobs `json:"logprobs"`
	FinishReason *string         `json:"finish_reason"`
}

// legacyLogprobs is the older form that /v1/completions answers with.
type legacyLogprobs struct {
	Tokens        []string             `json:"tokens"`
	TokenLogprobs []float64            `json:"token_logprobs"`
	TopLogprobs   []map[string]float64 `json:"top_logprobs"`
	TextOffset    []int                `json:"text_offset"`
}

type completionReply struct {
	ID      string             `json:"id"`
	Object  string             `json:"object"`
	Created int64              `json:"created"`
	Model   string             `json:"model"`
	Choices []completionChoice `json:"choices"`
	Usage   *usage             `json:"usage,omitempty"`
}
