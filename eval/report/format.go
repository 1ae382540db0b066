package report

import (
	"fmt"
	"strconv"
	"strings"

	"quern/eval"
)

// value is a figure's value as text: a share in percent with its counts, other units with their unit.
func value(f eval.Figure) string {
	switch f.Unit {
	case eval.UnitShare:
		if f.Of == 0 {
			return "–"
		}
		return fmt.Sprintf("%s %% (%d/%d)", percent(f.Value), f.Count, f.Of)
	case eval.UnitCount:
		return strconv.FormatFloat(f.Value, 'f', -1, 64)
	case eval.UnitSeconds:
		return fmt.Sprintf("%.3g s", f.Value)
	case eval.UnitRate:
		return fmt.Sprintf("%.1f /s", f.Value)
	}
	return strconv.FormatFloat(round3(f.Value), 'f', -1, 64)
}

func percent(share float64) string { return strconv.FormatFloat(100*share, 'f', 1, 64) }

func round3(f float64) float64 {
	text := strconv.FormatFloat(f, 'f', 3, 64)
	rounded, _ := strconv.ParseFloat(text, 64)
	return rounded
}

// interval is a share's 95 % interval as text; empty for other units.
func interval(f eval.Figure) string {
	if f.Unit != eval.UnitShare || f.Of == 0 {
		return ""
	}
	return percent(f.Low) + "–" + percent(f.High)
}

// cell is a value of a shown row as text.
func cell(v any) string {
	switch x := v.(type) {
	case nil:
		return "NULL"
	case string:
		return x
	case float64:
		return strconv.FormatFloat(x, 'g', -1, 64)
	}
	return fmt.Sprint(v)
}

// line is one row of a table that shows a section of several runs side by side.
type line struct {
	label   string
	figures []*eval.Figure // one a run; nil where the run lacks it
}

// group is one section over all runs.
type group struct {
	title, note string
	key         string
	lines       []line
}

// groups puts the sections of all runs side by side, in the order of the first run that has each.
func groups(r *eval.Report) []group {
	var out []group
	at := map[string]int{}
	for i, run := range r.Runs {
		for _, s := range run.Sections {
			if _, known := at[s.Key]; !known {
				at[s.Key] = len(out)
				out = append(out, group{title: s.Title, note: s.Note, key: s.Key})
			}
			g := &out[at[s.Key]]
			for _, f := range s.Figures {
				g.set(f, i, len(r.Runs))
			}
		}
	}
	return out
}

func (g *group) set(f eval.Figure, run, runs int) {
	for k := range g.lines {
		if g.lines[k].label == f.Label {
			g.lines[k].figures[run] = &f
			return
		}
	}
	l := line{label: f.Label, figures: make([]*eval.Figure, runs)}
	l.figures[run] = &f
	g.lines = append(g.lines, l)
}

// manifestLines are a manifest's fields for a reader.
func manifestLines(m eval.Manifest) [][2]string {
	lines := [][2]string{
		{"Quern", m.Quern}, {"engine", m.Engine}, {"SQLite", m.SQLite}, {"SQLite options", strings.Join(m.SQLiteOptions, " ")},
		{"model", m.Model}, {"model SHA-256", m.ModelHash}, {"adapters", strings.Join(m.Adapters, ", ")}, {"profile", m.Profile},
		{"prompt pack", m.Prompt}, {"prompt SHA-256", m.PromptHash}, {"dataset", strings.TrimSpace(m.Dataset + " " + m.Split)},
		{"dataset digest", m.DatasetDigest}, {"questions", m.Selection},
	}
	names := make([]string, 0, len(m.Flags))
	for name := range m.Flags {
		names = append(names, name)
	}
	for _, name := range sorted(names) {
		lines = append(lines, [2]string{"--" + name, m.Flags[name]})
	}
	var out [][2]string
	for _, l := range lines {
		if l[1] != "" {
			out = append(out, l)
		}
	}
	return out
}
