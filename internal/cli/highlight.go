package cli

import (
	"regexp"
	"strings"
)

var sqlWord = regexp.MustCompile(`'(?:[^']|'')*'?|"(?:[^"]|"")*"?|[A-Za-z_]\w*`)

var sqlKeywords = func() map[string]bool {
	set := map[string]bool{}
	for _, w := range strings.Fields(`select from where group by order having limit offset join left inner cross outer natural on using as and
		or not in is null like glob between exists union all except intersect distinct case when then else end with recursive asc desc
		cast over partition values`) {
		set[w] = true
	}
	return set
}()

// highlight colours keywords and strings of a statement on a terminal.
func (s style) highlight(sql string) string {
	if !s.on {
		return sql
	}
	return sqlWord.ReplaceAllStringFunc(sql, func(word string) string {
		switch {
		case word[0] == '\'':
			return s.good(word)
		case sqlKeywords[strings.ToLower(word)]:
			return s.bold(word)
		}
		return word
	})
}
