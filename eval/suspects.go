package eval

import (
	"encoding/json"
	"fmt"
)

// suspects lists the questions judged not right whose gold may be at fault, with the evidence: what the gold query showed
// about itself, answers that are the gold's but for order or form, and answers on which several runs or many
// trajectories agree against the gold.
func suspects(results []Result, runs []*ResultsFile) []Suspect {
	agreed := agreements(runs)
	out := []Suspect{}
	for _, r := range results {
		if r.Score == nil || r.Score.Right() || r.Failed() {
			continue
		}
		var evidence []string
		for _, d := range r.Score.Doubts {
			evidence = append(evidence, d.Evidence)
		}
		switch {
		case r.Score.Has(FlagPermuted):
			evidence = append(evidence, "the prediction's rows are the gold's but for the order of columns or rows")
		case r.Score.Has(FlagNearMiss):
			evidence = append(evidence, "the prediction's rows are the gold's within a tolerance")
		}
		if n := agreed[r.ID+"\x00"+shownRows(r)]; n > 1 {
			evidence = append(evidence, fmt.Sprintf("%d runs give the same other rows", n))
		}
		if n, of := votesFor(r); of > 1 && n == of {
			evidence = append(evidence, fmt.Sprintf("all %d trajectories agree on other rows", n))
		}
		if len(evidence) > 0 {
			out = append(out, Suspect{ID: r.ID, DB: r.DB, Question: r.Question, Gold: r.Gold, Evidence: evidence})
		}
	}
	return out
}

// agreements counts, for each question and result that is not right, the runs that gave it.
func agreements(runs []*ResultsFile) map[string]int {
	count := map[string]int{}
	for _, run := range runs {
		for _, r := range run.Results {
			if rows := shownRows(r); rows != "" && !r.Score.Right() {
				count[r.ID+"\x00"+rows]++
			}
		}
	}
	return count
}

// shownRows is what a result shows of its prediction's rows, as a text; empty when it shows none.
func shownRows(r Result) string {
	if r.Score == nil || r.Score.Predicted == nil || r.Score.Predicted.Total == 0 {
		return ""
	}
	text, err := json.Marshal([]any{r.Score.Predicted.Rows, r.Score.Predicted.Total})
	if err != nil {
		return ""
	}
	return string(text)
}

// votesFor is how many of the trajectories that could win share the winner's result.
func votesFor(r Result) (n, of int) {
	v := r.Prediction.Vote
	if v == nil || v.Winner < 0 || v.Winner >= len(v.Candidates) {
		return 0, 0
	}
	for _, c := range v.Candidates {
		if c.Error != "" {
			continue
		}
		of++
		if c.Result == v.Candidates[v.Winner].Result {
			n++
		}
	}
	return n, of
}
