package spider

import (
	"context"

	"quern/eval"
)

// SelfReport tells how a dataset's gold queries fare as predictions, and which of them are doubtful.
type SelfReport struct {
	Questions int            `json:"questions"`
	Right     map[string]int `json:"right"` // by metric: how many golds are right as their own prediction
	// Failed are the golds that are not right as their own prediction under some metric, or on which an official script
	// ends; the evidence says which and why.
	Failed []Finding `json:"failed"`
	// Doubtful are the golds that fail, return nothing, depend on ties, or compare with text that is stored padded.
	Doubtful []Finding `json:"doubtful"`
}

// Finding is a gold query with what was found about it.
type Finding struct {
	ID     string       `json:"id"`
	DB     string       `json:"db"`
	Gold   string       `json:"gold"`
	Doubts []eval.Doubt `json:"doubts"`
}

// Selftest scores every gold query as the prediction, by both official scripts, and looks for doubtful ones.
func Selftest(ctx context.Context, exec *eval.Executor, d *eval.Dataset, parallel int) (*SelfReport, error) {
	if err := d.RequireDatabases(d.Examples); err != nil {
		return nil, err
	}
	s, err := NewScorer(exec, Tables(d), Options{Type: All, KeepDistinct: true, Legacy: true})
	if err != nil {
		return nil, err
	}
	failed, doubtful := make([]Finding, len(d.Examples)), make([]Finding, len(d.Examples))
	scores := make([]*eval.Score, len(d.Examples))
	err = eachIndex(ctx, len(d.Examples), parallel, func(i int) error {
		ex := d.Examples[i]
		score, err := s.Score(ctx, ex, ex.Gold)
		if err != nil {
			return err
		}
		doubts, err := eval.GoldDoubts(ctx, exec, ex)
		if err != nil {
			return err
		}
		scores[i] = score
		failed[i] = Finding{ex.ID, ex.DB, ex.Gold, selfFailures(score)}
		doubtful[i] = Finding{ex.ID, ex.DB, ex.Gold, doubts}
		return nil
	})
	if err != nil {
		return nil, err
	}
	report := &SelfReport{Questions: len(d.Examples), Right: map[string]int{}, Failed: withDoubts(failed), Doubtful: withDoubts(doubtful)}
	for _, score := range scores {
		for _, metric := range selfMetrics {
			report.Right[metric] += int(score.Metrics[metric])
		}
	}
	return report, nil
}

var selfMetrics = []string{MetricExec, MetricExact, MetricLegacyExec, MetricLegacyExact}

// selfFailures are the reasons why a gold is not right as its own prediction.
func selfFailures(score *eval.Score) []eval.Doubt {
	if score.Official == eval.HarnessError {
		return []eval.Doubt{{Kind: string(eval.HarnessError), Evidence: score.Message}}
	}
	var out []eval.Doubt
	if score.OfficialNote != "" {
		out = append(out, eval.Doubt{Kind: "official", Evidence: score.OfficialNote})
	}
	for _, metric := range selfMetrics {
		if score.Metrics[metric] != 1 {
			out = append(out, eval.Doubt{Kind: metric, Evidence: "not right as its own prediction"})
		}
	}
	return out
}

func withDoubts(list []Finding) []Finding {
	out := []Finding{}
	for _, f := range list {
		if len(f.Doubts) > 0 {
			out = append(out, f)
		}
	}
	return out
}
