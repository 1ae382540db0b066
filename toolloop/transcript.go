package toolloop

import (
	"bufio"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"time"

	"quern/internal/pytext"
)

// TranscriptVersion is the version of the schema below. A reader refuses a higher one. Fields may be added under the
// same version; a field that changes its meaning raises it.
const TranscriptVersion = 1

// Transcript is what happened to one question: one line of a JSON Lines file.
type Transcript struct {
	Version int `json:"version"`

	ID       string `json:"id,omitempty"`       // the question's, in a benchmark
	Question string `json:"question,omitempty"` // as asked
	Database string `json:"database,omitempty"`

	Profile  string   `json:"profile"`
	Pack     string   `json:"prompt_pack,omitempty"`
	PackHash string   `json:"prompt_pack_sha256,omitempty"`
	Policy   string   `json:"column_policy,omitempty"`
	Model    string   `json:"model,omitempty"`        // its name or file
	ModelSum string   `json:"model_sha256,omitempty"` // of the file
	Adapters []string `json:"adapters,omitempty"`
	Limits   Limits   `json:"limits"`
	Sampling Sampling `json:"sampling"`
	Thinking *bool    `json:"enable_thinking,omitempty"` // as given to the chat template

	PromptTokens int      `json:"prompt_tokens"` // before the first generation
	PromptHash   string   `json:"prompt_sha256"` // of these ids, four bytes each, little-endian
	Notes        []string `json:"notes,omitempty"`

	Turns     []Turn `json:"turns"`
	ToolTurns int    `json:"tool_turns"` // how often results were shown to the model

	FinalSQL string     `json:"final_sql"` // "" when there is none
	Stop     StopReason `json:"stop"`
	Error    string     `json:"error,omitempty"` // with StopError

	Started time.Time     `json:"started"`
	Elapsed time.Duration `json:"elapsed_ns"`

	// The ids themselves stay in memory: the prompt, the response (generated and tool ids, cut to the budget), and for
	// each of the response's ids whether the model generated it.
	PromptIDs   []Token `json:"-"`
	ResponseIDs []Token `json:"-"`
	Generated   []bool  `json:"-"`
}

// StopReason says why a question ended.
type StopReason string

// Why a question ended.
const (
	StopFinalSQL    StopReason = "final_sql"    // a turn without a call holds SQL
	StopForcedFinal StopReason = "forced_final" // asked for its answer at the end, the model gave SQL
	StopNoSQL       StopReason = "no_sql"       // a turn holds neither a call nor SQL
	StopMaxTurns    StopReason = "max_turns"
	StopMaxTokens   StopReason = "max_tokens"   // the budget, or the cap of one generation
	StopContextFull StopReason = "context_full" // no room in the input budget or in the model's context
	StopCancelled   StopReason = "cancelled"
	StopError       StopReason = "error" // our side broke
)

// Turn is one generation and what followed from it.
type Turn struct {
	PromptTokens int     `json:"prompt_tokens"` // ids before it
	Tokens       int     `json:"tokens"`        // ids generated
	Room         int     `json:"max_tokens"`    // ids it was allowed
	Text         string  `json:"text"`          // as generated
	Thinking     string  `json:"thinking,omitempty"`
	Content      string  `json:"content,omitempty"` // the text without thinking and calls
	Finish       Finish  `json:"finish"`
	LogProb      float64 `json:"logprob,omitempty"`
	Usage        Usage   `json:"usage"`
	Forced       bool    `json:"forced,omitempty"` // the generation after the request for an answer

	Calls      []CallRecord `json:"calls,omitempty"`
	ToolTokens int          `json:"tool_tokens,omitempty"` // ids of the turn that showed the results; 0: not shown
}

// CallRecord is one call and what came of it.
type CallRecord struct {
	Name        string          `json:"name"`
	Arguments   json.RawMessage `json:"arguments"` // NaN and infinities as strings
	Dropped     bool            `json:"dropped,omitempty"`
	Observation *Observation    `json:"observation,omitempty"`
	Elapsed     time.Duration   `json:"elapsed_ns,omitempty"`
}

// GeneratedTokens counts what the model wrote.
func (t *Transcript) GeneratedTokens() (n int) {
	for _, turn := range t.Turns {
		n += turn.Tokens
	}
	return n
}

// WriteTo writes the transcript as one line.
func (t *Transcript) WriteTo(w io.Writer) (int64, error) {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(t); err != nil {
		return 0, fmt.Errorf("toolloop: write transcript: %w", err)
	}
	return b.WriteTo(w)
}

// ReadTranscripts reads a JSON Lines file. An error names the line; what was read before it is returned too, since a
// run that was killed leaves half a line at the end.
func ReadTranscripts(r io.Reader) (list []Transcript, err error) {
	lines := bufio.NewReader(r)
	for n := 1; ; n++ {
		line, readErr := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			var t Transcript
			if err := json.Unmarshal(line, &t); err != nil {
				return list, fmt.Errorf("line %d is no transcript: %w", n, err)
			}
			if t.Version < 1 || t.Version > TranscriptVersion {
				return list, fmt.Errorf("line %d: transcript version %d, and this program reads 1 to %d", n, t.Version, TranscriptVersion)
			}
			list = append(list, t)
		}
		if readErr == io.EOF {
			return list, nil
		}
		if readErr != nil {
			return list, readErr
		}
	}
}

func hashIDs(ids []Token) string {
	h := sha256.New()
	var b [4]byte
	for _, id := range ids {
		binary.LittleEndian.PutUint32(b[:], uint32(id))
		h.Write(b[:])
	}
	return hex.EncodeToString(h.Sum(nil))
}

// finite replaces what JSON cannot hold.
func finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return pytext.JSON(v)
		}
	case []any:
		list := make([]any, len(v))
		for i, e := range v {
			list[i] = finite(e)
		}
		return list
	case *Object:
		o := &Object{}
		for _, m := range v.Members {
			o.Members = append(o.Members, Member{Key: m.Key, Value: finite(m.Value)})
		}
		return o
	}
	return v
}
