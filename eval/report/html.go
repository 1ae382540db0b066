package report

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"html/template"
	"io"
	"strings"

	"quern/eval"
)

//go:embed page.html
var pageText string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"value": value, "interval": interval, "cell": cell, "bar": bar, "capital": capital,
	"isNull":   func(v any) bool { return v == nil },
	"verdict":  func(v eval.Verdict) string { return strings.ReplaceAll(string(v), "_", " ") },
	"failure":  func(f eval.Failure) string { return strings.ReplaceAll(string(f), "_", " ") },
	"manifest": manifestLines,
}).Parse(pageText))

// pageData is what page.html shows.
type pageData struct {
	Title     string
	Names     []string
	Runs      []eval.RunReport
	Groups    []pageGroup
	Questions []questionView
}

type pageGroup struct {
	Key, Title, Note string
	Lines            []pageLine
}

type pageLine struct {
	Label   string
	Figures []*eval.Figure
}

// questionView is one question over all runs.
type questionView struct {
	eval.Example
	Class    string // for the page's filter: right, wrong, mixed or unscored; suspect beside it
	Suspects []string
	Gold     *eval.Table
	Answers  []answerView // one a run; Missing where the run lacks the question
}

// answerView is one run's answer.
type answerView struct {
	Run       string
	Missing   bool
	Result    eval.Result
	OnlyGold  *eval.Table // shown rows of the gold that the prediction lacks
	OnlyPred  *eval.Table
	Turns     []turnView
	Cut       bool // the rows shown are not all
	TokenLine string
}

// turnView is one turn of a transcript.
type turnView struct {
	Thinking string     `json:"thinking"`
	Content  string     `json:"content"`
	Text     string     `json:"text"`
	Forced   bool       `json:"forced"`
	Finish   string     `json:"finish"`
	Calls    []callView `json:"calls"`
}

type callView struct {
	Name        string          `json:"name"`
	Arguments   json.RawMessage `json:"arguments"`
	Dropped     bool            `json:"dropped"`
	Observation *struct {
		Text string `json:"text"`
		SQL  string `json:"sql"`
	} `json:"observation"`
}

// SQL is the statement of a call, or its arguments.
func (c callView) SQL() string {
	if c.Observation != nil && c.Observation.SQL != "" {
		return c.Observation.SQL
	}
	return string(c.Arguments)
}

// HTML writes one self-contained page over all runs: the figures side by side, and every question with its answers,
// transcripts and rows. runs are those the report was built from.
func HTML(w io.Writer, r *eval.Report, runs []*eval.ResultsFile) error {
	data := pageData{Title: "Evaluation: " + strings.Join(runNames(r), ", "), Names: runNames(r), Runs: r.Runs}
	for _, g := range groups(r) {
		pg := pageGroup{Key: g.key, Title: g.title, Note: capital(g.note)}
		for _, l := range g.lines {
			pg.Lines = append(pg.Lines, pageLine{l.label, l.figures})
		}
		data.Groups = append(data.Groups, pg)
	}
	data.Questions = questionViews(r, runs)
	if err := page.Execute(w, data); err != nil {
		return fmt.Errorf("report: %w", err)
	}
	return nil
}

func questionViews(r *eval.Report, runs []*eval.ResultsFile) []questionView {
	var out []questionView
	at := map[string]int{}
	for i, run := range runs {
		for _, result := range run.Results {
			k, known := at[result.ID]
			if !known {
				k = len(out)
				at[result.ID] = k
				out = append(out, newQuestion(result, r))
			}
			out[k].Answers[i] = answer(r.Runs[i].Name, result)
			if out[k].Gold == nil && result.Score != nil {
				out[k].Gold = result.Score.Gold
			}
		}
	}
	for i, run := range r.Runs {
		for _, s := range run.Suspects {
			q := &out[at[s.ID]]
			for _, e := range s.Evidence {
				q.Suspects = append(q.Suspects, evidence(len(r.Runs), r.Runs[i].Name, e))
			}
		}
	}
	for i := range out {
		out[i].Class = out[i].class()
	}
	return out
}

func evidence(runs int, name, text string) string {
	if runs > 1 {
		return name + ": " + text
	}
	return text
}

func newQuestion(result eval.Result, r *eval.Report) questionView {
	q := questionView{Example: result.Example}
	for _, run := range r.Runs {
		q.Answers = append(q.Answers, answerView{Run: run.Name, Missing: true})
	}
	return q
}

func (q questionView) class() string {
	right, wrong := 0, 0
	for _, a := range q.Answers {
		switch {
		case a.Missing || a.Result.Score == nil || a.Result.Failed():
		case a.Result.Score.Right():
			right++
		default:
			wrong++
		}
	}
	class := "unscored"
	switch {
	case right > 0 && wrong > 0:
		class = "mixed"
	case right > 0:
		class = "right"
	case wrong > 0:
		class = "wrong"
	}
	if len(q.Suspects) > 0 {
		class += " suspect"
	}
	return class
}

func answer(run string, result eval.Result) answerView {
	a := answerView{Run: run, Result: result}
	if s := result.Score; s != nil && s.Gold != nil && s.Predicted != nil && !s.Right() {
		a.OnlyGold, a.OnlyPred = difference(s.Gold, s.Predicted), difference(s.Predicted, s.Gold)
		a.Cut = len(s.Gold.Rows) < s.Gold.Total || len(s.Predicted.Rows) < s.Predicted.Total
	}
	var transcript struct {
		Turns []turnView `json:"turns"`
	}
	if len(result.Prediction.Transcript) > 0 && json.Unmarshal(result.Prediction.Transcript, &transcript) == nil {
		a.Turns = transcript.Turns
	}
	if t := result.Prediction.Tokens; t != (eval.Tokens{}) {
		a.TokenLine = fmt.Sprintf("%d prompt, %d generated, %d tool tokens", t.Prompt, t.Generated, t.Tool)
	}
	return a
}

// difference are the rows of a that b lacks, as far as both are shown.
func difference(a, b *eval.Table) *eval.Table {
	left := map[string]int{}
	for _, row := range b.Rows {
		left[rowText(row)]++
	}
	out := &eval.Table{Columns: a.Columns}
	for _, row := range a.Rows {
		if key := rowText(row); left[key] > 0 {
			left[key]--
		} else {
			out.Rows = append(out.Rows, row)
		}
	}
	out.Total = len(out.Rows)
	return out
}

func rowText(row []any) string {
	text, err := json.Marshal(row)
	if err != nil {
		return fmt.Sprint(row...)
	}
	return string(text)
}

// barWidth is the width of a share's bar in pixels at 100 %.
const barWidth = 110

// bar draws a share with its interval.
func bar(f *eval.Figure) template.HTML {
	if f == nil || f.Unit != eval.UnitShare || f.Of == 0 {
		return ""
	}
	x := func(share float64) float64 { return share * barWidth }
	return template.HTML(fmt.Sprintf(`<svg class="bar" width="%[1]d" height="12" viewBox="0 0 %[1]d 12" role="img" aria-label="%[2]s %%">`+
		`<rect class="track" width="%[1]d" height="12" rx="2"/><rect class="fill" width="%.1[3]f" height="12" rx="2"/>`+
		`<path class="ci" d="M%.1[4]f 6H%.1[5]fM%.1[4]f 3v6M%.1[5]f 3v6"/></svg>`,
		barWidth, percent(f.Value), x(f.Value), x(f.Low), x(f.High)))
}
