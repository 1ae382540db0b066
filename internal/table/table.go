// Package table writes result rows for people and programs: as a table, Markdown, CSV, JSON, or line by line.
//
// Cells come from databases nobody has looked at: what a terminal would obey (escape sequences, control characters, changes of writing
// direction) is made visible in everything meant for eyes.
package table

import (
	"encoding/csv"
	"encoding/hex"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"

	"quern/sqlguard"
)

// Format is how rows are written.
type Format string

// The formats.
const (
	Table    Format = "table"    // framed columns
	Markdown Format = "markdown" // a GitHub table
	CSV      Format = "csv"      // RFC 4180 with a header line; NULL is empty, a blob x'hex'
	JSON     Format = "json"     // one document, see Document
	Line     Format = "line"     // one "column = value" a line, a blank line between rows
)

// Formats lists all formats, the first is the default.
var Formats = []Format{Table, Markdown, CSV, JSON, Line}

// ParseFormat finds a format by name.
func ParseFormat(name string) (Format, error) {
	for _, f := range Formats {
		if string(f) == name {
			return f, nil
		}
	}
	return "", fmt.Errorf("no format %q: there are %s", name, strings.Trim(fmt.Sprint(Formats), "[]"))
}

// Options say how to write.
type Options struct {
	Format   Format
	MaxCell  int  // characters of a cell in Table, Markdown and Line, 0: all
	Terminal bool // the output is a terminal: control characters are made visible in CSV too
	Formulas bool // CSV: put ' before text that a spreadsheet would take for a formula
}

// Write writes the rows of a result that did not fail.
func Write(w io.Writer, r sqlguard.Result, o Options) error {
	switch o.Format {
	case Markdown:
		return writeMarkdown(w, r, o)
	case CSV:
		return writeCSV(w, r, o)
	case JSON:
		return writeJSON(w, r)
	case Line:
		return writeLines(w, r, o)
	}
	return writeTable(w, r, o)
}

func writeTable(w io.Writer, r sqlguard.Result, o Options) error {
	t := table.NewWriter()
	t.SetStyle(table.StyleLight)
	t.Style().Format.Header = text.FormatDefault
	t.Style().Options.SeparateRows = false
	header := make(table.Row, len(r.Columns))
	for i, c := range r.Columns {
		header[i] = Visible(c.Name)
	}
	t.AppendHeader(header)
	var configs []table.ColumnConfig
	for i := range r.Columns {
		if numeric(r.Rows, i) {
			configs = append(configs, table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight})
		}
	}
	t.SetColumnConfigs(configs)
	for _, row := range r.Rows {
		cells := make(table.Row, len(row))
		for i, v := range row {
			cells[i] = Cell(v, o.MaxCell)
		}
		t.AppendRow(cells)
	}
	_, err := fmt.Fprintln(w, t.Render())
	return err
}

// numeric says whether a column holds numbers and nothing else but NULL.
func numeric(rows [][]sqlguard.Value, column int) bool {
	some := false
	for _, row := range rows {
		switch row[column].Kind {
		case sqlguard.Integer, sqlguard.Real:
			some = true
		case sqlguard.Text, sqlguard.Blob:
			return false
		}
	}
	return some
}

// markdownEscapes are the characters that would end a cell or start markup in it.
var markdownEscapes = strings.NewReplacer(`\`, `\\`, "|", `\|`, "<", `\<`, "`", "\\`", "*", `\*`, "[", `\[`)

func writeMarkdown(w io.Writer, r sqlguard.Result, o Options) error {
	var b strings.Builder
	rule := "|"
	b.WriteString("|")
	for i, c := range r.Columns {
		b.WriteString(" " + markdownEscapes.Replace(Visible(c.Name)) + " |")
		if numeric(r.Rows, i) {
			rule += " ---: |"
		} else {
			rule += " --- |"
		}
	}
	b.WriteString("\n" + rule + "\n")
	for _, row := range r.Rows {
		b.WriteString("|")
		for _, v := range row {
			b.WriteString(" " + markdownEscapes.Replace(Cell(v, o.MaxCell)) + " |")
		}
		b.WriteString("\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func writeCSV(w io.Writer, r sqlguard.Result, o Options) error {
	out := csv.NewWriter(w)
	record := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		record[i] = csvField(c.Name, o)
	}
	if err := writeRecord(w, out, record); err != nil {
		return err
	}
	for _, row := range r.Rows {
		for i, v := range row {
			switch v.Kind {
			case sqlguard.Null:
				record[i] = ""
			case sqlguard.Text:
				record[i] = csvField(v.Data, o)
			case sqlguard.Blob:
				record[i] = "x'" + hex.EncodeToString([]byte(v.Data)) + "'"
			default:
				record[i] = Cell(v, 0)
			}
		}
		if err := writeRecord(w, out, record); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// writeRecord quotes an empty field that stands alone: readers skip blank lines.
func writeRecord(w io.Writer, out *csv.Writer, record []string) error {
	if len(record) != 1 || record[0] != "" {
		return out.Write(record)
	}
	out.Flush()
	_, err := io.WriteString(w, "\"\"\n")
	return err
}

// csvField leaves text as it is stored, but for what the options ask.
func csvField(s string, o Options) string {
	if o.Terminal {
		s = Visible(s)
	}
	if o.Formulas && s != "" && strings.ContainsRune("=+-@\t\r", rune(s[0])) {
		s = "'" + s
	}
	return s
}

func writeLines(w io.Writer, r sqlguard.Result, o Options) error {
	width := 0
	names := make([]string, len(r.Columns))
	for i, c := range r.Columns {
		names[i] = Visible(c.Name)
		width = max(width, text.StringWidthWithoutEscSequences(names[i]))
	}
	var b strings.Builder
	for i, row := range r.Rows {
		if i > 0 {
			b.WriteString("\n")
		}
		for j, v := range row {
			pad := strings.Repeat(" ", width-text.StringWidthWithoutEscSequences(names[j]))
			fmt.Fprintf(&b, "%s%s = %s\n", pad, names[j], Cell(v, o.MaxCell))
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// blobBytes is how much of a blob a cell shows.
const blobBytes = 16

// Cell writes a value for eyes, cut to maxChars characters (0: all): control characters visible, a blob as x'…' with its
// size, a whole real with .0.
func Cell(v sqlguard.Value, maxChars int) string {
	switch v.Kind {
	case sqlguard.Integer:
		return strconv.FormatInt(v.Int, 10)
	case sqlguard.Real:
		return realText(v.Real)
	case sqlguard.Text:
		return cut(v.Data, maxChars)
	case sqlguard.Blob:
		shown, more := v.Data, ""
		if len(shown) > blobBytes {
			shown, more = shown[:blobBytes], "…"
		}
		return fmt.Sprintf("x'%s%s' (%d bytes)", hex.EncodeToString([]byte(shown)), more, len(v.Data))
	}
	return "NULL"
}

func realText(f float64) string {
	s := strconv.FormatFloat(f, 'g', -1, 64)
	if exponent := strings.IndexByte(s, 'e'); exponent >= 0 && f > -1e16 && f < 1e16 && (f <= -1e-4 || f >= 1e-4) {
		s = strconv.FormatFloat(f, 'f', -1, 64)
	}
	if strings.IndexFunc(s, func(r rune) bool { return r != '-' && (r < '0' || r > '9') }) < 0 {
		s += ".0"
	}
	return s
}

// cut makes s visible and shortens it, saying how long it was.
func cut(s string, maxChars int) string {
	n := utf8.RuneCountInString(s)
	if maxChars <= 0 || n <= maxChars {
		return Visible(s)
	}
	end := 0
	for range maxChars {
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	return fmt.Sprintf("%s… (%d characters)", Visible(s[:end]), n)
}

// Visible writes everything a terminal would obey rather than show as an escape: control characters, also those of the upper half
// (C1), marks that change the direction of writing, line and paragraph separators. Bytes that are not UTF-8 become U+FFFD.
func Visible(s string) string {
	if strings.IndexFunc(s, hidden) < 0 && utf8.ValidString(s) {
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
		case r < 0x100 && hidden(r):
			fmt.Fprintf(&b, `\x%02x`, r)
		case hidden(r):
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool {
	return unicode.IsControl(r) || unicode.Is(unicode.Bidi_Control, r) || r == '\u2028' || r == '\u2029'
}
