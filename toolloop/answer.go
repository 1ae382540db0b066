package toolloop

import (
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"quern/internal/pytext"
)

var (
	sqlFence       = regexp.MustCompile("(?is)```sql(.*?)```")
	statementStart = regexp.MustCompile(`(?im)^[ \t]*(?:SELECT|WITH)\b`)
	blankLine      = regexp.MustCompile(`\n[ \t\r\f\v]*\n`)
	markup         = regexp.MustCompile(`<[/|A-Za-z]`)
)

// OumiFinalSQL takes the answer out of a whole rollout as the reward of the published hermes model does (Oumi,
// extraction of the final SQL): the last closed ```sql fence; without one the last statement that begins a line, up to
// the end of the text; without one the last line that is not empty. The answer may be empty, and need not be SQL.
func OumiFinalSQL(text string) string {
	if fences := sqlFence.FindAllStringSubmatch(text, -1); fences != nil {
		return pytext.Strip(fences[len(fences)-1][1])
	}
	if start, ok := lastStatement(text); ok {
		return pytext.Strip(text[start:])
	}
	lines := pytext.SplitLines(pytext.Strip(text))
	if len(lines) == 0 {
		return ""
	}
	return pytext.Strip(lines[len(lines)-1])
}

// lastStatement finds the last line that begins with SELECT or WITH and walks back over earlier ones as long as they
// can belong to the same statement.
func lastStatement(text string) (start int, ok bool) {
	var starts []int
	for _, m := range statementStart.FindAllStringIndex(text, -1) {
		if next, _ := utf8.DecodeRuneInString(text[m[1]:]); !isWordRune(next) {
			starts = append(starts, m[0])
		}
	}
	if len(starts) == 0 {
		return 0, false
	}
	last := len(starts) - 1
	start = starts[last]
	for i := last - 1; i >= 0; i-- {
		between := text[starts[i]:start]
		if strings.Contains(between, ";") || blankLine.MatchString(between) || markup.MatchString(between) {
			break
		}
		start = starts[i]
	}
	return start, true
}

func isWordRune(r rune) bool {
	return r != utf8.RuneError && (unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_')
}

// TurnSQL takes the SQL out of one turn in which the model answers: the last fence that holds a query, whatever it is
// labelled and whether or not it is closed; without any fence, the query that the text ends with. "" when there is none.
func TurnSQL(text string) string {
	fences := anyFence.FindAllStringSubmatch(text, -1)
	for i := len(fences) - 1; i >= 0; i-- {
		if sql := strings.TrimSpace(fences[i][1]); isQuery(sql) {
			return sql
		}
	}
	if len(fences) > 0 {
		return ""
	}
	sql := strings.TrimSpace(answerLabel.ReplaceAllString(text, ""))
	if !isQuery(sql) {
		start, ok := lastStatement(text)
		if !ok {
			return ""
		}
		sql = strings.TrimSpace(text[start:])
	}
	if end := proseAfter.FindStringIndex(sql); end != nil {
		sql = strings.TrimSpace(sql[:end[0]+1])
	}
	if !isQuery(sql) {
		return ""
	}
	return sql
}

// isQuery says whether text begins as a statement that reads.
func isQuery(text string) bool { return queryStart.MatchString(text) }

const sqlName = "(?:\\w+|\"[^\"]*\"|`[^`]*`|\\[[^\\]]*\\])"

var (
	anyFence    = regexp.MustCompile("(?s)```(?:[ \t]*[A-Za-z0-9_+-]*[ \t]*\r?\n|(?i:sql|sqlite)\\b)(.*?)(?:```|$)")
	answerLabel = regexp.MustCompile(`(?i)^\s*(?:sql ?query|final sql|sql|query|answer)\s*:\s*`)
	queryStart  = regexp.MustCompile(`(?i)^(?:\s|--[^\n]*\n|/\*(?s:.*?)\*/|\()*(?:SELECT\b|VALUES\s*\(|WITH\s+(?:RECURSIVE\s+)?` + sqlName + `\s*(?:\([^)]*\))?\s*AS\b)`)
	// proseAfter is where an unfenced statement ends: its semicolon at the end of a line, or a blank line.
	proseAfter = regexp.MustCompile(`;[ \t]*\r?\n|\n[ \t\r]*\n`)
)
