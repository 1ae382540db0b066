package eval

import (
	"encoding/binary"
	"encoding/hex"
	"math"
	"sort"
	"strings"
	"unicode/utf8"

	"quern/sqlguard"
)

// AppendKey appends a text that is equal for two values exactly when Python calls them equal: NULL equals NULL, integers
// and reals are compared by exact value, text never equals a number or a blob.
func AppendKey(key []byte, v sqlguard.Value) []byte {
	switch v.Kind {
	case sqlguard.Integer:
		return binary.BigEndian.AppendUint64(append(key, 'i'), uint64(v.Int))
	case sqlguard.Real:
		if n, ok := exactInt(v.Real); ok {
			return binary.BigEndian.AppendUint64(append(key, 'i'), uint64(n))
		}
		return binary.BigEndian.AppendUint64(append(key, 'r'), math.Float64bits(v.Real))
	case sqlguard.Text:
		return appendData(append(key, 't'), v.Data)
	case sqlguard.Blob:
		return appendData(append(key, 'b'), v.Data)
	}
	return append(key, '0')
}

func appendData(key []byte, data string) []byte {
	key = binary.BigEndian.AppendUint64(key, uint64(len(data)))
	return append(key, data...)
}

// exactInt is a float's value as an integer, where it has one.
func exactInt(f float64) (int64, bool) {
	if f != math.Trunc(f) || f < -(1<<63) || f >= 1<<63 {
		return 0, false
	}
	return int64(f), true
}

// RowKey is AppendKey over a row.
func RowKey(row []sqlguard.Value) string {
	var key []byte
	for _, v := range row {
		key = AppendKey(key, v)
	}
	return string(key)
}

func rowKeys(rows [][]sqlguard.Value) []string {
	keys := make([]string, len(rows))
	for i, row := range rows {
		keys[i] = RowKey(row)
	}
	return keys
}

// SameRows reports whether two results have the same rows, columns in the same order: as lists, or as multisets.
func SameRows(a, b [][]sqlguard.Value, ordered bool) bool {
	if len(a) != len(b) {
		return false
	}
	return sameKeys(rowKeys(a), rowKeys(b), ordered)
}

func sameKeys(a, b []string, ordered bool) bool {
	if len(a) != len(b) {
		return false
	}
	if !ordered {
		sort.Strings(a)
		sort.Strings(b)
	}
	for i := range a {
		if a[i] != b[i] {
			return false
		}
	}
	return true
}

// Canonical is a hash of a result for voting: two results with the same rows have the same one, whatever the column names;
// the order of rows counts only when ordered.
func Canonical(rows [][]sqlguard.Value, ordered bool) string {
	keys := rowKeys(rows)
	if !ordered {
		sort.Strings(keys)
	}
	return hashText(strings.Join(keys, "\n"))
}

// tolerantValue forgives what graders argue about: numbers keep six significant digits, text loses outer blanks and case.
func tolerantValue(v sqlguard.Value) sqlguard.Value {
	switch v.Kind {
	case sqlguard.Integer:
		return sqlguard.Value{Kind: sqlguard.Real, Real: sixDigits(float64(v.Int))}
	case sqlguard.Real:
		return sqlguard.Value{Kind: sqlguard.Real, Real: sixDigits(v.Real)}
	case sqlguard.Text:
		return sqlguard.Value{Kind: sqlguard.Text, Data: strings.ToLower(strings.TrimSpace(v.Data))}
	}
	return v
}

func sixDigits(f float64) float64 {
	if f == 0 || math.IsInf(f, 0) {
		return f
	}
	scale := math.Pow(10, 5-math.Floor(math.Log10(math.Abs(f))))
	if math.IsInf(scale, 0) || scale == 0 {
		return f
	}
	return math.Round(f*scale) / scale
}

func tolerantRows(rows [][]sqlguard.Value) [][]sqlguard.Value {
	out := make([][]sqlguard.Value, len(rows))
	for i, row := range rows {
		out[i] = make([]sqlguard.Value, len(row))
		for j, v := range row {
			out[i][j] = tolerantValue(v)
		}
	}
	return out
}

// permutationTries bounds the search for an order of columns: results with many alike columns are given up on.
const permutationTries = 2000

// samePermuted reports whether some order of b's columns gives the rows of a, as multisets.
func samePermuted(a, b [][]sqlguard.Value, width int) bool {
	if len(a) != len(b) || len(a) > 0 && len(b[0]) != width {
		return false
	}
	columnKey := func(rows [][]sqlguard.Value, j int) string {
		keys := make([]string, len(rows))
		for i, row := range rows {
			keys[i] = string(AppendKey(nil, row[j]))
		}
		sort.Strings(keys)
		return strings.Join(keys, "\n")
	}
	candidates := make([][]int, width)
	bKeys := make([]string, width)
	for j := range width {
		bKeys[j] = columnKey(b, j)
	}
	for j := range width {
		want := columnKey(a, j)
		for k := range width {
			if bKeys[k] == want {
				candidates[j] = append(candidates[j], k)
			}
		}
	}
	tries := permutationTries
	used, order := make([]bool, width), make([]int, width)
	var search func(j int) bool
	search = func(j int) bool {
		if j == width {
			tries--
			return SameRows(a, reorder(b, order), false)
		}
		for _, k := range candidates[j] {
			if used[k] || tries <= 0 {
				continue
			}
			used[k], order[j] = true, k
			if search(j + 1) {
				return true
			}
			used[k] = false
		}
		return false
	}
	return search(0)
}

func reorder(rows [][]sqlguard.Value, order []int) [][]sqlguard.Value {
	out := make([][]sqlguard.Value, len(rows))
	for i, row := range rows {
		out[i] = make([]sqlguard.Value, len(order))
		for j, k := range order {
			out[i][j] = row[k]
		}
	}
	return out
}

// ShowTable keeps the first rows of a result for a reader.
func ShowTable(r sqlguard.Result) *Table {
	t := &Table{Columns: []string{}, Rows: [][]any{}, Total: len(r.Rows)}
	for _, col := range r.Columns {
		t.Columns = append(t.Columns, strings.ToValidUTF8(col.Name, "\ufffd"))
	}
	for _, row := range r.Rows[:min(len(r.Rows), ShownRows)] {
		shown := make([]any, len(row))
		for i, v := range row {
			shown[i] = showValue(v)
		}
		t.Rows = append(t.Rows, shown)
	}
	return t
}

// shownCell is how many characters of a cell a Score keeps.
const shownCell = 200

func showValue(v sqlguard.Value) any {
	switch v.Kind {
	case sqlguard.Integer:
		return v.Int
	case sqlguard.Real:
		if math.IsInf(v.Real, 0) || math.IsNaN(v.Real) {
			return strings.ToLower(strings.TrimPrefix(formatFloat(v.Real), "+"))
		}
		return v.Real
	case sqlguard.Text:
		return clip(strings.ToValidUTF8(v.Data, "\ufffd"))
	case sqlguard.Blob:
		return clip("x'" + hex.EncodeToString([]byte(v.Data)[:min(len(v.Data), shownCell)]) + "'")
	}
	return nil
}

func clip(s string) string {
	if utf8.RuneCountInString(s) <= shownCell {
		return s
	}
	return string([]rune(s)[:shownCell]) + "…"
}
