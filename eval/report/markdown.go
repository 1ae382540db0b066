package report

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"quern/eval"
)

// Markdown writes a report as Markdown.
func Markdown(w io.Writer, r *eval.Report) error {
	var b strings.Builder
	b.WriteString("# Evaluation: " + strings.Join(runNames(r), ", ") + "\n")
	for _, g := range groups(r) {
		fmt.Fprintf(&b, "\n## %s\n\n", g.title)
		if g.note != "" {
			fmt.Fprintf(&b, "%s.\n\n", capital(g.note))
		}
		writeGroup(&b, g, runNames(r))
	}
	for _, run := range r.Runs {
		writeRun(&b, run)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeGroup(b *strings.Builder, g group, names []string) {
	header := []string{""}
	for _, name := range names {
		header = append(header, name)
		if len(names) == 1 {
			header = append(header, "95 % interval")
		}
	}
	var rows [][]string
	for _, l := range g.lines {
		row := []string{l.label}
		for _, f := range l.figures {
			text, ci := "", ""
			if f != nil {
				text, ci = value(*f), interval(*f)
			}
			row = append(row, text)
			if len(names) == 1 {
				row = append(row, ci)
			}
		}
		rows = append(rows, row)
	}
	writeTable(b, header, rows)
}

func writeRun(b *strings.Builder, run eval.RunReport) {
	fmt.Fprintf(b, "\n## Run %s\n", run.Name)
	for _, t := range run.Totals {
		fmt.Fprintf(b, "\n### %s\n\n", t.Title)
		writeTable(b, t.Columns, t.Rows)
	}
	if len(run.Suspects) > 0 {
		fmt.Fprintf(b, "\n### Suspected wrong golds\n\n%d questions judged not right whose gold may be at fault.\n\n", len(run.Suspects))
		var rows [][]string
		for _, s := range run.Suspects {
			rows = append(rows, []string{s.ID, s.DB, s.Question, strings.Join(s.Evidence, "; ")})
		}
		writeTable(b, []string{"id", "database", "question", "evidence"}, rows)
	}
	b.WriteString("\n### Manifest\n\n")
	var rows [][]string
	for _, l := range manifestLines(run.Manifest) {
		rows = append(rows, l[:])
	}
	writeTable(b, []string{"", ""}, rows)
}

// CompareMarkdown writes a comparison as Markdown.
func CompareMarkdown(w io.Writer, c *eval.Comparison) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# %s against %s\n\n", c.B, c.A)
	writeTable(&b, []string{"", ""}, comparisonLines(c))
	for _, part := range []struct {
		title  string
		groups []eval.ComparedGroup
	}{{"By difficulty", c.ByDifficulty}, {"By database", c.ByDatabase}} {
		if len(part.groups) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n", part.title)
			writeTable(&b, []string{"", "questions", c.A, c.B, "fixed", "broken", "net"}, groupRows(part.groups))
		}
	}
	for _, part := range []struct {
		title string
		ids   []string
	}{{"Fixed", c.Fixed}, {"Broken", c.Broken}, {"What differs between the runs", c.ManifestsBy}} {
		if len(part.ids) > 0 {
			fmt.Fprintf(&b, "\n## %s\n\n%s\n", part.title, strings.Join(part.ids, ", "))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// comparisonLines are a comparison's figures.
func comparisonLines(c *eval.Comparison) [][]string {
	share := func(n int) string {
		return fmt.Sprintf("%s %% (%d/%d)", percent(float64(n)/float64(c.Questions)), n, c.Questions)
	}
	return [][]string{
		{"questions compared", fmt.Sprint(c.Questions)},
		{"left out", fmt.Sprint(c.Left)},
		{c.A + ", right", share(c.RightA)},
		{c.B + ", right", share(c.RightB)},
		{"fixed", fmt.Sprint(len(c.Fixed))},
		{"broken", fmt.Sprint(len(c.Broken))},
		{"net", fmt.Sprintf("%+d", c.Net)},
		{"difference of accuracies", fmt.Sprintf("%+.1f points", 100*c.Difference)},
		{"95 % bootstrap interval", fmt.Sprintf("%+.1f to %+.1f points", 100*c.Low, 100*c.High)},
		{"exact two-sided sign test", "p = " + pValue(c.SignTest)},
		{"McNemar (continuity corrected)", fmt.Sprintf("χ² = %.2f, p = %s", c.McNemar, pValue(c.McNemarP))},
	}
}

func pValue(p float64) string {
	if p < 0.001 {
		return fmt.Sprintf("%.1e", p)
	}
	return fmt.Sprintf("%.3f", p)
}

func groupRows(groups []eval.ComparedGroup) [][]string {
	var rows [][]string
	for _, g := range groups {
		rows = append(rows, []string{g.Name, fmt.Sprint(g.Questions), fmt.Sprint(g.RightA), fmt.Sprint(g.RightB),
			fmt.Sprint(g.Fixed), fmt.Sprint(g.Broken), fmt.Sprintf("%+d", g.Fixed-g.Broken)})
	}
	return rows
}

func writeTable(b *strings.Builder, header []string, rows [][]string) {
	escape := strings.NewReplacer("|", `\|`, "\n", " ", "\r", " ", "<", "&lt;")
	record := func(cells []string) {
		for _, c := range cells {
			b.WriteString("| " + escape.Replace(c) + " ")
		}
		b.WriteString("|\n")
	}
	record(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		record(row)
	}
}

func runNames(r *eval.Report) []string {
	var names []string
	for _, run := range r.Runs {
		names = append(names, run.Name)
	}
	return names
}

func capital(s string) string {
	if s == "" {
		return s
	}
	return strings.ToUpper(s[:1]) + s[1:]
}

func sorted(names []string) []string {
	sort.Strings(names)
	return names
}
