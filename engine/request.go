package engine

import (
	"time"
)

// Sampling says how the next token is chosen. The zero value is greedy: always the likeliest.
//
// The steps come in this order, as in llama.cpp's own chain: penalties, top-k, top-p, min-p, temperature, draw.
type Sampling struct {
	Temperature float32 // 0 is greedy
	TopK        int     // keep the k likeliest; 0 keeps all
	TopP        float32 // keep the likeliest that sum up to p; 0 or 1 keeps all
	MinP        float32 // keep those at least p times as likely as the best; 0 keeps all
	Seed        uint32  // of the draw; equal seeds give equal draws

	// Penalties look at the last PenaltyWindow tokens of prompt and generation (0: 64).
	RepeatPenalty    float32 // divides the logit of a token seen there; 0 or 1 is off
	PresencePenalty  float32 // subtracted once from the logit of a token seen there
	FrequencyPenalty float32 // subtracted once for each time it was seen
	PenaltyWindow    int
}

// Request is one generation.
type Request struct {
	Prompt   []Token // not empty; not changed by the engine, must not be changed by the caller before the end
	Sampling Sampling
	// MaxTokens is the most tokens to generate; 0 is as many as the context holds.
	MaxTokens int
	// Stop are texts that end the generation; the text given out ends before them, the token ids include them.
	Stop []string
	// IgnoreEnd goes on past the model's end tokens (for speed measurements).
	IgnoreEnd bool
	// Order ranks requests in deterministic mode, lower first; unused otherwise.
	Order int
	// Prefix says that the first Prefix tokens of Prompt will be sent again by other requests (a system text, a
	// schema): the engine then keeps them in memory once computed. 0 leaves it to the engine.
	Prefix int
	// Logprobs gives the log-probability of each chosen token, under the model's plain distribution (before
	// penalties, truncation and temperature), and TopLogprobs that of the n likeliest beside it. Costs time per token.
	Logprobs    bool
	TopLogprobs int
}

// StopReason says why a generation ended.
type StopReason string

const (
	StopEnd         StopReason = "end"          // the model gave an end token; it is the last id
	StopString      StopReason = "stop"         // a text of Request.Stop came up
	StopMaxTokens   StopReason = "max_tokens"   // Request.MaxTokens reached
	StopContextFull StopReason = "context_full" // the lane's context or the whole pool is full
	StopCancelled   StopReason = "cancelled"    // the context ended, or the caller left the stream
)

// TokenLogprob is a token with its natural log-probability.
type TokenLogprob struct {
	ID      Token
	Logprob float64
}

// EventKind tells what an Event is.
type EventKind uint8

const (
	EventToken EventKind = iota // one generated token: Token, Text, Logprob, Top
	EventDone                   // the end, and the last event: Result
)

// Event is something that happens in a generation. It is a plain struct, so that reading one allocates nothing.
type Event struct {
	Kind  EventKind
	Token Token
	// Text is what can be shown now: whole UTF-8 characters only, and nothing that may yet turn out to be a stop
	// text. So it may be empty, or hold the text of earlier tokens too. The last text may come with EventDone.
	Text    string
	Logprob float64        // with Request.Logprobs
	Top     []TokenLogprob // with Request.TopLogprobs, likeliest first
	Result  *Result        // of EventDone
}

// Result is a finished generation.
type Result struct {
	Tokens []Token // all generated ids, the end token included
	Text   string  // their text without end tokens, cut before a stop text; bytes that are no UTF-8 are replaced by U+FFFD
	Stop   StopReason
	// LogprobTotal is the sum of the chosen tokens' log-probabilities, with Request.Logprobs.
	LogprobTotal float64
	Usage        Usage
}

// Usage says what a generation cost.
type Usage struct {
	PromptTokens int // length of the prompt
	CachedTokens int // of these, taken from memory
	Generated    int
	Preempted    int // times the request lost its place for want of room, and was read again
	// FirstToken is the time from submission to the first generated token, Total that to the end, both as the reader
	// of the stream saw them.
	FirstToken, Total time.Duration
}
