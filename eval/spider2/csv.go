package spider2

import (
	"fmt"
	"strings"
)

// table is a CSV file as text cells: what pandas' C tokenizer leaves before any type is guessed.
type table struct {
	header []string
	rows   [][]string // all of one width
}

// csvError is a file that pandas refuses.
type csvError struct{ msg string }

func (e csvError) Error() string { return e.msg }

// States of the tokenizer. The numbers of fields of the lines are checked as the lines end, since a line that is too long
// is an error only if it is not the first one after the header.
type csvState int

const (
	startRecord csvState = iota
	startField
	inField
	inQuotedField
	quoteInQuotedField
	blankLine     // only blanks so far: the line counts only if something else follows
	afterCR       // a field ended at a carriage return; a line feed belongs to it
	afterCRIgnore // the same after a line that does not count
)

// tokenizer splits CSV text as pandas' tokenizer.c does with read_csv's default settings.
type tokenizer struct {
	state csvState
	field strings.Builder
	line  []string
	lines [][]string
}

// readTable splits text into header and rows. Blank lines do not count; short rows are padded with empty cells; when the
// first row is longer than the header, the surplus cells in front are an index and dropped; any other row that is longer
// than the one before it is an error. These are the rules of pandas' read_csv.
//
// One thing is not copied: when lines end at bare carriage returns and one begins with a blank, pandas reads what came
// before a second time, or fails.
func readTable(text string) (*table, error) {
	t := &tokenizer{}
	text = strings.TrimPrefix(text, "\ufeff")
	lineStart := 0
	for i := 0; i < len(text); i++ {
		if t.state == startRecord {
			lineStart = i
		}
		next, err := t.step(text[i])
		switch {
		case err != nil:
			return nil, err
		case next == reread:
			i--
		case next == rereadLine:
			i = lineStart - 1
		}
	}
	if err := t.finish(); err != nil {
		return nil, err
	}
	return t.table()
}

// What the caller does with the character after a step.
type advance int

const (
	consumed advance = iota
	reread
	rereadLine // the line began with blanks and goes on: read it again, blanks included
)

func (t *tokenizer) step(c byte) (advance, error) {
	switch t.state {
	case startRecord:
		switch c {
		case '\n':
		case '\r':
			t.state = afterCRIgnore
		case ' ', '\t':
			t.state = blankLine
		default:
			t.state = startField
			return reread, nil
		}
	case blankLine:
		switch c {
		case '\n':
			t.state = startRecord
		case '\r':
			t.state = afterCRIgnore
		case ' ', '\t':
		default:
			t.state = startField
			return rereadLine, nil
		}
	case startField, inField:
		return t.unquoted(c)
	case inQuotedField:
		if c == '"' {
			t.state = quoteInQuotedField
		} else {
			t.field.WriteByte(c)
		}
	case quoteInQuotedField:
		switch c {
		case '"':
			t.field.WriteByte(c)
			t.state = inQuotedField
		case ',', '\n', '\r':
			t.state = inField
			return t.unquoted(c)
		default:
			t.field.WriteByte(c)
			t.state = inField
		}
	case afterCR:
		err := t.endLine()
		switch c {
		case '\n':
			return consumed, err
		case ',':
			t.endField()
			t.state = startField
			return consumed, err
		}
		return reread, err
	case afterCRIgnore:
		t.state = startRecord
		if c != '\n' && c != ',' {
			return reread, nil
		}
	}
	return consumed, nil
}

func (t *tokenizer) unquoted(c byte) (advance, error) {
	switch {
	case c == '\n':
		t.endField()
		return consumed, t.endLine()
	case c == '\r':
		t.endField()
		t.state = afterCR
	case c == ',':
		t.endField()
		t.state = startField
	case c == '"' && t.state == startField:
		t.state = inQuotedField
	default:
		t.field.WriteByte(c)
		t.state = inField
	}
	return consumed, nil
}

// endField closes a cell. pandas keeps cells as C strings, so a NUL ends one.
func (t *tokenizer) endField() {
	cell, _, _ := strings.Cut(t.field.String(), "\x00")
	t.line = append(t.line, cell)
	t.field.Reset()
}

func (t *tokenizer) endLine() error {
	t.state = startRecord
	if n := len(t.lines); n > 0 {
		want := len(t.lines[n-1])
		if n > 1 && len(t.line) > want {
			return csvError{fmt.Sprintf("Expected %d fields in line %d, saw %d", want, n+1, len(t.line))}
		}
		for len(t.line) < want {
			t.line = append(t.line, "")
		}
	}
	t.lines = append(t.lines, t.line)
	t.line = nil
	return nil
}

func (t *tokenizer) finish() error {
	switch t.state {
	case inQuotedField:
		return csvError{"EOF inside string"}
	case startField, inField, quoteInQuotedField:
		t.endField()
		return t.endLine()
	case afterCR:
		return t.endLine()
	}
	return nil
}

func (t *tokenizer) table() (*table, error) {
	if len(t.lines) == 0 {
		return nil, csvError{"No columns to parse from file"}
	}
	out := &table{header: columnNames(t.lines[0]), rows: t.lines[1:]}
	if len(out.rows) == 0 {
		return out, nil
	}
	index := len(out.rows[0]) - len(out.header)
	for i, row := range out.rows {
		out.rows[i] = row[index:]
	}
	return out, nil
}

// columnNames gives empty names and repeated ones the names pandas gives them.
func columnNames(header []string) []string {
	names := append([]string(nil), header...)
	var order, unnamed []int
	for i, name := range names {
		if name == "" {
			names[i] = fmt.Sprintf("Unnamed: %d", i)
			unnamed = append(unnamed, i)
		} else {
			order = append(order, i)
		}
	}
	taken := map[string]bool{}
	for _, name := range names {
		taken[name] = true
	}
	count := map[string]int{}
	for _, i := range append(order, unnamed...) {
		original := names[i]
		name, n := original, count[original]
		for n > 0 {
			count[original] = n + 1
			name = fmt.Sprintf("%s.%d", original, n)
			if taken[name] {
				n++
			} else {
				n = count[name]
			}
		}
		names[i] = name
		taken[name] = true
		count[name] = n + 1
	}
	return names
}
