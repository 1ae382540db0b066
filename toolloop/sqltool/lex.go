package sqltool

import "strings"

// tokenKind is a kind of piece of SQL text.
type tokenKind uint8

const (
	tokenSymbol  tokenKind = iota // one character, or an operator
	tokenName                     // a bare or quoted name; text is without quotes
	tokenString                   // text is the value
	tokenNumber                   // as written
	tokenSpace                    // as written
	tokenComment                  // as written
)

type token struct {
	kind       tokenKind
	text       string
	start, end int // in the SQL
}

// lex splits SQL as SQLite's tokenizer does, as far as names, literals and comments go. It never fails: what is not
// closed ends with the text.
func lex(sql string) (tokens []token) {
	for at := 0; at < len(sql); {
		kind, text, n := lexOne(sql[at:])
		tokens = append(tokens, token{kind, text, at, at + n})
		at += n
	}
	return tokens
}

func lexOne(s string) (kind tokenKind, text string, n int) {
	c := s[0]
	switch {
	case strings.IndexByte(" \t\n\r\f", c) >= 0:
		n = span(s, func(c byte) bool { return strings.IndexByte(" \t\n\r\f", c) >= 0 })
		return tokenSpace, s[:n], n
	case strings.HasPrefix(s, "--"):
		n = len(s)
		if i := strings.IndexByte(s, '\n'); i >= 0 {
			n = i
		}
		return tokenComment, s[:n], n
	case strings.HasPrefix(s, "/*"):
		n = len(s)
		if i := strings.Index(s[2:], "*/"); i >= 0 {
			n = i + 4
		}
		return tokenComment, s[:n], n
	case c == '\'':
		text, n = lexQuoted(s, '\'')
		return tokenString, text, n
	case c == '"' || c == '`':
		text, n = lexQuoted(s, c)
		return tokenName, text, n
	case c == '[':
		if i := strings.IndexByte(s, ']'); i >= 0 {
			return tokenName, s[1:i], i + 1
		}
		return tokenName, s[1:], len(s)
	case isDigit(c) || c == '.' && len(s) > 1 && isDigit(s[1]):
		n = span(s, func(c byte) bool { return isNameByte(c) || c == '.' })
		return tokenNumber, s[:n], n
	case isNameByte(c):
		n = span(s, isNameByte)
		return tokenName, s[:n], n
	}
	for _, op := range []string{"==", "<>", "!=", "<=", ">=", "||"} {
		if strings.HasPrefix(s, op) {
			return tokenSymbol, op, 2
		}
	}
	return tokenSymbol, s[:1], 1
}

// lexQuoted reads a quoted text in which a doubled quote stands for one.
func lexQuoted(s string, quote byte) (text string, n int) {
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		if s[i] != quote {
			b.WriteByte(s[i])
			continue
		}
		if i+1 < len(s) && s[i+1] == quote {
			b.WriteByte(quote)
			i++
			continue
		}
		return b.String(), i + 1
	}
	return b.String(), len(s)
}

func span(s string, in func(byte) bool) int {
	n := 0
	for n < len(s) && in(s[n]) {
		n++
	}
	return n
}

func isDigit(c byte) bool { return '0' <= c && c <= '9' }

func isNameByte(c byte) bool {
	return c == '_' || c == '$' || isDigit(c) || 'a' <= c|0x20 && c|0x20 <= 'z' || c >= 0x80
}

// words returns the tokens that are neither space nor comment.
func words(sql string) (kept []token) {
	for _, t := range lex(sql) {
		if t.kind != tokenSpace && t.kind != tokenComment {
			kept = append(kept, t)
		}
	}
	return kept
}

func quoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteText(text string) string { return "'" + strings.ReplaceAll(text, "'", "''") + "'" }
