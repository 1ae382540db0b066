package eval

import "strings"

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

// words splits SQL into lower-case words and single other characters; strings and quoted names become one word each, in
// their own case; comments and blanks are left out.
func words(sql string) []string {
	var out []string
	for i := 0; i < len(sql); {
		c := sql[i]
		start := i
		switch {
		case c == '\'' || c == '"' || c == '`' || c == '[':
			i = quotedEnd(sql, i)
			out = append(out, sql[start:i])
		case strings.HasPrefix(sql[i:], "--"):
			i = indexFrom(sql, i, "\n")
		case strings.HasPrefix(sql[i:], "/*"):
			i = indexFrom(sql, i+2, "*/")
		case isWord(c):
			for i < len(sql) && isWord(sql[i]) {
				i++
			}
			out = append(out, strings.ToLower(sql[start:i]))
		default:
			i++
			if !strings.ContainsRune(" \t\n\r\f", rune(c)) {
				out = append(out, string(c))
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
