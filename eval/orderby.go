package eval

import (
	"fmt"
	"strings"
)

// Ordered reports whether a query asks for an order of its rows: its outermost level, outside parentheses, strings and
// comments, has ORDER BY.
func Ordered(sql string) bool {
	depth, afterOrder := 0, false
	for _, word := range words(sql) {
		switch word {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth == 0 && afterOrder && word == "by" {
			return true
		}
		afterOrder = depth == 0 && word == "order"
	}
	return false
}

// tieBreaks are a query's variants that order rows which an ORDER BY before a LIMIT leaves equal: by their output
// columns upwards, and downwards. Where such rows stand on both sides of the limit the two give other rows. ok is false
// when nothing is ordered and limited. columns is how many the outermost level returns; of inner levels the first is used.
func tieBreaks(sql string, columns int) (up, down string, ok bool) {
	var a, b strings.Builder
	done, ordered := 0, []bool{false} // ordered: whether ORDER BY came, by level of parentheses
	var before string
	for _, l := range lexemes(sql) {
		depth := len(ordered) - 1
		switch {
		case l.text == "(":
			ordered = append(ordered, false)
		case l.text == ")" && depth > 0:
			ordered = ordered[:depth]
		case l.text == "by" && before == "order":
			ordered[depth] = true
		case l.text == "limit" && ordered[depth]:
			keys := columns
			if depth > 0 {
				keys = 1
			}
			a.WriteString(sql[done:l.start])
			b.WriteString(sql[done:l.start])
			for k := 1; k <= keys; k++ {
				fmt.Fprintf(&a, ", %d ASC", k)
				fmt.Fprintf(&b, ", %d DESC", k)
			}
			a.WriteByte(' ')
			b.WriteByte(' ')
			done, ordered[depth], ok = l.start, false, true
		}
		before = l.text
	}
	return a.String() + sql[done:], b.String() + sql[done:], ok
}

// words are the texts of a statement's lexemes.
func words(sql string) []string {
	var out []string
	for _, l := range lexemes(sql) {
		out = append(out, l.text)
	}
	return out
}

// lexeme is a word of SQL with its place.
type lexeme struct {
	text  string
	start int
}

// lexemes splits SQL into lower-case words and single other characters; strings and quoted names become one word each, in
// their own case; comments and blanks are left out.
func lexemes(sql string) []lexeme {
	var out []lexeme
	for i := 0; i < len(sql); {
		c := sql[i]
		start := i
		switch {
		case c == '\'' || c == '"' || c == '`' || c == '[':
			i = quotedEnd(sql, i)
			out = append(out, lexeme{sql[start:i], start})
		case strings.HasPrefix(sql[i:], "--"):
			i = indexFrom(sql, i, "\n")
		case strings.HasPrefix(sql[i:], "/*"):
			i = indexFrom(sql, i+2, "*/")
		case isWord(c):
			for i < len(sql) && isWord(sql[i]) {
				i++
			}
			out = append(out, lexeme{strings.ToLower(sql[start:i]), start})
		default:
			i++
			if !strings.ContainsRune(" \t\n\r\f", rune(c)) {
				out = append(out, lexeme{string(c), start})
			}
		}
	}
	return out
}

func isWord(c byte) bool {
	return c == '_' || c == '$' || c >= 0x80 || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// quotedEnd is the position after the string or quoted name that starts at i; a doubled quote belongs to it.
func quotedEnd(sql string, i int) int {
	quote := sql[i]
	if quote == '[' {
		return indexFrom(sql, i, "]")
	}
	for i++; i < len(sql); i++ {
		if sql[i] != quote {
			continue
		}
		if i+1 < len(sql) && sql[i+1] == quote {
			i++
			continue
		}
		return i + 1
	}
	return len(sql)
}

// indexFrom is the position after the next occurrence of end, or the text's end.
func indexFrom(sql string, i int, end string) int {
	if i > len(sql) {
		return len(sql)
	}
	if n := strings.Index(sql[i:], end); n >= 0 {
		return i + n + len(end)
	}
	return len(sql)
}

// SameText reports whether two statements are the same but for white space, comments, the case of words and a final
// semicolon.
func SameText(a, b string) bool {
	x, y := trimSemicolon(words(a)), trimSemicolon(words(b))
	if len(x) != len(y) {
		return false
	}
	for i := range x {
		if x[i] != y[i] {
			return false
		}
	}
	return true
}

func trimSemicolon(words []string) []string {
	for len(words) > 0 && words[len(words)-1] == ";" {
		words = words[:len(words)-1]
	}
	return words
}
