package pytext

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/text/cases"
	"golang.org/x/text/language"
)

// IsSpace is str.isspace for one character, and \s in a regular expression over str.
func IsSpace(r rune) bool {
	switch {
	case r < 0x80:
		return r == ' ' || r >= '\t' && r <= '\r' || r >= 0x1c && r <= 0x1f
	case r == 0x85, r == 0x2028, r == 0x2029:
		return true
	}
	return unicode.Is(unicode.Zs, r)
}

// IsWord is \w in a regular expression over str: letters, every kind of number, and the underscore. Combining marks are
// not among them.
func IsWord(r rune) bool {
	if r < 0x80 {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	return unicode.IsLetter(r) || unicode.IsNumber(r)
}

// IsDigit is \d in a regular expression over str: the decimal digits of any script.
func IsDigit(r rune) bool {
	if r < 0x80 {
		return r >= '0' && r <= '9'
	}
	return unicode.Is(unicode.Nd, r)
}

// Strip is str.strip().
func Strip(s string) string { return strings.TrimFunc(s, IsSpace) }

// Fields is str.split() without arguments.
func Fields(s string) []string { return strings.FieldsFunc(s, IsSpace) }

// Lower is str.lower(): the full Unicode mapping, with the final sigma.
func Lower(s string) string {
	for i := 0; i < len(s); i++ {
		if s[i] >= utf8.RuneSelf {
			return cases.Lower(language.Und).String(s)
		}
	}
	return strings.ToLower(s)
}

// Lines is what readlines() of a file opened as text returns: "\n", "\r\n" and "\r" all end a line. The lines come
// without their ends.
func Lines(text string) []string {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	lines := strings.Split(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// FloatRepr is repr of a float: the shortest digits that read back as the same number, with an exponent below 1e-4 and
// from 1e16.
func FloatRepr(f float64) string {
	switch {
	case math.IsNaN(f):
		return "nan"
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	}
	if abs := math.Abs(f); abs != 0 && (abs < 1e-4 || abs >= 1e16) {
		return strconv.FormatFloat(f, 'e', -1, 64)
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// BytesRepr is repr of a bytes object.
func BytesRepr(data []byte) string {
	quote := byte('\'')
	if strings.IndexByte(string(data), '\'') >= 0 && strings.IndexByte(string(data), '"') < 0 {
		quote = '"'
	}
	const hex = "0123456789abcdef"
	out := []byte{'b', quote}
	for _, c := range data {
		switch {
		case c == quote || c == '\\':
			out = append(out, '\\', c)
		case c == '\t':
			out = append(out, `\t`...)
		case c == '\n':
			out = append(out, `\n`...)
		case c == '\r':
			out = append(out, `\r`...)
		case c < ' ' || c >= 0x7f:
			out = append(out, '\\', 'x', hex[c>>4], hex[c&15])
		default:
			out = append(out, c)
		}
	}
	return string(append(out, quote))
}

// DecodeIgnore is bytes.decode(errors="ignore"): UTF-8 with every byte dropped that is not part of a valid sequence.
func DecodeIgnore(data []byte) string {
	if utf8.Valid(data) {
		return string(data)
	}
	var out []byte
	for len(data) > 0 {
		r, size := utf8.DecodeRune(data)
		if r != utf8.RuneError || size > 1 {
			out = append(out, data[:size]...)
		}
		data = data[size:]
	}
	return string(out)
}

// ParseFloat is float(s): surrounding white space, digits of any script, single underscores between digits, "inf",
// "infinity" and "nan" in any case. Hexadecimal forms are not numbers.
func ParseFloat(s string) (float64, bool) {
	s = asciiDigits(Strip(s))
	body := strings.ToLower(strings.TrimLeft(s, "+-"))
	if len(s)-len(body) > 1 || strings.HasPrefix(body, "0x") || !underscoresBetweenDigits(body) {
		return 0, false
	}
	if body == "nan" {
		return math.NaN(), true
	}
	f, err := strconv.ParseFloat(strings.ReplaceAll(s, "_", ""), 64)
	if err != nil && !isRange(err) {
		return 0, false
	}
	return f, true // out of range is infinity, as in Python
}

func isRange(err error) bool {
	num, ok := err.(*strconv.NumError)
	return ok && num.Err == strconv.ErrRange
}

func underscoresBetweenDigits(s string) bool {
	for i := 0; i < len(s); i++ {
		if s[i] == '_' && (i == 0 || i == len(s)-1 || !IsDigit(rune(s[i-1])) || !IsDigit(rune(s[i+1]))) {
			return false
		}
	}
	return true
}

// asciiDigits writes the decimal digits of other scripts as 0 to 9.
func asciiDigits(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x80 || !unicode.Is(unicode.Nd, r) {
			return r
		}
		zero := r
		for unicode.Is(unicode.Nd, zero-1) && r-zero < 9 {
			zero--
		}
		return '0' + r - zero
	}, s)
}

// ParseInt is int(s) for numbers that fit in 64 bits: surrounding white space, a sign, digits of any script, single
// underscores between digits.
func ParseInt(s string) (int64, bool) {
	s = asciiDigits(Strip(s))
	body := strings.TrimLeft(s, "+-")
	if len(s)-len(body) > 1 || !underscoresBetweenDigits(body) {
		return 0, false
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(s, "_", ""), 10, 64)
	return n, err == nil || isRange(err)
}
