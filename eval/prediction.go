package eval

import (
	"context"
	"encoding/json"
)

// Predictor answers questions. Predict may be called from as many goroutines as the run has lanes.
//
// sample is 0 for the greedy answer; 1, 2, … are the trajectories of a vote, which differ by their seed. A returned error
// means that our side broke (Prediction then becomes a harness error); a model's mistake is data inside the Prediction.
type Predictor interface {
	Predict(ctx context.Context, ex Example, sample int) (Prediction, error)
}

// Repeatable is a Predictor whose answers can be had again to the byte: they depend on the questions of one group, and on
// nothing that ran before. A deterministic run uses it so: Begin before each group, then Enter once for each lane before the
// first question of the group.
type Repeatable interface {
	Predictor
	Begin(ctx context.Context) error // as new
	Enter() (leave func())           // announces a lane that will predict one question after another; leave ends it
}

// Prediction is what came out for one question: the final SQL and a summary of how it came about.
type Prediction struct {
	SQL       string  `json:"sql"`                  // final SQL; empty when there was none
	Stop      string  `json:"stop,omitempty"`       // why the loop ended: final_sql, forced_final, max_turns, max_tokens, context_full, cancelled, error
	Turns     int     `json:"turns,omitempty"`      // generations
	ToolCalls int     `json:"tool_calls,omitempty"` // calls that ran
	Queries   []Query `json:"queries,omitempty"`    // what it ran, in order
	Tokens    Tokens  `json:"tokens,omitzero"`      //
	LogProb   float64 `json:"logprob,omitempty"`    // sum of log-probabilities of the generated tokens; 0 when unknown
	Seconds   float64 `json:"seconds,omitempty"`    // from submission to end; left out with --deterministic

	Capped     int             `json:"capped,omitempty"`     // generations that hit their token limit
	Vote       *Vote           `json:"vote,omitempty"`       // with --votes: how SQL was chosen
	Error      string          `json:"error,omitempty"`      // our side broke: this is no answer of the model
	Transcript json.RawMessage `json:"transcript,omitempty"` // every turn, in the tool loop's schema
}

// Query is one statement that the model ran on the way.
type Query struct {
	SQL       string `json:"sql"`
	Rows      int    `json:"rows"`
	Error     string `json:"error,omitempty"`     // the database's or the guard's message
	Truncated bool   `json:"truncated,omitempty"` // the model saw only a part of the result
}

// Tokens counts tokens of one question.
type Tokens struct {
	Prompt    int `json:"prompt,omitempty"`    // first prompt
	Generated int `json:"generated,omitempty"` // by the model, all turns
	Tool      int `json:"tool,omitempty"`      // appended observations
}

// Vote tells how the final SQL was chosen among several trajectories.
type Vote struct {
	Greedy     string      `json:"greedy"`          // the greedy trajectory's SQL
	GreedyStop string      `json:"greedy_stop"`     //
	Score      *Score      `json:"score,omitempty"` // what the greedy SQL is worth, where gold is at hand
	Candidates []Candidate `json:"candidates"`      // the K sampled trajectories
	Winner     int         `json:"winner"`          // index into Candidates; -1 when none could win and the greedy answer stands
}

// Candidate is one sampled trajectory.
type Candidate struct {
	SQL     string  `json:"sql"`
	Stop    string  `json:"stop"`
	LogProb float64 `json:"logprob"`
	Result  string  `json:"result,omitempty"` // hash of the canonical result: typed rows, in order only where the SQL orders them
	Error   string  `json:"error,omitempty"`  // why it cannot win
}

// Result is one question's line in a results file.
type Result struct {
	Example
	Prediction Prediction `json:"prediction"`
	Score      *Score     `json:"score,omitempty"` // nil where there is no gold
}

// Failed reports whether our side broke on this question, so that it has to be done again.
func (r Result) Failed() bool {
	return r.Prediction.Error != "" || r.Score != nil && r.Score.Official == HarnessError
}
