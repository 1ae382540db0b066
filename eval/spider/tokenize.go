package spider

import (
	"fmt"
	"strings"

	"quern/eval/internal/nltk"
	"quern/internal/pytext"
)

// Crash is a Python exception with which an official script ends, or that its parser raises.
type Crash struct {
	Exception string // class, such as "AssertionError"
	Reason    string // what led to it, in our words
}

func (c *Crash) Error() string { return c.Exception + ": " + c.Reason }

func crash(exception, format string, args ...any) *Crash {
	return &Crash{exception, fmt.Sprintf(format, args...)}
}

// tokenize is the scripts' view of a query: both kinds of quote are one, strings are whole tokens that keep their case, the
// rest is cut into words as English text and lower-cased, and !=, >=, <= are put together again (process_sql.tokenize).
func tokenize(query string) ([]string, *Crash) {
	text := []rune(strings.ReplaceAll(query, "'", `"`))
	var quotes []int
	for i, r := range text {
		if r == '"' {
			quotes = append(quotes, i)
		}
	}
	if len(quotes)%2 != 0 {
		return nil, crash("AssertionError", "an odd number of quotes")
	}
	stringsByKey := map[string]string{}
	var masked strings.Builder
	from := 0
	for i := 0; i < len(quotes); i += 2 {
		open, end := quotes[i], quotes[i+1]
		key := fmt.Sprintf("__val_%d_%d__", open, end)
		stringsByKey[key] = string(text[open : end+1])
		masked.WriteString(string(text[from:open]) + key)
		from = end + 1
	}
	masked.WriteString(string(text[from:]))

	tokens := nltk.Words(masked.String())
	for i, tok := range tokens {
		tokens[i] = pytext.Lower(tok)
		if value, ok := stringsByKey[tokens[i]]; ok {
			tokens[i] = value
		}
	}
	return joinOperators(tokens), nil
}

// joinOperators joins "=" to a "!", ">" or "<" before it. For an "=" that comes first, the script looks at the last token,
// as Python's index -1 does.
func joinOperators(tokens []string) []string {
	var positions []int
	for i := len(tokens) - 1; i >= 0; i-- {
		if tokens[i] == "=" {
			positions = append(positions, i)
		}
	}
	for _, i := range positions {
		before := i - 1
		if before < 0 {
			before = len(tokens) - 1
		}
		if op := tokens[before]; op == "!" || op == ">" || op == "<" {
			joined := append([]string(nil), tokens[:before]...)
			joined = append(joined, op+"=")
			tokens = append(joined, tokens[i+1:]...)
		}
	}
	return tokens
}
