package spider2

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"quern/internal/pytext"
	"quern/sqlguard"
)

// chunkRows is how many rows the official script turns into a data frame at a time: column types are guessed for each
// chunk apart.
const chunkRows = 500

// resultCSV writes a query's result as the official script does: sqlite3 rows through pandas.read_sql_query in chunks, each
// chunk through DataFrame.to_csv.
func resultCSV(columns []sqlguard.Column, rows [][]sqlguard.Value) string {
	var b strings.Builder
	header := make([]string, len(columns))
	for i, col := range columns {
		header[i] = col.Name
	}
	writeRecord(&b, header)
	for start := 0; start < len(rows); start += chunkRows {
		writeChunk(&b, rows[start:min(start+chunkRows, len(rows))], len(columns))
	}
	return b.String()
}

func writeChunk(b *strings.Builder, rows [][]sqlguard.Value, width int) {
	floats := make([]bool, width)
	for i := range floats {
		floats[i] = floatColumn(rows, i)
	}
	record := make([]string, width)
	for _, row := range rows {
		for i, v := range row {
			record[i] = cellText(v, floats[i])
		}
		writeRecord(b, record)
	}
}

// floatColumn reports whether pandas makes a column of floats: all values are numbers or NULL, and one of them is a float
// or a NULL beside a number. A blob that spells a number counts as one.
func floatColumn(rows [][]sqlguard.Value, i int) bool {
	var null, integer, float bool
	for _, row := range rows {
		switch v := row[i]; v.Kind {
		case sqlguard.Null:
			null = true
		case sqlguard.Integer:
			integer = true
		case sqlguard.Real:
			float = true
		case sqlguard.Blob:
			if _, ok := pythonParseFloat(v.Data); !ok {
				return false
			}
			float = true
		default:
			return false
		}
	}
	return float || integer && null
}

func cellText(v sqlguard.Value, asFloat bool) string {
	switch v.Kind {
	case sqlguard.Integer:
		if asFloat {
			return pytext.FloatRepr(float64(v.Int))
		}
		return strconv.FormatInt(v.Int, 10)
	case sqlguard.Real:
		return pytext.FloatRepr(v.Real)
	case sqlguard.Text:
		return v.Data
	case sqlguard.Blob:
		if f, ok := pythonParseFloat(v.Data); ok && asFloat {
			if math.IsNaN(f) {
				return ""
			}
			return pytext.FloatRepr(f)
		}
		return pythonBytes(v.Data)
	}
	return ""
}

// pythonParseFloat is Python's float() of a text.
func pythonParseFloat(s string) (float64, bool) {
	s = strings.Trim(s, asciiSpace)
	if strings.ContainsAny(s, "xXpP") {
		return 0, false
	}
	f, err := strconv.ParseFloat(s, 64)
	if err != nil && !math.IsInf(f, 0) {
		return 0, false
	}
	return f, true
}

// pythonBytes is Python's repr of bytes.
func pythonBytes(data string) string {
	quote := byte('\'')
	if strings.Contains(data, "'") && !strings.Contains(data, `"`) {
		quote = '"'
	}
	var b strings.Builder
	b.WriteByte('b')
	b.WriteByte(quote)
	for i := 0; i < len(data); i++ {
		switch c := data[i]; {
		case c == quote || c == '\\':
			b.WriteByte('\\')
			b.WriteByte(c)
		case c == '\t':
			b.WriteString(`\t`)
		case c == '\n':
			b.WriteString(`\n`)
		case c == '\r':
			b.WriteString(`\r`)
		case c < ' ' || c >= 0x7f:
			fmt.Fprintf(&b, `\x%02x`, c)
		default:
			b.WriteByte(c)
		}
	}
	b.WriteByte(quote)
	return b.String()
}

// writeRecord writes one line as Python's csv module does: a cell is quoted when it holds a comma, a quote or a line feed
// (a carriage return alone is not enough), and when it is empty and the only one.
func writeRecord(b *strings.Builder, cells []string) {
	for i, cell := range cells {
		if i > 0 {
			b.WriteByte(',')
		}
		if strings.ContainsAny(cell, ",\"\n") || cell == "" && len(cells) == 1 {
			b.WriteString(`"` + strings.ReplaceAll(cell, `"`, `""`) + `"`)
		} else {
			b.WriteString(cell)
		}
	}
	b.WriteByte('\n')
}
