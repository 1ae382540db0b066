package spider

import (
	"fmt"
	"strings"

	"quern/eval"
)

// levels and turns are the columns of the scripts' tables.
var (
	levels = append(append([]string(nil), Levels...), "all")
	turns  = []string{"turn 1", "turn 2", "turn 3", "turn 4", "turn > 4"}
)

// jointAll is the column of whole interactions: right when all their turns are.
const jointAll = "joint_all"

// tally adds up one script's outcomes as the script does.
type tally struct {
	opts  Options
	cells map[string]*sums // by level or turn
	multi bool             // several interactions: with jointAll and turns
	left  int              // pairs that are not counted
}

// sums is one column of the tables.
type sums struct {
	count, exec, exact int
	parts              [10]partSums // in the order of Parts
}

// partSums adds up one partial score, over the pairs whose prediction, or whose gold, has the part.
type partSums struct{ acc, accPairs, rec, recPairs int }

func newTally(opts Options, multi bool) *tally {
	t := &tally{opts: opts, multi: multi, cells: map[string]*sums{jointAll: {}}}
	for _, name := range append(append([]string(nil), levels...), turns...) {
		t.cells[name] = &sums{}
	}
	return t
}

// add counts a pair, in the given turn of its interaction (from 0).
func (t *tally) add(o *Outcome, turn int) {
	for _, name := range []string{o.Hardness, "all", turns[min(turn, len(turns)-1)]} {
		c := t.cells[name]
		c.count++
		c.exec += count(o.Exec)
		c.exact += count(o.Exact)
		for i, p := range o.Partial {
			c.parts[i].add(p)
		}
	}
}

// addInteraction counts a whole interaction.
func (t *tally) addInteraction(turns []*Outcome) {
	c := t.cells[jointAll]
	c.count++
	exec, exact := 1, 1
	for _, o := range turns {
		exec, exact = exec*count(o.Exec), exact*count(o.Exact)
	}
	c.exec += exec
	c.exact += exact
}

func count(b *bool) int {
	if b != nil && *b {
		return 1
	}
	return 0
}

func (p *partSums) add(score Partial) {
	if score.Pred > 0 {
		p.acc += score.Acc
		p.accPairs++
	}
	if score.Label > 0 {
		p.rec += score.Rec
		p.recPairs++
	}
}

func mean(sum, n int) float64 {
	if n == 0 {
		return 0
	}
	return float64(sum) / float64(n)
}

func (p partSums) precision() float64 { return mean(p.acc, p.accPairs) }
func (p partSums) recall() float64    { return mean(p.rec, p.recPairs) }

// f1 is made of the two means, and 1 when both are 0.
func (p partSums) f1() float64 {
	acc, rec := p.precision(), p.recall()
	if acc == 0 && rec == 0 {
		return 1
	}
	return 2 * acc * rec / (rec + acc)
}

// table is one block of the printed totals.
type table struct {
	title  string // line above it, as printed; "" for the head of a group of tables
	head   []string
	labels []string
	rows   [][]string
}

// tables are the blocks that the script prints, in order.
func (t *tally) tables() []table {
	columns := levels
	if t.multi {
		columns = append(append([]string(nil), levels...), jointAll)
	}
	out := []table{{head: columns, labels: []string{"count"}, rows: [][]string{t.row(columns, (*sums).counted)}}}
	if t.opts.exec() {
		out = append(out, t.single("=====================   EXECUTION ACCURACY     =====================", "execution", columns, (*sums).execution))
	}
	if t.opts.match() {
		out = append(out, t.single("\n====================== EXACT MATCHING ACCURACY =====================", "exact match", columns, (*sums).exactMatch))
		out = append(out,
			t.partial("\n---------------------PARTIAL MATCHING ACCURACY----------------------", columns, partSums.precision),
			t.partial("---------------------- PARTIAL MATCHING RECALL ----------------------", columns, partSums.recall),
			t.partial("---------------------- PARTIAL MATCHING F1 --------------------------", columns, partSums.f1))
	}
	if t.multi {
		out = append(out, t.turnTables()...)
	}
	return out
}

func (t *tally) turnTables() []table {
	out := []table{{title: "\n", head: turns, labels: []string{"count"}, rows: [][]string{t.row(turns, (*sums).counted)}}}
	if t.opts.exec() {
		out = append(out, t.single("=====================   TURN EXECUTION ACCURACY     =====================", "execution", turns, (*sums).execution))
	}
	if t.opts.match() {
		out = append(out, t.single("\n====================== TURN EXACT MATCHING ACCURACY =====================", "exact match", turns, (*sums).exactMatch))
	}
	return out
}

func (s *sums) counted() string    { return fmt.Sprint(s.count) }
func (s *sums) execution() string  { return decimal(mean(s.exec, s.count)) }
func (s *sums) exactMatch() string { return decimal(mean(s.exact, s.count)) }

func decimal(f float64) string { return fmt.Sprintf("%.3f", f) }

func (t *tally) row(columns []string, figure func(*sums) string) []string {
	cells := make([]string, len(columns))
	for i, name := range columns {
		cells[i] = figure(t.cells[name])
	}
	return cells
}

func (t *tally) single(title, label string, columns []string, figure func(*sums) string) table {
	return table{title: title, labels: []string{label}, rows: [][]string{t.row(columns, figure)}}
}

// partial is a table of partial scores. A level without a pair shows 0 throughout.
func (t *tally) partial(title string, columns []string, figure func(partSums) float64) table {
	out := table{title: title, labels: Parts}
	for i := range Parts {
		out.rows = append(out.rows, t.row(columns, func(s *sums) string {
			if s.count == 0 {
				return decimal(0)
			}
			return decimal(figure(s.parts[i]))
		}))
	}
	return out
}

// text is what the script prints at its end, byte for byte.
func (t *tally) text() string {
	var b strings.Builder
	line := func(label string, cells []string) {
		fmt.Fprintf(&b, "%-20s", label)
		for _, cell := range cells {
			fmt.Fprintf(&b, " %-20s", cell)
		}
		b.WriteByte('\n')
	}
	for _, table := range t.tables() {
		if table.title != "" {
			b.WriteString(table.title + "\n")
		}
		if table.head != nil {
			line("", table.head)
		}
		for i, label := range table.labels {
			line(label, table.rows[i])
		}
	}
	return b.String()
}

// totals are the same figures for a report.
func (t *tally) totals(script string) eval.Totals {
	out := eval.Totals{Title: script, Text: t.text()}
	if t.left > 0 {
		out.Title += fmt.Sprintf(", without %d questions on which it ends with an exception or which it does not count", t.left)
	}
	for _, table := range t.tables() {
		if table.head != nil && out.Columns == nil {
			out.Columns = append([]string{""}, table.head...)
		}
		if len(table.rows[0])+1 != len(out.Columns) {
			continue // the per-turn tables have their own columns; Text holds them
		}
		for i, label := range table.labels {
			if len(table.labels) > 1 {
				label = strings.ToLower(strings.Fields(strings.Trim(table.title, "\n -"))[2]) + ": " + label
			}
			out.Rows = append(out.Rows, append([]string{label}, table.rows[i]...))
		}
	}
	return out
}

// Totals are the tables of the test-suite script and, where the scores hold its outcomes, of the older one. Pairs on which
// a script ends with an exception are left out. A zero Scorer shows what the scores hold.
func (s *Scorer) Totals(results []eval.Result) []eval.Totals {
	opts := s.opts
	if opts.Type == "" {
		opts = optionsFrom(results)
	}
	suite := tallyOf(opts, results, func(d *Detail) *Outcome { return &d.TestSuite })
	out := []eval.Totals{suite.totals("Spider, test-suite-sql-eval")}
	if opts.Legacy {
		legacy := tallyOf(opts, results, func(d *Detail) *Outcome { return d.Legacy })
		legacy.multi = false // the older script knows no interactions
		out = append(out, legacy.totals("Spider, legacy evaluation.py"))
	}
	return out
}

// optionsFrom tells from scores what was asked for.
func optionsFrom(results []eval.Result) Options {
	exec, exact, legacy := false, false, false
	for _, r := range results {
		if d := detailOf(r.Score); d != nil {
			exec, exact, legacy = exec || d.TestSuite.Exec != nil, exact || d.TestSuite.Exact != nil, legacy || d.Legacy != nil
		}
	}
	switch {
	case exec && !exact:
		return Options{Type: Exec, Legacy: legacy}
	case exact && !exec:
		return Options{Type: Match, Legacy: legacy}
	}
	return Options{Type: All, Legacy: legacy}
}

func tallyOf(opts Options, results []eval.Result, pick func(*Detail) *Outcome) *tally {
	t := newTally(opts, false)
	var interactions [][]*Outcome
	for _, r := range results {
		d := detailOf(r.Score)
		if d == nil {
			continue
		}
		for d.Interaction >= len(interactions) {
			interactions = append(interactions, nil)
		}
		o := pick(d)
		if !o.counted() {
			t.left++
			continue
		}
		t.add(o, d.Turn)
		interactions[d.Interaction] = append(interactions[d.Interaction], o)
	}
	for _, turns := range interactions {
		t.addInteraction(turns) // one without a turn counts as right, as in the script
	}
	t.multi = len(interactions) > 1
	return t
}
