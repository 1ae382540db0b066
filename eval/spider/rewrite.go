package spider

import (
	"regexp"
	"sort"
	"strings"

	"quern/eval/internal/sqlparse"
	"quern/internal/pytext"
)

// What the test-suite script does to both queries before it runs them (exec_eval.py and parse.py).

// closeOperators puts together comparison operators that were written with a space inside, also within strings.
var closeOperators = strings.NewReplacer("> =", ">=", "< =", "<=", "! =", "!=").Replace

// pySpace is Python's \s inside a bracket expression.
const pySpace = `[\s\x0b\x1c-\x1f\x{85}\p{Z}]*`

var currentYear = regexp.MustCompile(`(?i)YEAR` + pySpace + `\(` + pySpace + `CURDATE` + pySpace + `\(` + pySpace + `\)` + pySpace + `\)` + pySpace)

// replaceYear writes MySQL's YEAR(CURDATE()) as 2020.
func replaceYear(sql string) string {
	if !strings.Contains(sql, "(") {
		return sql
	}
	return currentYear.ReplaceAllString(sql, "2020")
}

// parserLimit and parserDepth are how many tokens in one statement, and parentheses inside each other, the script's SQL
// library accepts.
const (
	parserLimit = 10000
	parserDepth = 100
)

// firstStatement is the first statement of a query as the script's library splits it.
func firstStatement(sql string) ([]sqlparse.Token, *Crash) {
	tokens, ok := sqlparse.FirstStatement(sql)
	if !ok {
		return nil, crash("IndexError", "there is no statement")
	}
	if len(tokens) > parserLimit {
		return nil, crash("SQLParseError", "more than %d tokens", parserLimit)
	}
	depth := 0
	for _, tok := range tokens {
		switch tok.Text {
		case "(":
			depth++
		case ")":
			depth--
		}
		if depth > parserDepth {
			return nil, crash("SQLParseError", "more than %d parentheses inside each other", parserDepth)
		}
	}
	return tokens, nil
}

// removeDistinct cuts a query to its first statement and takes the word DISTINCT out wherever it is a token.
func removeDistinct(sql string) (string, *Crash) {
	if isPlain(sql) {
		return sql, nil
	}
	tokens, failure := firstStatement(sql)
	if failure != nil {
		return "", failure
	}
	var b strings.Builder
	for _, tok := range tokens {
		if len(tok.Text) != len("distinct") || !strings.EqualFold(tok.Text, "distinct") {
			b.WriteString(tok.Text)
		}
	}
	return b.String(), nil
}

// isPlain reports a query that removeDistinct leaves as it is, at a glance: it is short, and has no word to take out and
// nothing at which a statement could end.
func isPlain(sql string) bool {
	if sql == "" || len(sql) > parserLimit || strings.Contains(sql, ";") || pytext.Strip(sql) == "" {
		return false
	}
	upper := strings.ToUpper(sql)
	return !strings.Contains(upper, "DISTINCT") && !strings.Contains(upper, "GO") && strings.Count(sql, "(") <= parserDepth
}

// slot marks the place of a value in a template.
const slot = "valuerare"

// template is a prediction cut into words, with a slot for each value.
type template []string

func (t template) slots() int {
	n := 0
	for _, word := range t {
		if word == slot {
			n++
		}
	}
	return n
}

// fill puts values into the slots, in order.
func (t template) fill(values []string) string {
	words := make([]string, len(t))
	for i, word := range t {
		if word == slot {
			word, values = values[0], values[1:]
		}
		words[i] = word
	}
	return strings.Join(words, " ")
}

// plugValues returns the prediction with its values taken out, and the gold's distinct values in order of their text.
func plugValues(gold, pred string) (t template, values []string, failure *Crash) {
	_, found, failure := extractValues(gold)
	if failure != nil {
		return nil, nil, failure
	}
	t, _, failure = extractValues(pred)
	if failure != nil {
		return nil, nil, failure
	}
	distinct := map[string]bool{}
	for _, value := range found {
		distinct[value] = true
	}
	for value := range distinct {
		values = append(values, value)
	}
	sort.Strings(values)
	return t, values, nil
}

var (
	aliasDot      = regexp.MustCompile(`(T[\p{Nd}]+\.)[\s\x0b\x1c-\x1f\x{85}\p{Z}]`)
	aliasedColumn = regexp.MustCompile(`[Tt]\p{Nd}+\.`)
	floatNumber   = regexp.MustCompile(`[-+]?\p{Nd}*\.\p{Nd}+`)
	integerNumber = regexp.MustCompile(`[^tT]\p{Nd}+`)
)

// extractValues cuts a query into lower-case words with slots for its values: quoted strings, decimals standing alone, and
// integers standing alone. It also returns the values.
func extractValues(sql string) (template, []string, *Crash) {
	sql, failure := spaced(sql)
	if failure != nil {
		return nil, nil, failure
	}
	sql = aliasDot.ReplaceAllString(sql, "$1")
	tokens, failure := firstStatement(sql)
	if failure != nil {
		return nil, nil, failure
	}
	const mark = "VALUERARE"
	var values []string
	for _, tok := range tokens {
		if tok.Kind == sqlparse.String || tok.Kind == sqlparse.Symbol {
			values = append(values, tok.Text)
			sql = strings.ReplaceAll(sql, tok.Text, mark)
		}
	}
	words := pytext.Fields(sql)
	takeNumbers := func(numbers []string) {
		known := map[string]bool{}
		for _, n := range numbers {
			known[pytext.Strip(n)] = true
		}
		for i, word := range words {
			if known[word] {
				values = append(values, word)
				words[i] = mark
			}
		}
	}
	takeNumbers(floatNumber.FindAllString(sql, -1))
	takeNumbers(integerNumber.FindAllString(strings.Join(words, " "), -1))
	return splitAliases(words), values, nil
}

// spaced is a query's first statement without semicolons and tabs, one space between tokens, and without the aliases of
// stars.
func spaced(sql string) (string, *Crash) {
	sql = strings.NewReplacer(";", "", "\t", "").Replace(pytext.Strip(sql))
	tokens, failure := firstStatement(sql)
	if failure != nil {
		return "", failure
	}
	var parts []string
	for _, tok := range tokens {
		if tok.Kind != sqlparse.Space {
			parts = append(parts, tok.Text)
		}
	}
	sql = strings.Join(parts, " ")
	for _, star := range []string{"t1.*", "t2.*", "t3.*", "T1.*", "T2.*", "T3.*"} {
		sql = strings.ReplaceAll(sql, star, "*")
	}
	return sql, nil
}

// splitAliases lower-cases words, and sets the period of t1.column apart.
func splitAliases(words []string) template {
	var out template
	for _, word := range words {
		if aliasedColumn.MatchString(word) {
			out = append(out, pytext.Fields(pytext.Lower(strings.ReplaceAll(word, ".", " . ")))...)
		} else {
			out = append(out, pytext.Lower(word))
		}
	}
	return out
}
