// Package nltk splits text into words as NLTK's word_tokenize does for English, which is how Spider's scorer reads SQL.
//
// word_tokenize first cuts the text into sentences (the Punkt method of Kiss and Strunk, 2006), then each sentence into
// words by a fixed list of rewriting rules, a descendant of the Penn Treebank tokenizer (nltk.tokenize.destructive, NLTK
// 3.10). Those rules can be seen in SQL: "cannot" is two words, "1,2" is one, and a period that ends a sentence is a word.
//
// Of the Punkt method only what does not need the trained model is here: abbreviations and collocations of English
// ("st.", "no.") are not known. In SQL a period before white space is a spelling error in any case.
package nltk

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"quern/internal/pytext"
)

// Words is nltk.word_tokenize(text) for a text without straight quotes: Spider's scorer has cut out its strings before, so
// the rules for quotes and for clitics ("n't") have nothing to work on.
func Words(text string) []string {
	var words []string
	for _, sentence := range sentences(text) {
		words = append(words, pytext.Fields(rewrite(sentence))...)
	}
	return words
}

// rewrite applies the tokenizer's rules, each of which puts spaces around what it separates, in their order.
func rewrite(s string) string {
	s = openingQuotes(s)
	s = finalPeriod(s)
	s = commasAndColons(s)
	s = spaceRuns(s, '.', 2)
	s = spaceAround(s, ";@#$%&")
	s = spaceAround(s, "\u2012\u2013\u2014\u2015")
	s = finalPeriodAttached(s)
	s = spaceAround(s, "?!")
	s = spaceAround(s, "*")
	s = spaceAround(s, "[](){}<>")
	s = strings.ReplaceAll(s, "--", " -- ")
	s = spaceAround(s, "»”’")
	return contractions(s + " ")
}

// openingQuotes separates typographic opening quotation marks and runs of backquotes, of which two at a time are one word.
func openingQuotes(s string) string {
	if !strings.ContainsAny(s, "«“‘„`") {
		return s
	}
	s = spaceAround(s, "«“‘„")
	s = spaceRuns(s, '`', 1)
	return strings.ReplaceAll(s, "``", " `` ")
}

// finalPeriod separates the sentence's last period from the word before it, and from closing marks and spaces after it.
func finalPeriod(s string) string {
	body := strings.TrimRightFunc(s, func(r rune) bool { return pytext.IsSpace(r) && r != ' ' })
	dot := len(strings.TrimRight(body, "])}>»”’ ")) - 1
	if dot < 1 || s[dot] != '.' || s[dot-1] == '.' {
		return s
	}
	return s[:dot] + " . " + body[dot+1:] + " "
}

// finalPeriodAttached is the older form of the same rule, which leaves closing marks on the period.
func finalPeriodAttached(s string) string {
	body := strings.TrimRightFunc(s, pytext.IsSpace)
	dot := len(strings.TrimRight(body, "])}>")) - 1
	if dot < 1 || s[dot] != '.' || s[dot-1] == '.' {
		return s
	}
	return s[:dot] + " ." + body[dot+1:] + " "
}

// commasAndColons separates a comma or colon unless a digit follows. The character after it is consumed with it, so of
// two in a row only the first is separated.
func commasAndColons(s string) string {
	if !strings.ContainsAny(s, ",:") {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		if s[i] != ',' && s[i] != ':' {
			b.WriteByte(s[i])
			i++
			continue
		}
		next, size := utf8.DecodeRuneInString(s[i+1:])
		if size == 0 || pytext.IsDigit(next) {
			b.WriteByte(s[i])
			i++
			continue
		}
		b.WriteString(" " + s[i:i+1] + " " + s[i+1:i+1+size])
		i += 1 + size
	}
	s = b.String()
	body, end := s, ""
	if strings.HasSuffix(s, "\n") { // $ also matches before a final newline
		body, end = s[:len(s)-1], "\n"
	}
	if n := len(body); n > 0 && (body[n-1] == ',' || body[n-1] == ':') {
		return body[:n-1] + " " + body[n-1:] + " " + end
	}
	return s
}

// spaceRuns separates each run of at least min characters c.
func spaceRuns(s string, c byte, min int) string {
	if strings.IndexByte(s, c) < 0 {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		end := i
		for end < len(s) && s[end] == c {
			end++
		}
		switch {
		case end-i >= min:
			b.WriteString(" " + s[i:end] + " ")
		case end > i:
			b.WriteString(s[i:end])
		default:
			b.WriteByte(s[i])
			end = i + 1
		}
		i = end
	}
	return b.String()
}

// spaceAround separates every character that is one of chars.
func spaceAround(s, chars string) string {
	if !strings.ContainsAny(s, chars) {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if strings.ContainsRune(chars, r) {
			b.WriteByte(' ')
			b.WriteRune(r)
			b.WriteByte(' ')
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

// contraction is a word that English writes as one and the tokenizer splits in two.
type contraction struct {
	word string
	cut  int // length of the first part
}

var contractionList = []contraction{{"cannot", 3}, {"gimme", 3}, {"gonna", 3}, {"gotta", 3}, {"lemme", 3}, {"wanna", 3}}

// contractions splits the contractions in any case, where they stand as whole words.
func contractions(s string) string {
	lower := asciiLower(s)
	for _, c := range contractionList {
		if strings.Contains(lower, c.word) {
			s = splitContraction(s, c)
			lower = asciiLower(s)
		}
	}
	return s
}

func asciiLower(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'A' && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

func splitContraction(s string, c contraction) string {
	lower := asciiLower(s)
	var b strings.Builder
	from := 0
	for {
		at := strings.Index(lower[from:], c.word)
		if at < 0 {
			b.WriteString(s[from:])
			return b.String()
		}
		at += from
		end := at + len(c.word)
		if !wholeWord(s, at, end) || c.word == "wanna" && !followedBySpace(s, end) {
			b.WriteString(s[from : at+1])
			from = at + 1
			continue
		}
		b.WriteString(s[from:at] + " " + s[at:at+c.cut] + " " + s[at+c.cut:end] + " ")
		from = end
	}
}

// wholeWord reports a word boundary at both ends of s[at:end].
func wholeWord(s string, at, end int) bool {
	before, _ := utf8.DecodeLastRuneInString(s[:at])
	after, _ := utf8.DecodeRuneInString(s[end:])
	return (at == 0 || !pytext.IsWord(before)) && (end == len(s) || !pytext.IsWord(after))
}

func followedBySpace(s string, at int) bool {
	r, size := utf8.DecodeRuneInString(s[at:])
	return size > 0 && pytext.IsSpace(r)
}

// sentences cuts text where a period ends a sentence. Question and exclamation marks end sentences too, but where one does
// cannot be seen in the words, so they are left alone.
func sentences(text string) []string {
	if !strings.Contains(text, ".") {
		return []string{text}
	}
	var out []string
	start := 0
	for i := 0; i < len(text); i++ {
		if text[i] != '.' || i < start {
			continue
		}
		end, next := sentenceEnd(text, i)
		if end < 0 {
			continue
		}
		out = append(out, text[start:end])
		start = next
	}
	return append(out, strings.TrimRightFunc(text[start:], pytext.IsSpace))
}

// sentenceEnd reports where the sentence that the period at i may end stops and where the next begins; -1 when the
// sentence goes on.
func sentenceEnd(text string, i int) (end, next int) {
	rest := text[i+1:]
	word := wordBefore(text[:i])
	if word == "" || strings.HasSuffix(word, ".") || strings.HasPrefix(rest, ".") {
		return -1, -1
	}
	after, _ := utf8.DecodeRuneInString(rest)
	switch {
	case rest != "" && isNonWord(after):
		if !breaksBefore(word, rest) {
			return -1, -1
		}
		next = i + 1
	default:
		follow := strings.TrimLeftFunc(rest, pytext.IsSpace)
		if follow == "" || len(follow) == len(rest) || !breaksBefore(word, follow) {
			return -1, -1
		}
		next = len(text) - len(follow)
	}
	closing := realigned(text[next:])
	if closing == 0 {
		return i + 1, next
	}
	end = next + len(strings.TrimRightFunc(text[next:next+closing], pytext.IsSpace))
	return end, next + closing
}

// isNonWord reports the characters that end a word for the sentence splitter even without white space.
func isNonWord(r rune) bool { return strings.ContainsRune(");}]*:@({[‘’“”«»?!", r) }

// wordBefore is the sentence splitter's word that ends at the end of s.
func wordBefore(s string) string {
	cut := strings.LastIndexFunc(s, func(r rune) bool { return pytext.IsSpace(r) || isNonWord(r) })
	if cut >= 0 {
		_, size := utf8.DecodeRuneInString(s[cut:])
		s = s[cut+size:]
	}
	return strings.TrimLeft(s, "(`{[:;&#*@)}]-,")
}

// breaksBefore decides, without a trained model, whether "word." ends a sentence when next follows: initials do not, and
// numbers do not before a word in lower case or a punctuation mark.
func breaksBefore(word, next string) bool {
	runes := []rune(word)
	if len(runes) == 1 && pytext.IsWord(runes[0]) && !pytext.IsDigit(runes[0]) {
		return false
	}
	if !isNumeric(word) {
		return true
	}
	first, size := utf8.DecodeRuneInString(next)
	if strings.ContainsRune(";:,.!?", first) && (size == len(next) || !isWordContinuation(first, next[size:])) {
		return false
	}
	return !unicode.IsLower(first)
}

// isWordContinuation reports whether a punctuation mark at a word's start goes on into a longer word, as in ".5".
func isWordContinuation(first rune, rest string) bool {
	if strings.ContainsRune(";:,", first) {
		return false
	}
	r, _ := utf8.DecodeRuneInString(rest)
	return rest != "" && !pytext.IsSpace(r) && !isNonWord(r)
}

func isNumeric(word string) bool {
	word = strings.TrimPrefix(word, "-")
	if word != "" && (word[0] == '.' || word[0] == ',') {
		word = word[1:]
	}
	if word == "" || !pytext.IsDigit([]rune(word)[0]) {
		return false
	}
	return strings.IndexFunc(word, func(r rune) bool { return !pytext.IsDigit(r) && r != ',' && r != '.' && r != '-' }) < 0
}

// realigned is the length of the closing quotes and brackets, with the white space after them, that still belong to the
// sentence before.
func realigned(s string) int {
	body := strings.TrimLeft(s, ")]}‘’“”«»")
	if len(body) == len(s) {
		return 0
	}
	follow := strings.TrimLeftFunc(body, pytext.IsSpace)
	if len(follow) == len(body) && body != "" && !strings.HasPrefix(body, "--") {
		return 0
	}
	return len(s) - len(follow)
}
