package eval

import (
	"context"
)

// cappedStops are the stop reasons of trajectories that ran into a limit: they never win a vote.
var cappedStops = map[string]bool{"max_turns": true, "max_tokens": true, "context_full": true, "cancelled": true, "error": true}

// runner executes a candidate's SQL; an Executor in all but tests.
type runner interface {
	canonicalResult(ctx context.Context, ex Example, sql string) (hash, failure string, err error)
}

func (x *Executor) canonicalResult(ctx context.Context, ex Example, sql string) (hash, failure string, err error) {
	result, err := x.Query(ctx, ex.Database, sql)
	switch {
	case err != nil:
		return "", "", err
	case result.Failure != nil:
		return "", result.Failure.Message, nil
	}
	return Canonical(result.Rows, Ordered(sql)), "", nil
}

// vote chooses among the sampled trajectories: the result that most of them share wins, and of those that share it the most
// likely one. Trajectories without SQL, with a failing one, or that ran into a limit cannot win. When none can, the greedy
// answer stands. samples[0] is the greedy trajectory.
func vote(ctx context.Context, exec runner, ex Example, samples []Prediction) (Prediction, error) {
	greedy := samples[0]
	v := &Vote{Greedy: greedy.SQL, GreedyStop: greedy.Stop, Winner: -1}
	count := map[string]int{}
	for _, s := range samples[1:] {
		c := Candidate{SQL: s.SQL, Stop: s.Stop, LogProb: s.LogProb}
		switch {
		case s.Error != "":
			c.Error = s.Error
		case s.SQL == "":
			c.Error = "no SQL"
		case cappedStops[s.Stop]:
			c.Error = "ran into a limit: " + s.Stop
		default:
			var err error
			if c.Result, c.Error, err = exec.canonicalResult(ctx, ex, s.SQL); err != nil {
				return Prediction{}, err
			}
		}
		if c.Error == "" {
			count[c.Result]++
		}
		v.Candidates = append(v.Candidates, c)
	}
	for i, c := range v.Candidates {
		if c.Error == "" && (v.Winner < 0 || beats(c, v.Candidates[v.Winner], count)) {
			v.Winner = i
		}
	}
	chosen := greedy
	if v.Winner >= 0 {
		chosen = samples[1+v.Winner]
	}
	chosen.Vote = v
	chosen.Tokens, chosen.Seconds = total(samples)
	return chosen, nil
}

func beats(a, b Candidate, count map[string]int) bool {
	if count[a.Result] != count[b.Result] {
		return count[a.Result] > count[b.Result]
	}
	return a.LogProb > b.LogProb
}

// total is what all trajectories of a question cost together.
func total(samples []Prediction) (tokens Tokens, seconds float64) {
	for _, s := range samples {
		tokens.Prompt += s.Tokens.Prompt
		tokens.Generated += s.Tokens.Generated
		tokens.Tool += s.Tokens.Tool
		seconds += s.Seconds
	}
	return tokens, seconds
}
