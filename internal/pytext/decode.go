package pytext

import (
	"errors"
	"fmt"
	"math"
	"math/big"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Limits of Python's own reader: deeper or longer texts raise there as well.
const (
	maxDepth     = 900  // of the interpreter's 1000 frames, what is left to the scanner
	maxIntDigits = 4300 // sys.get_int_max_str_digits
)

// DecodeJSON reads one JSON text as json.loads does: NaN, Infinity and integers of any size are values, the last of
// two equal keys wins, raw control characters in strings are errors, and so is anything after the value.
// Lone surrogate escapes, which Go's strings cannot hold, become U+FFFD.
func DecodeJSON(text string) (any, error) {
	return decode(&decoder{text: text})
}

// DecodeLiteral reads a value as ast.literal_eval does, as far as it is one that JSON has: models write Python's lists
// and dicts too. Strings stand in either quotes, True, False and None are names, a tuple is a list.
func DecodeLiteral(text string) (any, error) {
	return decode(&decoder{text: text, literal: true})
}

func decode(d *decoder) (any, error) {
	d.skipSpace()
	v, err := d.value(0)
	if err != nil {
		return nil, fmt.Errorf("json: %w at byte %d", err, d.pos)
	}
	d.skipSpace()
	if d.pos != len(d.text) {
		return nil, fmt.Errorf("json: more text after the value at byte %d", d.pos)
	}
	return v, nil
}

type decoder struct {
	text    string
	pos     int
	literal bool // Python's form, not JSON's
}

var errValue = errors.New("no value")

func (d *decoder) value(depth int) (any, error) {
	if depth > maxDepth {
		return nil, errors.New("nested too deep")
	}
	if d.pos >= len(d.text) {
		return nil, errValue
	}
	switch c := d.text[d.pos]; {
	case d.quoted():
		return d.str()
	case c == '{':
		return d.object(depth)
	case c == '[':
		return d.array(depth, "]")
	case c == '(' && d.literal:
		return d.array(depth, ")")
	}
	names := constants
	if d.literal {
		names = literalConstants
	}
	for _, c := range names {
		if d.take(c.text) {
			return c.value, nil
		}
	}
	return d.number()
}

type constant struct {
	text  string
	value any
}

var (
	constants = []constant{
		{"null", nil}, {"true", true}, {"false", false},
		{"NaN", math.NaN()}, {"Infinity", math.Inf(1)}, {"-Infinity", math.Inf(-1)},
	}
	literalConstants = []constant{{"None", nil}, {"True", true}, {"False", false}}
)

// quoted says whether a string begins here.
func (d *decoder) quoted() bool {
	return d.pos < len(d.text) && (d.text[d.pos] == '"' || d.literal && d.text[d.pos] == '\'')
}

func (d *decoder) object(depth int) (any, error) {
	d.pos++ // {
	o := &Object{}
	index := map[string]int{}
	d.skipSpace()
	if d.take("}") {
		return o, nil
	}
	for {
		if !d.quoted() {
			return nil, errors.New("no property name")
		}
		key, err := d.str()
		if err != nil {
			return nil, err
		}
		d.skipSpace()
		if !d.take(":") {
			return nil, errors.New("no ':'")
		}
		d.skipSpace()
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		if i, known := index[key]; known {
			o.Members[i].Value = v
		} else {
			index[key] = len(o.Members)
			o.Members = append(o.Members, Member{key, v})
		}
		d.skipSpace()
		if d.take("}") {
			return o, nil
		}
		if !d.take(",") {
			return nil, errors.New("no ',' or '}'")
		}
		d.skipSpace()
		if d.literal && d.take("}") {
			return o, nil
		}
	}
}

func (d *decoder) array(depth int, close string) (any, error) {
	d.pos++ // [ or (
	list := []any{}
	d.skipSpace()
	if d.take(close) {
		return list, nil
	}
	for {
		v, err := d.value(depth + 1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
		d.skipSpace()
		if d.take(close) {
			return list, nil
		}
		if !d.take(",") {
			return nil, errors.New("no ',' or '" + close + "'")
		}
		d.skipSpace()
		if d.literal && d.take(close) {
			return list, nil
		}
	}
}

func (d *decoder) number() (any, error) {
	start := d.pos
	d.take("-")
	switch {
	case d.take("0"):
	case d.digits() == 0:
		d.pos = start
		return nil, errValue
	}
	end := d.pos
	if d.take(".") {
		if d.digits() == 0 {
			d.pos = end
		}
	}
	mantissa := d.pos
	if d.take("e") || d.take("E") {
		if !d.take("+") {
			d.take("-")
		}
		if d.digits() == 0 {
			d.pos = mantissa
		}
	}
	text := d.text[start:d.pos]
	if d.pos > end {
		f, _ := strconv.ParseFloat(text, 64) // out of range: ±Inf, as in Python
		return f, nil
	}
	if len(text) > maxIntDigits {
		return nil, errors.New("number too long")
	}
	n, _ := new(big.Int).SetString(text, 10)
	return n, nil
}

func (d *decoder) digits() (n int) {
	for d.pos < len(d.text) && '0' <= d.text[d.pos] && d.text[d.pos] <= '9' {
		d.pos++
		n++
	}
	return n
}

func (d *decoder) str() (string, error) {
	quote := d.text[d.pos]
	d.pos++
	var b strings.Builder
	for d.pos < len(d.text) {
		c := d.text[d.pos]
		switch {
		case c == quote:
			d.pos++
			return b.String(), nil
		case c < 0x20:
			return "", errors.New("control character in a string")
		case c != '\\':
			b.WriteByte(c)
			d.pos++
		default:
			if err := d.escape(&b); err != nil {
				return "", err
			}
		}
	}
	return "", errors.New("unterminated string")
}

var simpleEscapes = map[byte]byte{
	'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t',
}

func (d *decoder) escape(b *strings.Builder) error {
	if d.pos+1 >= len(d.text) {
		return errors.New("unterminated string")
	}
	c := d.text[d.pos+1]
	if d.literal && c == '\'' {
		b.WriteByte(c)
		d.pos += 2
		return nil
	}
	if plain, ok := simpleEscapes[c]; ok {
		b.WriteByte(plain)
		d.pos += 2
		return nil
	}
	r, ok := d.unicodeEscape()
	if !ok {
		return errors.New("invalid escape")
	}
	if utf16.IsSurrogate(r) {
		here := d.pos
		low, ok := d.unicodeEscape()
		if pair := utf16.DecodeRune(r, low); ok && pair != utf8.RuneError {
			r = pair
		} else {
			d.pos = here // what follows stands for itself
			r = utf8.RuneError
		}
	}
	b.WriteRune(r)
	return nil
}

// unicodeEscape reads \uXXXX and moves past it.
func (d *decoder) unicodeEscape() (rune, bool) {
	if len(d.text)-d.pos < 6 || d.text[d.pos] != '\\' || d.text[d.pos+1] != 'u' {
		return 0, false
	}
	var r rune
	for _, c := range []byte(d.text[d.pos+2 : d.pos+6]) {
		switch {
		case '0' <= c && c <= '9':
			r = r<<4 | rune(c-'0')
		case 'a' <= c|0x20 && c|0x20 <= 'f':
			r = r<<4 | rune(c|0x20-'a'+10)
		default:
			return 0, false
		}
	}
	d.pos += 6
	return r, true
}

func (d *decoder) take(s string) bool {
	if strings.HasPrefix(d.text[d.pos:], s) {
		d.pos += len(s)
		return true
	}
	return false
}

func (d *decoder) skipSpace() {
	for d.pos < len(d.text) && strings.IndexByte(" \t\n\r", d.text[d.pos]) >= 0 {
		d.pos++
	}
}
