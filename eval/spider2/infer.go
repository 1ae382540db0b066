package spider2

import (
	"math"
	"strconv"
	"strings"
)

// dtype is the type pandas gives a column.
type dtype string

const (
	int64Type   dtype = "int64"
	uint64Type  dtype = "uint64"
	float64Type dtype = "float64"
	boolType    dtype = "bool"
	objectType  dtype = "object"
)

// missing stands for NaN: a cell without a value.
type missing struct{}

// column is one inferred column: each value is an int64, uint64, float64, bool, string or missing.
type column struct {
	dtype  dtype
	values []any
}

// missingTexts are the cells that read_csv takes for missing values by default.
var missingTexts = map[string]bool{
	"": true, "#N/A": true, "#N/A N/A": true, "#NA": true, "-1.#IND": true, "-1.#QNAN": true, "-NaN": true, "-nan": true,
	"1.#IND": true, "1.#QNAN": true, "<NA>": true, "N/A": true, "NA": true, "NULL": true, "NaN": true, "None": true,
	"n/a": true, "nan": true, "null": true,
}

// inferColumn guesses a column's type as pandas 2.2's C parser does: integers, else numbers, else booleans, else text.
func inferColumn(cells []string) column {
	col, fit := inferInt(cells)
	switch fit {
	case fits:
		return col
	case overflows:
		col, fit = inferUint(cells)
		switch fit {
		case fits:
			return col
		case overflows:
			return textColumn(cells, true)
		case conflicts: // pandas then takes the cells as they are, missing ones included
			return textColumn(cells, false)
		}
	}
	if col, ok := inferFloat(cells); ok {
		return col
	}
	if col, ok := inferBool(cells); ok {
		return col
	}
	return textColumn(cells, true)
}

// fit says how well cells are read as integers.
type fit int

const (
	fits fit = iota
	fails
	overflows
	conflicts // beyond int64, but with missing cells or negative numbers beside it
)

func inferInt(cells []string) (column, fit) {
	values := make([]any, len(cells))
	anyMissing := false
	for i, cell := range cells {
		if missingTexts[cell] {
			values[i], anyMissing = missing{}, true
			continue
		}
		n, fit := parseInt(cell)
		if fit != fits {
			return column{}, fit
		}
		values[i] = n
	}
	if !anyMissing {
		return column{int64Type, values}, fits
	}
	for i, v := range values {
		switch n, ok := v.(int64); {
		case !ok:
		case n == math.MinInt64: // pandas' own mark for a missing integer
			values[i] = missing{}
		default:
			values[i] = float64(n)
		}
	}
	return column{float64Type, values}, fits
}

func inferUint(cells []string) (column, fit) {
	values := make([]any, len(cells))
	var signed, unsigned, null bool
	for i, cell := range cells {
		if missingTexts[cell] {
			null = true
			continue
		}
		trimmed := strings.TrimLeft(cell, asciiSpace)
		if strings.HasPrefix(trimmed, "-") {
			signed = true
			continue
		}
		n, fit := parseUint(strings.TrimPrefix(trimmed, "+"))
		if fit != fits {
			return column{}, fit
		}
		unsigned = unsigned || n > math.MaxInt64
		values[i] = n
	}
	switch {
	case unsigned && (signed || null):
		return column{}, conflicts
	case signed:
		return column{}, overflows
	}
	return column{uint64Type, values}, fits
}

func inferFloat(cells []string) (column, bool) {
	values := make([]any, len(cells))
	for i, cell := range cells {
		if missingTexts[cell] {
			values[i] = missing{}
			continue
		}
		f, ok := parseFloat(cell)
		if !ok {
			return column{}, false
		}
		values[i] = f
	}
	return column{float64Type, values}, true
}

func inferBool(cells []string) (column, bool) {
	values := make([]any, len(cells))
	dtype := boolType
	for i, cell := range cells {
		switch {
		case missingTexts[cell]:
			values[i], dtype = missing{}, objectType
		case strings.EqualFold(cell, "true"):
			values[i] = true
		case strings.EqualFold(cell, "false"):
			values[i] = false
		default:
			return column{}, false
		}
	}
	return column{dtype, values}, len(cells) > 0
}

func textColumn(cells []string, findMissing bool) column {
	values := make([]any, len(cells))
	for i, cell := range cells {
		if findMissing && missingTexts[cell] {
			values[i] = missing{}
		} else {
			values[i] = cell
		}
	}
	return column{objectType, values}
}

const asciiSpace = " \t\n\v\f\r"

// parseInt reads a whole cell as an integer, with blanks around it. A number too large overflows even if what follows its
// digits is no number at all, as in pandas.
func parseInt(cell string) (int64, fit) {
	s := strings.TrimLeft(cell, asciiSpace)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	limit := uint64(math.MaxInt64)
	if negative {
		limit++
	}
	n, rest, fit := digits(s, limit)
	if fit != fits {
		return 0, fit
	}
	if strings.Trim(rest, asciiSpace) != "" {
		return 0, fails
	}
	if negative {
		return -int64(n), fits
	}
	return int64(n), fits
}

func parseUint(s string) (uint64, fit) {
	n, rest, fit := digits(s, math.MaxUint64)
	if fit == fits && strings.Trim(rest, asciiSpace) != "" {
		return 0, fails
	}
	return n, fit
}

// digits reads the decimal digits at the start of s, up to limit.
func digits(s string, limit uint64) (n uint64, rest string, _ fit) {
	if s == "" || !isDigit(s[0]) {
		return 0, s, fails
	}
	for s != "" && isDigit(s[0]) {
		d := uint64(s[0] - '0')
		if n > limit/10 || n == limit/10 && d > limit%10 {
			return 0, s, overflows
		}
		n, s = n*10+d, s[1:]
	}
	return n, s, fits
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

// parseFloat reads a whole cell as a number the way pandas 2.2's parser does, which is fast and a little inexact: at most
// 17 digits count, leading zeros among them, and the power of ten is applied by one multiplication or division.
func parseFloat(cell string) (float64, bool) {
	if f, rest, ok := floatPrefix(cell); ok && rest == "" {
		return f, true
	}
	switch strings.ToLower(cell) {
	case "inf", "+inf", "infinity", "+infinity":
		return math.Inf(1), true
	case "-inf", "-infinity":
		return math.Inf(-1), true
	}
	return 0, false
}

const maxDigits = 17

func floatPrefix(cell string) (f float64, rest string, ok bool) {
	s := strings.TrimLeft(cell, asciiSpace)
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	read, exponent := 0, 0
	for s != "" && isDigit(s[0]) {
		if read < maxDigits {
			f = f*10 + float64(s[0]-'0')
			read++
		} else {
			exponent++
		}
		s = s[1:]
	}
	if strings.HasPrefix(s, ".") {
		s = s[1:]
		for s != "" && isDigit(s[0]) {
			if read < maxDigits {
				f = f*10 + float64(s[0]-'0')
				read++
				exponent--
			}
			s = s[1:]
		}
	}
	if read == 0 {
		return 0, cell, false
	}
	if negative {
		f = -f
	}
	if s != "" && (s[0] == 'e' || s[0] == 'E') {
		n, after := exponentDigits(s[1:])
		exponent, s = exponent+n, after
	}
	f, ok = scale(f, exponent)
	return f, strings.TrimLeft(s, asciiSpace), ok
}

// exponentDigits reads an exponent's sign and digits. Without a digit something is left over, so that the cell is no number.
func exponentDigits(s string) (n int, rest string) {
	negative := strings.HasPrefix(s, "-")
	if negative || strings.HasPrefix(s, "+") {
		s = s[1:]
	}
	if s == "" || !isDigit(s[0]) {
		return 0, "e" + s
	}
	for read := 0; read < maxDigits && s != "" && isDigit(s[0]); read++ {
		n, s = min(n*10+int(s[0]-'0'), math.MaxInt32), s[1:]
	}
	if negative {
		n = -n
	}
	return n, s
}

// scale returns f times ten to the exponent; false when that is too large.
func scale(f float64, exponent int) (float64, bool) {
	switch {
	case exponent > 308:
		return 0, false
	case exponent > 0:
		f *= powersOfTen[exponent]
	case exponent < -616:
		f = 0
	case exponent < -308:
		f = f / powersOfTen[-308-exponent] / powersOfTen[308]
	default:
		f /= powersOfTen[-exponent]
	}
	return f, !math.IsInf(f, 0)
}

var powersOfTen = func() (p [309]float64) {
	for i := range p {
		p[i], _ = strconv.ParseFloat("1e"+strconv.Itoa(i), 64)
	}
	return p
}()
