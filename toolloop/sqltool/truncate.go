package sqltool

import "unicode/utf8"

// Side is the side of a text that a cut keeps or, for Middle, takes from.
type Side string

// The sides, named as verl's tool_response_truncate_side.
const (
	Left   Side = "left"   // keep the beginning
	Right  Side = "right"  // keep the end
	Middle Side = "middle" // keep both ends
)

// Truncate cuts a tool's text to limit code points as verl 0.7.1 does (ToolAgentLoop), which then adds a mark, so that
// the result is longer than limit. With Middle and a limit below 2 the mark precedes the whole text, since there the
// last zero characters of a Python string are all of it.
func Truncate(text string, limit int, side Side) string {
	n := utf8.RuneCountInString(text)
	if n <= limit {
		return text
	}
	const mark = "(truncated)"
	switch side {
	case Left:
		return text[:runeOffset(text, limit)] + "..." + mark
	case Right:
		if limit == 0 {
			return mark + "..." + text
		}
		return mark + "..." + text[runeOffset(text, n-limit):]
	}
	half := limit / 2
	tail := text
	if half > 0 {
		tail = text[runeOffset(text, n-half):]
	}
	return text[:runeOffset(text, half)] + "..." + mark + "..." + tail
}

// runeOffset is the byte offset of the n-th code point.
func runeOffset(s string, n int) int {
	for i := range s {
		if n == 0 {
			return i
		}
		n--
	}
	return len(s)
}
