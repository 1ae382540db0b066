package assistant

import (
	"context"
	"fmt"
	"sort"
	"strings"
	"sync"

	"quern/sqlguard"
	"quern/toolloop"
)

// trajectory is one run of a question.
type trajectory struct {
	Answer
	conversation *toolloop.Conversation
	err          error
}

// vote runs the question several times, the first of them greedily, and takes the result that most trajectories agree
// on. Failures never win; ties go to the more probable answer. Events of the first trajectory are shown.
func (a *Assistant) vote(ctx context.Context, c *toolloop.Conversation, onEvent func(toolloop.Event)) (Answer, *toolloop.Conversation, error) {
	runs := make([]trajectory, a.options.Votes)
	var all sync.WaitGroup
	for i := range runs {
		all.Go(func() {
			t := &runs[i]
			sampling, show := a.model.Sampling, onEvent
			if i > 0 {
				sampling.Temperature, sampling.Seed, show = a.options.Temperature, uint64(i)+sampling.Seed, nil
			}
			t.conversation = c.Clone()
			t.Answer, t.err = a.run(ctx, a.loop(sampling), t.conversation, show)
		})
	}
	all.Wait()
	for _, t := range runs {
		if t.err != nil {
			return t.Answer, nil, t.err
		}
	}
	best, agree := winner(runs)
	best.Agreement = agree
	best.Notes = append(best.Notes, fmt.Sprintf("%d of %d trajectories agree on this result.", agree, len(runs)))
	return best.Answer, best.conversation, nil
}

// winner is the likeliest trajectory of the largest group with equal results, and that group's size; the first one, and
// none, when every trajectory failed.
func winner(runs []trajectory) (trajectory, int) {
	groups := map[string][]trajectory{}
	for _, t := range runs {
		if !t.Failed() && !capped(t.Transcript) {
			key := canonical(t.Result)
			groups[key] = append(groups[key], t)
		}
	}
	best, size := runs[0], 0
	for _, group := range groups {
		sort.SliceStable(group, func(i, j int) bool { return logProb(group[i]) > logProb(group[j]) })
		if len(group) > size || len(group) == size && logProb(group[0]) > logProb(best) {
			best, size = group[0], len(group)
		}
	}
	return best, size
}

func capped(t *toolloop.Transcript) bool {
	return t.Stop == toolloop.StopMaxTokens || t.Stop == toolloop.StopContextFull || t.Stop == toolloop.StopMaxTurns
}

func logProb(t trajectory) float64 {
	sum := 0.0
	for _, turn := range t.Transcript.Turns {
		sum += turn.LogProb
	}
	return sum
}

// canonical writes a result so that equal rows in any order give equal text.
func canonical(r sqlguard.Result) string {
	rows := make([]string, len(r.Rows))
	for i, row := range r.Rows {
		rows[i] = fmt.Sprintf("%#v", row)
	}
	sort.Strings(rows)
	return fmt.Sprintf("%d\n", len(r.Columns)) + strings.Join(rows, "\n")
}
