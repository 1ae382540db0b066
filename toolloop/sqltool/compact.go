package sqltool

import (
	"context"
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"

	"quern/internal/pytext"
	"quern/sqlguard"
	"quern/toolloop"
)

// callCompact runs the query and words the result for a model that reads tables.
func (t *Tool) callCompact(ctx context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	value, _ := inv.Arguments.Get(t.query)
	sql, ok := value.(string)
	if !ok || strings.TrimSpace(sql) == "" {
		return toolloop.Observation{
			Text:    fmt.Sprintf("Error: %s needs the parameter %q: one SQL query.", t.definition.Name, t.query),
			Failure: toolloop.FailArguments,
		}, nil
	}
	result, err := t.db.Query(ctx, sql)
	if err != nil {
		return toolloop.Observation{}, err
	}
	hint, err := t.hint(ctx, sql, result, inv.Repeats)
	if err != nil {
		return toolloop.Observation{}, err
	}
	obs := observation(sql, t.resultText(result, true), t.resultText(result, false))
	obs.Rows = len(result.Rows)
	if result.Failure != nil {
		obs.Failure = failureKind(result.Failure)
	}
	if hint != "" {
		obs.Hint = hint
		obs.Text += "\nHint: " + hint
	}
	return obs, nil
}

// resultText is a failure in one line, or the columns, the rows and their number. whole leaves nothing out.
func (t *Tool) resultText(result sqlguard.Result, whole bool) string {
	if f := result.Failure; f != nil {
		text := "Error: " + f.Message
		if f.Hint != "" {
			text += " (" + f.Hint + ")"
		}
		return text
	}
	if len(result.Rows) == 0 {
		return typedHeader(result.Columns) + "\n(0 rows)"
	}
	maxRows, maxTable, maxCell := t.opts.MaxRows, t.opts.MaxTable, t.opts.MaxCell
	if whole {
		maxRows, maxTable, maxCell = len(result.Rows), maxFull, maxFull
	}
	b := []byte(header(result.Columns))
	shown := 0
	for _, row := range result.Rows {
		line := rowText(row, maxCell)
		if shown == maxRows || shown > 0 && len(b)+len(line) > maxTable {
			break
		}
		b = append(append(b, '\n'), line...)
		shown++
	}
	return string(b) + "\n" + countText(shown, len(result.Rows), result.Truncated != sqlguard.Whole)
}

func countText(shown, rows int, more bool) string {
	switch {
	case more:
		return fmt.Sprintf("(truncated: the first %d rows of more than %d)", shown, rows)
	case shown < rows:
		return fmt.Sprintf("(truncated: the first %d of %d rows)", shown, rows)
	case rows == 1:
		return "(1 row)"
	}
	return fmt.Sprintf("(%d rows)", rows)
}

func header(columns []sqlguard.Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = oneLine(c.Name)
	}
	return strings.Join(names, " | ")
}

// typedHeader also gives the declared types: of an empty result they are all there is to see.
func typedHeader(columns []sqlguard.Column) string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = oneLine(c.Name)
		if c.DeclType != "" {
			names[i] += " (" + oneLine(c.DeclType) + ")"
		}
	}
	return strings.Join(names, " | ")
}

func rowText(row []sqlguard.Value, maxCell int) string {
	cells := make([]string, len(row))
	for i, v := range row {
		cells[i] = cellText(v, maxCell)
	}
	return strings.Join(cells, " | ")
}

// cellText is one value. Text is quoted where it would be misread bare: blanks at its ends, a look like a number or
// NULL, a separator inside.
func cellText(v sqlguard.Value, maxCell int) string {
	switch v.Kind {
	case sqlguard.Integer:
		return fmt.Sprint(v.Int)
	case sqlguard.Real:
		return pytext.FloatRepr(v.Real)
	case sqlguard.Text:
		text := oneLine(escapeInvalid(v.Data))
		n := utf8.RuneCountInString(text)
		if n > maxCell {
			return text[:runeOffset(text, maxCell)] + fmt.Sprintf("… (%d characters)", n)
		}
		if needsQuotes(text) {
			return "'" + strings.ReplaceAll(text, "'", "''") + "'"
		}
		return text
	case sqlguard.Blob:
		const most = 16
		if len(v.Data) > most {
			return fmt.Sprintf("x'%s…' (%d bytes)", hexText(v.Data[:most]), len(v.Data))
		}
		return "x'" + hexText(v.Data) + "'"
	}
	return "NULL"
}

func needsQuotes(text string) bool {
	if text == "" || text != strings.TrimSpace(text) || strings.EqualFold(text, "null") || strings.Contains(text, " | ") {
		return true
	}
	first := text[0]
	return first >= '0' && first <= '9' || first == '-' || first == '+' || first == '.' || first == '\'' || first == '('
}

// oneLine writes line breaks and other control characters as escapes.
func oneLine(s string) string {
	if strings.IndexFunc(s, unicode.IsControl) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r == '\r':
			b.WriteString(`\r`)
		case unicode.IsControl(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}
