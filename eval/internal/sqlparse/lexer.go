// Package sqlparse cuts SQL into the tokens that the Python library sqlparse (0.5 and 0.6) cuts it into, and finds where
// its first statement ends. Spider's test-suite scorer rewrites both queries by these tokens before it runs them.
//
// Only what decides a rewriting is modelled: token borders, and of the types those in [Kind]. Which words are keywords is
// known only where a keyword moves the end of a statement.
package sqlparse

import (
	"strings"

	"quern/internal/pytext"
)

// Kind is the type of a token, as far as it matters here.
type Kind uint8

// Kinds of token.
const (
	Other       Kind = iota
	Space            // one white space character that is not a line end (T.Whitespace)
	Newline          // a line end; sqlparse counts it apart from Space
	Comment          // from -- or "# " to the end of the line, with it
	Multiline        // /* comment */
	String           // 'text'
	Symbol           // "text"
	Name             // an identifier by its position or its quotes, never a keyword
	Word             // an unquoted word, a keyword if it is in the library's lists
	Create           // CREATE, with OR REPLACE
	Punctuation      //
)

// Token is a piece of the text.
type Token struct {
	Kind Kind
	Text string
}

// Tokens cuts text. The tokens' texts joined are the text.
func Tokens(text string) []Token {
	lx := lexer{src: []rune(text)}
	for lx.pos < len(lx.src) {
		kind, end := lx.next()
		lx.out = append(lx.out, Token{kind, string(lx.src[lx.pos:end])})
		lx.pos = end
	}
	return lx.out
}

type lexer struct {
	src []rune
	pos int
	out []Token
}

// at is the character i places after the current one, 0 behind the end.
func (lx *lexer) at(i int) rune {
	if i += lx.pos; i >= 0 && i < len(lx.src) {
		return lx.src[i]
	}
	return 0
}

// rule looks for one form of token at the current position; 0 means no match, otherwise the token's length.
type rule struct {
	kind  Kind
	match func(lx *lexer) int
}

// rules are tried in this order, which is the library's and decides between them. It is filled in at start-up because the
// rules refer to the lexer.
var rules = []rule{
	{Comment, (*lexer).lineComment},
	{Newline, (*lexer).lineEnd},
	{Space, (*lexer).space},
	{Other, (*lexer).colons},
	{Name, func(lx *lexer) int { return lx.doubled('`') }},
	{Name, func(lx *lexer) int { return lx.doubled('´') }},
	{Other, (*lexer).placeholder},
	{Other, (*lexer).command},
	{Word, func(lx *lexer) int { return lx.phrase(`CASE|IN|VALUES|USING|FROM|AS`) }},
	{Name, (*lexer).variable},
	{Name, (*lexer).nameBeforeDot},
	{Name, (*lexer).nameAfterDot},
	{Name, (*lexer).nameBeforeParen},
	{Other, (*lexer).number},
	{String, func(lx *lexer) int { return lx.quoted('\'') }},
	{Symbol, func(lx *lexer) int { return lx.quoted('"') }},
	{Symbol, (*lexer).oddSymbol},
	{Name, (*lexer).bracketed},
	{Other, (*lexer).join},
	{Word, func(lx *lexer) int { return lx.phrase(`END IF|END LOOP|END WHILE|END FOR|END CASE|END`) }},
	{Other, func(lx *lexer) int { return lx.phrase(`IF NOT EXISTS|IF EXISTS|NOT NULL`) }},
	{Other, func(lx *lexer) int {
		return lx.phrase(`ASC NULLS FIRST|ASC NULLS LAST|ASC|DESC NULLS FIRST|DESC NULLS LAST|DESC|NULLS FIRST|NULLS LAST|UNION ALL`)
	}},
	{Create, func(lx *lexer) int { return lx.phrase(`CREATE OR REPLACE|CREATE`) }},
	{Other, func(lx *lexer) int {
		return lx.phrase(`DOUBLE PRECISION|GROUP BY|ORDER BY|PRIMARY KEY|HANDLER FOR`)
	}},
	{Word, (*lexer).goCount},
	{Other, func(lx *lexer) int {
		return lx.phrase(`LATERAL VIEW EXPLODE|LATERAL VIEW INLINE|LATERAL VIEW PARSE_URL_TUPLE|LATERAL VIEW POSEXPLODE|LATERAL VIEW STACK`)
	}},
	{Other, (*lexer).timeZone},
	{Other, func(lx *lexer) int {
		return lx.phrase(`NOT LIKE|NOT ILIKE|NOT RLIKE|LIKE|ILIKE|RLIKE|NOT REGEXP BINARY|NOT REGEXP|REGEXP BINARY|REGEXP`)
	}},
	{Word, (*lexer).word},
	{Punctuation, func(lx *lexer) int { return lx.oneOf(";:()[],.") }},
	{Other, (*lexer).jsonOperator},
	{Other, func(lx *lexer) int { return lx.run("<>=~!") }},
	{Other, func(lx *lexer) int { return lx.run("+/@#%^&|-") }},
}

func (lx *lexer) next() (Kind, int) {
	if kind, end, ok := lx.span(); ok {
		return kind, end
	}
	for _, r := range rules {
		if n := r.match(lx); n > 0 {
			return r.kind, lx.pos + n
		}
	}
	return Other, lx.pos + 1
}

// span is a /* comment */ or a $tag$ literal $tag$ that is closed; an unclosed one is no span.
func (lx *lexer) span() (Kind, int, bool) {
	switch lx.at(0) {
	case '/':
		if lx.at(1) == '*' {
			open := 2
			if lx.at(2) == '+' { // a hint
				open = 3
			}
			if end := lx.find("*/", lx.pos+open); end >= 0 {
				return Multiline, end, true
			}
		}
	case '$':
		tag := lx.dollarTag()
		before := lx.at(-1)
		if tag == "" || pytext.IsWord(before) || before == '"' || before == '$' {
			return 0, 0, false
		}
		if end := lx.find(tag, lx.pos+len([]rune(tag))); end >= 0 {
			return Other, end, true
		}
	}
	return 0, 0, false
}

// dollarTag is the $tag$ at the current position.
func (lx *lexer) dollarTag() string {
	n := 1
	if r := lx.at(1); isAlpha(r) || r == '_' {
		for n++; pytext.IsWord(lx.at(n)); n++ {
		}
	}
	if lx.at(n) != '$' {
		return ""
	}
	return string(lx.src[lx.pos : lx.pos+n+1])
}

// find returns the position behind the first text at or after from, -1 when there is none.
func (lx *lexer) find(text string, from int) int {
	if from > len(lx.src) {
		return -1
	}
	rest := string(lx.src[from:])
	at := strings.Index(rest, text)
	if at < 0 {
		return -1
	}
	return from + len([]rune(rest[:at+len(text)]))
}

// isAlpha is the library's letter that can begin a name: [A-ZÀ-Ü] without regard to case.
func isAlpha(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= 'À' && r <= 'Ü' || r >= 'à' && r <= 'ü' && r != '÷' ||
		r == 'ſ' || r == '\u212a' // long s and the Kelvin sign: cases of s and k
}

func (lx *lexer) lineComment() int {
	if !(lx.at(0) == '-' && lx.at(1) == '-') && !(lx.at(0) == '#' && lx.at(1) == ' ') {
		return 0
	}
	n := 2
	for lx.pos+n < len(lx.src) {
		if end := lx.lineEndAt(n); end > 0 {
			return n + end
		}
		n++
	}
	return n
}

func (lx *lexer) lineEnd() int { return lx.lineEndAt(0) }

func (lx *lexer) lineEndAt(i int) int {
	switch {
	case lx.at(i) == '\r' && lx.at(i+1) == '\n':
		return 2
	case lx.at(i) == '\r' || lx.at(i) == '\n':
		return 1
	}
	return 0
}

func (lx *lexer) space() int {
	if pytext.IsSpace(lx.at(0)) {
		return 1
	}
	return 0
}

// colons are := and ::; the wildcard is here too, as all three are fixed texts that nothing depends on.
func (lx *lexer) colons() int {
	switch {
	case lx.at(0) == ':' && (lx.at(1) == '=' || lx.at(1) == ':'):
		return 2
	case lx.at(0) == '*':
		return 1
	}
	return 0
}

// doubled is a name in quotes that are doubled inside it.
func (lx *lexer) doubled(quote rune) int {
	if lx.at(0) != quote {
		return 0
	}
	last := 0 // length up to the last quote seen that could close it
	for n := 1; lx.pos+n < len(lx.src); n++ {
		if lx.at(n) != quote {
			continue
		}
		last = n + 1
		if lx.at(n+1) != quote {
			return last
		}
		n++
	}
	return last
}

// quoted is a string in which the quote is written twice or behind a backslash. A backslash need not escape: where the
// string would not end otherwise, the quote behind it does end it.
func (lx *lexer) quoted(quote rune) int {
	if lx.at(0) != quote {
		return 0
	}
	last := 0
	for n := 1; lx.pos+n < len(lx.src); n++ {
		switch {
		case lx.at(n) == '\\' && lx.at(n+1) == quote:
			last = n + 2
			n++
		case lx.at(n) == quote && lx.at(n+1) == quote:
			last = n + 1 // not closed later: then the first of the two closes it
			n++
		case lx.at(n) == quote:
			return n + 1
		}
	}
	return last
}

// oddSymbol is the library's second form of a double-quoted text, for one that the first form cannot close.
func (lx *lexer) oddSymbol() int {
	if lx.at(0) != '"' {
		return 0
	}
	if lx.at(1) == '"' {
		return 2
	}
	for n := 2; lx.at(n-1) != '\n' && lx.pos+n < len(lx.src); n++ {
		if lx.at(n) == '"' && lx.at(n-1) != '\\' {
			return n + 1
		}
	}
	return 0
}

func (lx *lexer) placeholder() int {
	switch r := lx.at(0); {
	case r == '?':
		return 1
	case r == '%':
		n := 1
		if lx.at(1) == '(' && pytext.IsWord(lx.at(2)) {
			for n = 3; pytext.IsWord(lx.at(n)); n++ {
			}
			if lx.at(n) != ')' {
				n = 0
			}
			n++
		}
		if lx.at(n) == 's' || lx.at(n) == 'S' || lx.at(n) == 'ſ' {
			return n + 1
		}
	case (r == '$' || r == ':') && !pytext.IsWord(lx.at(-1)) && pytext.IsWord(lx.at(1)):
		n := 1
		for ; pytext.IsWord(lx.at(n)); n++ {
		}
		return n
	}
	return 0
}

func (lx *lexer) command() int {
	if lx.at(0) != '\\' || !pytext.IsWord(lx.at(1)) {
		return 0
	}
	n := 1
	for ; pytext.IsWord(lx.at(n)); n++ {
	}
	return n
}

// variable is @name, #name or ##name, of at least two characters.
func (lx *lexer) variable() int {
	n := 1
	switch {
	case lx.at(0) == '#' && lx.at(1) == '#':
		n = 2
	case lx.at(0) != '@' && lx.at(0) != '#':
		return 0
	}
	if end := lx.nameAt(n); end > n+1 {
		return end
	}
	return 0
}

// nameAt is the end of the name that begins i places after the current character; i when there is none.
func (lx *lexer) nameAt(i int) int {
	if !isAlpha(lx.at(i)) {
		return i
	}
	for i++; pytext.IsWord(lx.at(i)); i++ {
	}
	return i
}

// nameBeforeDot is a name before a period that does not begin a number. Only a whole name can stand there: one that ends
// in front of a period or of white space before it.
func (lx *lexer) nameBeforeDot() int {
	n := lx.nameAt(0)
	if n == 0 {
		return 0
	}
	i := n
	for ; pytext.IsSpace(lx.at(i)); i++ {
	}
	if lx.at(i) == '.' && !pytext.IsDigit(lx.at(i+1)) {
		return n
	}
	return 0
}

func (lx *lexer) nameAfterDot() int {
	if lx.pos == 0 || lx.at(-1) != '.' {
		return 0
	}
	return lx.nameAt(0)
}

func (lx *lexer) nameBeforeParen() int {
	if n := lx.nameAt(0); n > 0 && lx.at(n) == '(' {
		return n
	}
	return 0
}

// number covers the hexadecimal, exponent, decimal and integer forms. A decimal or integer directly before a letter or an
// underscore gives back digits until none follows.
func (lx *lexer) number() int {
	sign := 0
	if lx.at(0) == '-' {
		sign = 1
	}
	if n := lx.hexadecimal(sign); n > 0 {
		return n
	}
	whole := lx.digits(sign)
	if n := lx.exponent(sign, whole); n > 0 {
		return n
	}
	if n := lx.decimal(sign, whole); n > 0 {
		return n
	}
	if whole == sign {
		return 0
	}
	for end := whole; end > sign; end-- {
		if !startsName(lx.at(end)) {
			return end
		}
	}
	return 0
}

func startsName(r rune) bool { return r == '_' || isAlpha(r) }

func (lx *lexer) digits(i int) int {
	for ; pytext.IsDigit(lx.at(i)); i++ {
	}
	return i
}

func (lx *lexer) hexadecimal(sign int) int {
	if lx.at(sign) != '0' || lx.at(sign+1) != 'x' && lx.at(sign+1) != 'X' {
		return 0
	}
	n := sign + 2
	for r := lx.at(n); pytext.IsDigit(r) || r >= 'a' && r <= 'f' || r >= 'A' && r <= 'F'; r = lx.at(n) {
		n++
	}
	if n == sign+2 {
		return 0
	}
	return n
}

// exponent is digits, perhaps with a fraction, then E and an exponent.
func (lx *lexer) exponent(sign, whole int) int {
	if whole == sign {
		return 0
	}
	mantissa := whole
	if lx.at(whole) == '.' {
		if frac := lx.digits(whole + 1); frac > whole+1 {
			mantissa = frac
		}
	}
	if r := lx.at(mantissa); r != 'e' && r != 'E' {
		return 0
	}
	n := mantissa + 1
	if lx.at(n) == '-' {
		n++
	}
	if end := lx.digits(n); end > n {
		return end
	}
	return 0
}

func (lx *lexer) decimal(sign, whole int) int {
	if lx.at(whole) != '.' {
		return 0
	}
	least := whole + 1 // "5." is a decimal, "." is not
	if whole == sign {
		least++
	}
	for end := lx.digits(whole + 1); end >= least; end-- {
		if !startsName(lx.at(end)) {
			return end
		}
	}
	return 0
}

// bracketed is a [name], unless it follows a word character or a closing bracket and so is an index.
func (lx *lexer) bracketed() int {
	if lx.at(0) != '[' || lx.pos > 0 && (pytext.IsWord(lx.at(-1)) || lx.at(-1) == ']' || lx.at(-1) == ')') {
		return 0
	}
	n := 1
	for lx.pos+n < len(lx.src) && lx.at(n) != '[' && lx.at(n) != ']' {
		n++
	}
	if n == 1 || lx.at(n) != ']' {
		return 0
	}
	return n + 1
}

// join is JOIN with the words that may stand before it.
func (lx *lexer) join() int {
	n := lx.optional(0, "LEFT", "RIGHT", "FULL")
	if end := lx.wordsAt(lx.optional(n, "INNER", "OUTER", "STRAIGHT"), "JOIN"); end > 0 {
		return end
	}
	if end := lx.wordsAt(n, "JOIN"); end > 0 {
		return end
	}
	return lx.wordsAt(lx.optional(0, "CROSS", "NATURAL"), "JOIN")
}

// optional skips one of the words with the white space behind it, if it stands i places ahead.
func (lx *lexer) optional(i int, words ...string) int {
	for _, w := range words {
		end := lx.letters(i, w)
		if end > 0 && pytext.IsSpace(lx.at(end)) {
			for ; pytext.IsSpace(lx.at(end)); end++ {
			}
			return end
		}
	}
	return i
}

// phrase matches the first alternative whose words stand here, with any white space between them, as whole words at the
// end. Alternatives are separated by a bar; among those with one beginning the longest comes first.
func (lx *lexer) phrase(alternatives string) int {
	if !isAlpha(lx.at(0)) {
		return 0
	}
	for alternatives != "" {
		var words string
		words, alternatives, _ = strings.Cut(alternatives, "|")
		if end := lx.wordsAt(0, words); end > 0 {
			return end
		}
	}
	return 0
}

// wordsAt returns the end of the words, separated by single spaces in words, that stand i places ahead; 0 if they do not.
func (lx *lexer) wordsAt(i int, words string) int {
	for {
		word, rest, more := strings.Cut(words, " ")
		if i = lx.letters(i, word); i == 0 {
			return 0
		}
		if !more {
			if pytext.IsWord(lx.at(i)) {
				return 0
			}
			return i
		}
		if !pytext.IsSpace(lx.at(i)) {
			return 0
		}
		for ; pytext.IsSpace(lx.at(i)); i++ {
		}
		words = rest
	}
}

// letters matches an upper-case ASCII word in any case and returns its end; 0 if it is not there.
func (lx *lexer) letters(i int, word string) int {
	for k := 0; k < len(word); k++ {
		r := lx.at(i + k)
		if r >= 'a' && r <= 'z' {
			r -= 'a' - 'A'
		}
		if r != rune(word[k]) && !(r == 'ſ' && word[k] == 'S') && !(r == '\u212a' && word[k] == 'K') {
			return 0
		}
	}
	return i + len(word)
}

// goCount is GO with a count, the batch separator of SQL Server.
func (lx *lexer) goCount() int {
	n := lx.letters(0, "GO")
	if n == 0 || !pytext.IsSpace(lx.at(n)) {
		return 0
	}
	end := lx.digits(n + 1)
	if end == n+1 || pytext.IsWord(lx.at(end)) {
		return 0
	}
	return end
}

// timeZone is AT TIME ZONE 'name'.
func (lx *lexer) timeZone() int {
	i := 0
	for _, word := range []string{"AT", "TIME", "ZONE"} {
		if i = lx.letters(i, word); i == 0 || !pytext.IsSpace(lx.at(i)) {
			return 0
		}
		for ; pytext.IsSpace(lx.at(i)); i++ {
		}
	}
	n := i + 1
	for lx.pos+n < len(lx.src) && lx.at(n) != '\'' {
		n++
	}
	if lx.at(i) != '\'' || n == i+1 || lx.at(n) != '\'' {
		return 0
	}
	return n + 1
}

func (lx *lexer) word() int {
	if !pytext.IsWord(lx.at(0)) {
		return 0
	}
	n := 1
	for r := lx.at(n); pytext.IsWord(r) || r == '$' || r == '#'; r = lx.at(n) {
		n++
	}
	return n
}

func (lx *lexer) oneOf(chars string) int {
	if strings.ContainsRune(chars, lx.at(0)) {
		return 1
	}
	return 0
}

func (lx *lexer) run(chars string) int {
	n := 0
	for lx.pos+n < len(lx.src) && strings.ContainsRune(chars, lx.at(n)) {
		n++
	}
	return n
}

func (lx *lexer) jsonOperator() int {
	for _, op := range []string{"->>", "->", "#>>", "#>", "@>", "<@", "-", "#-"} {
		if lx.letters(0, op) > 0 {
			return len(op)
		}
	}
	return 0
}
