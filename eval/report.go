package eval

import (
	"fmt"
	"math"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Report is what the results of one or several runs say. Its JSON is a contract: fields are added, not changed.
type Report struct {
	Format int         `json:"format"`
	Runs   []RunReport `json:"runs"`
}

// RunReport is one run's part. Every figure stands in a Section under a key of its own.
type RunReport struct {
	Name     string    `json:"name"`
	Manifest Manifest  `json:"manifest"`
	Sections []Section `json:"sections"`
	Totals   []Totals  `json:"official_tables"` // as the official scripts print them
	Suspects []Suspect `json:"suspected_golds"`
	results  []Result
}

// Section is a group of figures.
type Section struct {
	Key     string   `json:"key"`
	Title   string   `json:"title"`
	Note    string   `json:"note,omitempty"` // what the figures count
	Figures []Figure `json:"figures"`
}

// Figure is one line of a report.
type Figure struct {
	Key   string  `json:"key"` // unique in its section
	Label string  `json:"label"`
	Value float64 `json:"value"` // a share is between 0 and 1
	Unit  string  `json:"unit"`  // UnitShare, UnitCount, UnitMean, UnitSeconds, UnitRate
	Count int     `json:"count,omitempty"`
	Of    int     `json:"of,omitempty"`     // a share is Count of Of; a mean is over Of
	Low   float64 `json:"ci_low,omitempty"` // 95 % interval of a share (Wilson)
	High  float64 `json:"ci_high,omitempty"`
}

// Units of figures.
const (
	UnitShare   = "share"
	UnitCount   = "count"
	UnitMean    = "mean"
	UnitSeconds = "seconds"
	UnitRate    = "per_second"
)

// Suspect is a question whose gold may be wrong.
type Suspect struct {
	ID       string   `json:"id"`
	DB       string   `json:"db"`
	Question string   `json:"question"`
	Gold     string   `json:"gold"`
	Evidence []string `json:"evidence"`
}

// BuildReport computes the figures of runs. totals gives a run's official tables from its results, and may be nil.
func BuildReport(runs []*ResultsFile, totals func(Manifest, []Result) []Totals) *Report {
	report := &Report{Format: FormatVersion}
	for i, file := range runs {
		run := RunReport{Name: runName(runs, i), Manifest: file.Manifest, results: file.Results}
		run.Sections = sections(file.Results)
		if totals != nil {
			run.Totals = totals(file.Manifest, file.Results)
		}
		report.Runs = append(report.Runs, run)
	}
	for i := range report.Runs {
		report.Runs[i].Suspects = suspects(report.Runs[i].results, runs)
	}
	return report
}

// runName is a run's file name, with its folder where two runs share it, and a number where they are one file.
func runName(runs []*ResultsFile, i int) string {
	name, path := runs[i].Name(), strings.TrimSuffix(runs[i].Path, ".jsonl")
	for j, other := range runs {
		switch {
		case j == i || other.Name() != runs[i].Name():
		case other.Path == runs[i].Path:
			return fmt.Sprintf("%s (%d)", path, i+1)
		default:
			name = path
		}
	}
	return name
}

// Figure finds a figure by "section.key".
func (r RunReport) Figure(path string) (Figure, bool) {
	section, key, _ := strings.Cut(path, ".")
	for _, s := range r.Sections {
		for _, f := range s.Figures {
			if s.Key == section && f.Key == key {
				return f, true
			}
		}
	}
	return Figure{}, false
}

func sections(results []Result) []Section {
	var out []Section
	for _, s := range []Section{
		accuracySection(results), verdictSection(results), metricSection(results), voteSection(results),
		groupSection("difficulty", "Accuracy by difficulty", results, difficulty, difficultyOrder),
		groupSection("kind", "Accuracy by kind of question", results, func(r Result) string { return r.Kind }, nil),
		groupSection("database", "Accuracy by database", results, func(r Result) string { return r.DB }, nil),
		groupSection("tool_calls", "Accuracy by number of tool calls", predicted(results), toolCalls, numeric),
		groupSection("stop", "Accuracy by stop reason", results, func(r Result) string { return r.Prediction.Stop }, nil),
		toolSection(predicted(results)), failureSection(results), behaviourSection(results), equivalenceSection(results),
		limitSection(results), costSection(results),
	} {
		if len(s.Figures) > 0 {
			out = append(out, s)
		}
	}
	return out
}

func accuracySection(results []Result) Section {
	s := Section{Key: "accuracy", Title: "Accuracy",
		Note: "official: by the published script; strict: equal typed rows, columns in order, rows in the order asked for, nothing written; " +
			"permuted: strict but for the order of rows and columns; tolerant: permuted, with numbers to six digits and text without case and outer blanks. " +
			"Questions on which our side failed are left out"}
	scored := filter(results, func(r Result) bool { return r.Score != nil && !r.Failed() })
	if len(scored) == 0 {
		return s
	}
	s.share("official", "official accuracy", scored, func(r Result) bool { return r.Score.Right() })
	s.share("strict", "strict accuracy", scored, func(r Result) bool { return r.Score.Strict == Correct })
	for _, m := range []struct{ key, label string }{{MetricPermuted, "accuracy with columns permuted"}, {MetricTolerant, "tolerant accuracy"}} {
		s.share(m.key, m.label, scored, func(r Result) bool { return r.Score.Metrics[m.key] == 1 })
	}
	return s
}

func verdictSection(results []Result) Section {
	s := Section{Key: "verdict", Title: "Verdicts", Note: "by the official rules; harness_error and gold_failed say nothing about the model"}
	for _, v := range []Verdict{Correct, Wrong, PredictionFailed, TimedOut, Refused, GoldFailed, HarnessError} {
		s.share(string(v), strings.ReplaceAll(string(v), "_", " "), results, func(r Result) bool { return verdict(r) == v })
	}
	return s
}

func verdict(r Result) Verdict {
	switch {
	case r.Failed():
		return HarnessError
	case r.Score == nil:
		return ""
	}
	return r.Score.Official
}

// metricLabels say what the benchmarks' figures are.
var metricLabels = map[string]string{
	"exec": "test-suite execution", "exact": "exact set match", "legacy_exec": "execution by the older script", "legacy_exact": "exact set match by the older script",
	"ex": "execution accuracy (EX)", "soft_f1": "soft F1", "ves": "time of the gold to time of the prediction", "r_ves": "R-VES reward", "score": "score",
}

// metricSection is the mean of each of the benchmark's own figures.
func metricSection(results []Result) Section {
	s := Section{Key: "metric", Title: "The benchmark's figures", Note: "means over the scored questions that have one; official totals such as VES are in the official tables"}
	sums, counts := map[string]float64{}, map[string]int{}
	for _, r := range results {
		if r.Score == nil || r.Failed() {
			continue
		}
		for name, value := range r.Score.Metrics {
			sums[name] += value
			counts[name]++
		}
	}
	for _, name := range sortedKeys(sums) {
		if name != MetricStrict && name != MetricPermuted && name != MetricTolerant {
			label, known := metricLabels[name]
			if !known {
				label = strings.ReplaceAll(name, "_", " ")
			}
			s.add(Figure{Key: name, Label: label, Value: sums[name] / float64(counts[name]), Unit: UnitMean, Of: counts[name]})
		}
	}
	return s
}

func voteSection(results []Result) Section {
	s := Section{Key: "vote", Title: "Voting", Note: "the answer that most sampled trajectories agree on, beside the greedy answer to the same questions"}
	voted := filter(results, func(r Result) bool {
		return r.Prediction.Vote != nil && r.Prediction.Vote.Score != nil && r.Score != nil && !r.Failed()
	})
	if len(voted) == 0 {
		return s
	}
	greedy := func(r Result) bool { return r.Prediction.Vote.Score.Right() }
	right := func(r Result) bool { return r.Score.Right() }
	s.share("greedy", "greedy accuracy", voted, greedy)
	s.share("voted", "voted accuracy", voted, right)
	s.share("fixed", "fixed by the vote", voted, func(r Result) bool { return right(r) && !greedy(r) })
	s.share("broken", "broken by the vote", voted, func(r Result) bool { return !right(r) && greedy(r) })
	s.share("no_winner", "no trajectory could win", voted, func(r Result) bool { return r.Prediction.Vote.Winner < 0 })
	return s
}

// unlabelled is the group of questions without a label where others have one, such as those whose gold Spider's parser
// does not read.
const unlabelled = "no label"

func difficulty(r Result) string {
	if r.Score != nil && r.Score.Difficulty != "" {
		return r.Score.Difficulty
	}
	return r.Difficulty
}

// difficultyOrder puts the levels of Spider and BIRD in their order.
func difficultyOrder(a, b string) bool {
	levels := []string{"easy", "medium", "hard", "extra", "simple", "moderate", "challenging"}
	rank := func(level string) int {
		if i := slices.Index(levels, level); i >= 0 {
			return i
		}
		return len(levels)
	}
	return rank(a) < rank(b) || rank(a) == rank(b) && a < b
}

func numeric(a, b string) bool {
	x, _ := strconv.Atoi(a)
	y, _ := strconv.Atoi(b)
	return x < y
}

func toolCalls(r Result) string { return strconv.Itoa(r.Prediction.ToolCalls) }

// predicted leaves out questions without a record of how they were answered: prediction files of others have none.
func predicted(results []Result) []Result {
	return filter(results, func(r Result) bool { return r.Prediction.Turns > 0 || r.Prediction.Stop != "" })
}

func groupSection(key, title string, results []Result, group func(Result) string, less func(a, b string) bool) Section {
	s := Section{Key: key, Title: title, Note: "official accuracy; our side's failures left out"}
	members := map[string][]Result{}
	for _, r := range results {
		if r.Score != nil && !r.Failed() {
			members[group(r)] = append(members[group(r)], r)
		}
	}
	labelRest(members)
	names := sortedKeys(members)
	if less != nil {
		sort.SliceStable(names, func(i, j int) bool { return less(names[i], names[j]) })
	}
	for _, name := range names {
		s.share(name, name, members[name], func(r Result) bool { return r.Score.Right() })
	}
	return s
}

// labelRest names the group without a name, or removes it where no group has one.
func labelRest[G any](groups map[string]G) {
	if rest, some := groups[""]; some && len(groups) > 1 {
		groups[unlabelled] = rest
	}
	delete(groups, "")
}

func toolSection(results []Result) Section {
	s := Section{Key: "tools", Title: "Use of the tool"}
	if len(results) == 0 {
		return s
	}
	var calls, turns []float64
	queries, failing := 0, 0
	for _, r := range results {
		calls = append(calls, float64(r.Prediction.ToolCalls))
		turns = append(turns, float64(r.Prediction.Turns))
		for _, q := range r.Prediction.Queries {
			queries++
			if q.Error != "" {
				failing++
			}
		}
	}
	s.mean("calls_per_question", "calls per question", calls)
	s.add(Figure{Key: "calls_median", Label: "calls per question, median", Value: median(calls), Unit: UnitMean, Of: len(calls)})
	s.mean("turns_per_question", "turns per question", turns)
	s.share("no_call", "questions answered without a call", results, func(r Result) bool { return r.Prediction.ToolCalls == 0 })
	s.share("one_call", "questions with exactly one call", results, func(r Result) bool { return r.Prediction.ToolCalls == 1 })
	s.add(shareFigure("failing_calls", "calls that gave an error", failing, queries))
	return s
}

func failureSection(results []Result) Section {
	s := Section{Key: "failure", Title: "Failure decomposition", Note: "each question that is not right, by the first class that applies; shares are of those"}
	failed := filter(results, func(r Result) bool { return r.Score != nil && r.Score.Failure != "" && !r.Failed() })
	if len(failed) == 0 {
		return s
	}
	for _, class := range Failures {
		s.share(string(class), strings.ReplaceAll(string(class), "_", " "), failed, func(r Result) bool { return r.Score.Failure == class })
	}
	return s
}

func behaviourSection(results []Result) Section {
	s := Section{Key: "behaviour", Title: "Behaviour"}
	scored := filter(results, func(r Result) bool { return r.Score != nil && !r.Failed() })
	if len(scored) == 0 {
		return s
	}
	s.share("valid_sql", "valid, executable SQL", scored, func(r Result) bool { return r.Score.Has(FlagExecutes) })
	if withRecord := predicted(scored); len(withRecord) > 0 {
		s.share("answered_with_run_query", "answered with a query it ran", withRecord, answeredWithRunQuery)
		var calls []float64
		for _, r := range withRecord {
			calls = append(calls, float64(r.Prediction.ToolCalls))
		}
		s.mean("calls_per_row", "calls per row", calls)
		s.share("ran_and_wrong", "ran a query and still wrong", withRecord, func(r Result) bool { return ranQuery(r) && !r.Score.Right() })
		ran := filter(withRecord, ranQuery)
		s.share("wrong_of_ran", "wrong, of those that ran a query", ran, func(r Result) bool { return !r.Score.Right() })
	}
	s.share("unparseable", "unparseable by Spider's parser", scored, func(r Result) bool { return r.Score.Has(FlagUnparseable) })
	s.share("side_effects", "would have written something", scored, func(r Result) bool { return r.Score.Has(FlagSideEffects) })
	return s
}

func ranQuery(r Result) bool { return len(r.Prediction.Queries) > 0 }

func answeredWithRunQuery(r Result) bool {
	for _, q := range r.Prediction.Queries {
		if r.Prediction.SQL != "" && SameText(q.SQL, r.Prediction.SQL) {
			return true
		}
	}
	return false
}

func equivalenceSection(results []Result) Section {
	s := Section{Key: "equivalence", Title: "How right answers are right",
		Note: "of the questions with a right answer: the same text as the gold but for white space and case of words; a single cell, which is easy to meet by chance; both results empty, which says little"}
	right := filter(results, func(r Result) bool { return r.Score.Right() })
	if len(right) == 0 {
		return s
	}
	s.share("exact_text", "same text as the gold", right, func(r Result) bool { return r.Score.Has(FlagExactText) })
	s.share("single_scalar", "one single value", right, func(r Result) bool { return r.Score.Has(FlagSingleScalar) })
	s.share("both_empty", "both results empty", right, func(r Result) bool { return r.Score.Has(FlagBothEmpty) })
	return s
}

func limitSection(results []Result) Section {
	s := Section{Key: "limits", Title: "Generation limits hit"}
	results = predicted(results)
	if len(results) == 0 {
		return s
	}
	s.share("capped_generation", "a generation hit its token limit", results, func(r Result) bool { return r.Prediction.Capped > 0 })
	for _, stop := range []struct{ key, label string }{
		{"forced_final", "asked for the answer when the turns were used up"}, {"max_turns", "no answer when the turns were used up"},
		{"max_tokens", "no answer within the token limit"}, {"context_full", "the conversation did not fit"},
	} {
		s.share(stop.key, stop.label, results, func(r Result) bool { return r.Prediction.Stop == stop.key })
	}
	return s
}

func costSection(results []Result) Section {
	s := Section{Key: "cost", Title: "Tokens and time", Note: "times are of questions side by side, so that their sum exceeds the time on the clock"}
	var prompt, generated, tool, seconds []float64
	for _, r := range results {
		t := r.Prediction.Tokens
		if t == (Tokens{}) {
			continue
		}
		prompt, generated, tool = append(prompt, float64(t.Prompt)), append(generated, float64(t.Generated)), append(tool, float64(t.Tool))
		if r.Prediction.Seconds > 0 {
			seconds = append(seconds, r.Prediction.Seconds)
		}
	}
	if len(prompt) == 0 {
		return s
	}
	s.mean("prompt_tokens", "prompt tokens per question", prompt)
	s.mean("generated_tokens", "generated tokens per question", generated)
	s.mean("tool_tokens", "tool tokens per question", tool)
	s.add(Figure{Key: "generated_total", Label: "generated tokens", Value: sum(generated), Unit: UnitCount})
	if len(seconds) > 0 {
		s.add(Figure{Key: "seconds_per_question", Label: "seconds per question", Value: sum(seconds) / float64(len(seconds)), Unit: UnitSeconds, Of: len(seconds)})
		s.add(Figure{Key: "seconds_median", Label: "seconds per question, median", Value: median(seconds), Unit: UnitSeconds, Of: len(seconds)})
		s.add(Figure{Key: "tokens_per_second", Label: "generated tokens per second of a question", Value: sum(generated) / sum(seconds), Unit: UnitRate})
	}
	return s
}

func (s *Section) add(f Figure) { s.Figures = append(s.Figures, f) }

func (s *Section) share(key, label string, results []Result, is func(Result) bool) {
	s.add(shareFigure(key, label, len(filter(results, is)), len(results)))
}

func (s *Section) mean(key, label string, values []float64) {
	if len(values) > 0 {
		s.add(Figure{Key: key, Label: label, Value: sum(values) / float64(len(values)), Unit: UnitMean, Of: len(values)})
	}
}

func shareFigure(key, label string, count, of int) Figure {
	f := Figure{Key: key, Label: label, Unit: UnitShare, Count: count, Of: of}
	if of > 0 {
		f.Value = float64(count) / float64(of)
		f.Low, f.High = wilson(count, of)
	}
	return f
}

// wilson is the 95 % score interval of a share.
func wilson(count, of int) (low, high float64) {
	const z = 1.959963984540054
	n, p := float64(of), float64(count)/float64(of)
	center := (p + z*z/(2*n)) / (1 + z*z/n)
	half := z / (1 + z*z/n) * math.Sqrt(p*(1-p)/n+z*z/(4*n*n))
	return max(0, center-half), min(1, center+half)
}

func filter(results []Result, is func(Result) bool) []Result {
	var out []Result
	for _, r := range results {
		if is(r) {
			out = append(out, r)
		}
	}
	return out
}

func sum(values []float64) float64 {
	var total float64
	for _, v := range values {
		total += v
	}
	return total
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := append([]float64(nil), values...)
	sort.Float64s(sorted)
	mid := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[mid]
	}
	return (sorted[mid-1] + sorted[mid]) / 2
}
