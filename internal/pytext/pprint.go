package pytext

import (
	"strings"
	"unicode/utf8"
)

// Pprint is pprint.pformat(v, width=width, sort_dicts=False): repr where it fits, else one element a line, with long
// strings broken at white space.
func Pprint(v any, width int) string {
	p := printer{width: width}
	p.format(v, 0, 0, 0)
	return p.String()
}

type printer struct {
	strings.Builder
	width int
}

// format writes v from column indent on; allowance is the room to keep for the brackets that close after it.
func (p *printer) format(v any, indent, allowance, level int) {
	rep := Repr(v)
	if runes(rep) <= p.width-indent-allowance {
		p.WriteString(rep)
		return
	}
	switch v := v.(type) {
	case *Object:
		p.WriteByte('{')
		p.object(v, indent+1, allowance+1, level+1)
		p.WriteByte('}')
	case []any:
		p.WriteByte('[')
		p.list(v, indent+1, allowance+1, level+1)
		p.WriteByte(']')
	case string:
		p.str(v, indent, allowance, level+1)
	default:
		p.WriteString(rep)
	}
}

func (p *printer) object(o *Object, indent, allowance, level int) {
	for i, m := range o.Members {
		if i > 0 {
			p.newline(",", indent)
		}
		key := StringRepr(m.Key)
		p.WriteString(key + ": ")
		p.format(m.Value, indent+runes(key)+2, closing(i, len(o.Members), allowance), level)
	}
}

func (p *printer) list(l []any, indent, allowance, level int) {
	for i, e := range l {
		if i > 0 {
			p.newline(",", indent)
		}
		p.format(e, indent, closing(i, len(l), allowance), level)
	}
}

// closing is the room after element i of n: the closing brackets for the last one, a comma for the others.
func closing(i, n, allowance int) int {
	if i == n-1 {
		return allowance
	}
	return 1
}

func (p *printer) str(s string, indent, allowance, level int) {
	if s == "" {
		p.WriteString("''")
		return
	}
	if level == 1 { // the outermost value gets parentheses when it takes several lines
		indent++
		allowance++
	}
	chunks := breakString(s, p.width-indent, allowance)
	if len(chunks) == 1 {
		// As there: what is written is the last line's repr, which is the only one.
		p.WriteString(StringRepr(s))
		return
	}
	if level == 1 {
		p.WriteByte('(')
	}
	for i, c := range chunks {
		if i > 0 {
			p.newline("", indent)
		}
		p.WriteString(c)
	}
	if level == 1 {
		p.WriteByte(')')
	}
}

// breakString gives the reprs of the pieces of s that are at most width characters long, the last one less allowance.
func breakString(s string, width, allowance int) (chunks []string) {
	lines := SplitLines(s)
	for i, line := range lines {
		lastLine := i == len(lines)-1
		room := width
		if lastLine {
			room -= allowance
		}
		if rep := StringRepr(line); runes(rep) <= room {
			chunks = append(chunks, rep)
			continue
		}
		words := splitWords(line)
		current := ""
		room = width
		for j, word := range words {
			if lastLine && j == len(words)-1 {
				room -= allowance
			}
			if runes(StringRepr(current+word)) <= room {
				current += word
				continue
			}
			if current != "" {
				chunks = append(chunks, StringRepr(current))
			}
			current = word
		}
		if current != "" {
			chunks = append(chunks, StringRepr(current))
		}
	}
	return chunks
}

func (p *printer) newline(before string, indent int) {
	p.WriteString(before + "\n" + strings.Repeat(" ", indent))
}

// SplitLines is str.splitlines(keepends=True).
func SplitLines(s string) (lines []string) {
	for s != "" {
		i := strings.IndexFunc(s, isLineBreak)
		if i < 0 {
			return append(lines, s)
		}
		_, n := utf8.DecodeRuneInString(s[i:])
		if strings.HasPrefix(s[i:], "\r\n") {
			n = 2
		}
		lines = append(lines, s[:i+n])
		s = s[i+n:]
	}
	return lines
}

func isLineBreak(r rune) bool {
	return '\n' <= r && r <= '\r' || 0x1c <= r && r <= 0x1e || r == 0x85 || r == 0x2028 || r == 0x2029
}

// splitWords cuts after each run of white space.
func splitWords(s string) (words []string) {
	for s != "" {
		end := strings.IndexFunc(s, IsSpace)
		if end < 0 {
			return append(words, s)
		}
		after := strings.IndexFunc(s[end:], func(r rune) bool { return !IsSpace(r) })
		if after < 0 {
			return append(words, s)
		}
		words = append(words, s[:end+after])
		s = s[end+after:]
	}
	return words
}

func runes(s string) int { return utf8.RuneCountInString(s) }
