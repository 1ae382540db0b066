package eval

import (
	"context"
	"fmt"
	"strings"

	"quern/sqlguard"
)

// Kinds of doubt about a gold query.
const (
	DoubtFails   = "fails"   // it gives an error
	DoubtEmpty   = "empty"   // it returns no rows
	DoubtTies    = "ties"    // its rows depend on the order in which SQLite visits the tables, or equals come
	DoubtPadding = "padding" // it compares with a text that the column only holds with blanks around it, as flight_2 does
)

// Doubt is a reason to suspect a gold query, with what was seen.
type Doubt struct {
	Kind     string `json:"kind"`
	Evidence string `json:"evidence"`
}

// GoldDoubts looks for reasons to suspect an example's gold query. It runs it as it is, with the scan order reversed, with
// equals ordered both ways, and asks the database about the texts the query compares with. Results are cached by database and query.
func GoldDoubts(ctx context.Context, exec *Executor, ex Example) ([]Doubt, error) {
	if ex.Gold == "" || ex.Database == "" {
		return nil, nil
	}
	gold, err := exec.Gold(ctx, ex.Database, ex.Gold)
	if err != nil {
		return nil, err
	}
	if gold.Failure != nil {
		return []Doubt{{DoubtFails, gold.Failure.Message}}, nil
	}
	var doubts []Doubt
	if len(gold.Rows) == 0 {
		doubts = append(doubts, Doubt{DoubtEmpty, "the gold query returns no rows"})
	}
	ties, err := tieDoubt(ctx, exec, ex, gold)
	if err != nil {
		return nil, err
	}
	padding, err := paddingDoubts(ctx, exec, ex)
	if err != nil {
		return nil, err
	}
	return append(append(doubts, ties...), padding...), nil
}

// tieDoubt compares with the rows found when SQLite visits tables the other way round. It does so only where nothing is
// ordered, so equals under an ORDER BY before a LIMIT are ordered in both directions instead.
func tieDoubt(ctx context.Context, exec *Executor, ex Example, gold sqlguard.Result) ([]Doubt, error) {
	reversed, err := exec.GoldReversed(ctx, ex.Database, ex.Gold)
	if err != nil {
		return nil, err
	}
	if reversed.Failure == nil && !SameRows(gold.Rows, reversed.Rows, false) {
		return []Doubt{{DoubtTies, fmt.Sprintf("other rows come out when tables are visited the other way round, so LIMIT or a bare column decides a tie: %s or %s",
			sampleRow(gold, reversed), sampleRow(reversed, gold))}}, nil
	}
	up, down, limited := tieBreaks(ex.Gold, len(gold.Columns))
	if !limited {
		return nil, nil
	}
	first, err := exec.Gold(ctx, ex.Database, up)
	if err != nil {
		return nil, err
	}
	last, err := exec.Gold(ctx, ex.Database, down)
	if err != nil || first.Failure != nil || last.Failure != nil || SameRows(first.Rows, last.Rows, false) {
		return nil, err
	}
	return []Doubt{{DoubtTies, fmt.Sprintf("rows that ORDER BY leaves equal stand on both sides of the LIMIT: %s or %s", sampleRow(first, last), sampleRow(last, first))}}, nil
}

// sampleRow shows a row of a that b does not have.
func sampleRow(a, b sqlguard.Result) string {
	other := map[string]bool{}
	for _, row := range b.Rows {
		other[RowKey(row)] = true
	}
	for _, row := range a.Rows {
		if !other[RowKey(row)] {
			cells := make([]string, len(row))
			for i, v := range row {
				cells[i] = fmt.Sprint(showValue(v))
			}
			return "(" + strings.Join(cells, ", ") + ")"
		}
	}
	return "(the same rows in other numbers)"
}

// paddingDoubts asks, for each comparison of a column with a text, whether the column holds that text only with blanks
// around it.
func paddingDoubts(ctx context.Context, exec *Executor, ex Example) ([]Doubt, error) {
	var doubts []Doubt
	for _, c := range textComparisons(ex.Gold) {
		tables, err := tablesWithColumn(ctx, exec, ex.Database, c.column)
		if err != nil {
			return nil, err
		}
		for _, table := range tables {
			if !mentions(ex.Gold, table) {
				continue
			}
			count := fmt.Sprintf("SELECT count(*) FILTER (WHERE %[2]s = %[3]s), count(*) FILTER (WHERE trim(%[2]s) = trim(%[3]s)) FROM %[1]s",
				quoteName(table), quoteName(c.column), quoteText(c.text))
			r, err := exec.Gold(ctx, ex.Database, count)
			if err != nil {
				return nil, err
			}
			if r.Failure != nil || len(r.Rows) != 1 || r.Rows[0][0].Int > 0 || r.Rows[0][1].Int == 0 {
				continue
			}
			doubts = append(doubts, Doubt{DoubtPadding, fmt.Sprintf("no %s.%s equals %s, but %d do with blanks around the text",
				table, c.column, quoteText(c.text), r.Rows[0][1].Int)})
		}
	}
	return doubts, nil
}

type textComparison struct{ column, text string }

// textComparisons finds column = 'text' in a statement, each once. Double quotes count as a text's, as SQLite reads
// them where no such column exists.
func textComparisons(sql string) []textComparison {
	list := words(sql)
	var out []textComparison
	seen := map[textComparison]bool{}
	for i := 1; i+1 < len(list); i++ {
		if list[i] != "=" || !isName(list[i-1]) {
			continue
		}
		literal := i + 1
		if list[literal] == "=" { // ==
			literal++
		}
		if literal >= len(list) || list[literal][0] != '\'' && list[literal][0] != '"' {
			continue
		}
		c := textComparison{unquote(list[i-1]), unquote(list[literal])}
		if !seen[c] {
			seen[c] = true
			out = append(out, c)
		}
	}
	return out
}

func isName(word string) bool {
	c := word[0]
	return c == '"' || c == '`' || c == '[' || isWord(c) && (c < '0' || c > '9')
}

func unquote(word string) string {
	quote := word[0]
	if !strings.ContainsRune("'\"`[", rune(quote)) {
		return word
	}
	closing := string(quote)
	if quote == '[' {
		closing = "]"
	}
	body := strings.TrimSuffix(word[1:], closing)
	return strings.ReplaceAll(body, closing+closing, closing)
}

func tablesWithColumn(ctx context.Context, exec *Executor, path, column string) ([]string, error) {
	r, err := exec.Gold(ctx, path, "SELECT m.name FROM sqlite_master AS m JOIN pragma_table_info(m.name) AS c "+
		"WHERE m.type = 'table' AND lower(c.name) = lower("+quoteText(column)+") ORDER BY m.name")
	if err != nil || r.Failure != nil {
		return nil, err
	}
	var tables []string
	for _, row := range r.Rows {
		tables = append(tables, row[0].Data)
	}
	return tables, nil
}

// mentions reports whether a statement names a table.
func mentions(sql, table string) bool {
	for _, word := range words(sql) {
		if strings.EqualFold(unquote(word), table) {
			return true
		}
	}
	return false
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }
func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
