package openaiapi

import "strings"

const (
	openThink  = "<think>"
	closeThink = "</think>"
	openCall   = "<tool_call>"
)

// splitter divides a growing text into what the model thinks, what it says, and the tool calls at its end. It holds
// back what may turn out to be the beginning of a tag.
type splitter struct {
	thinking bool // inside a think block now
	tools    bool // tool calls are looked for
	held     string
	begun    bool   // something was said, so leading newlines are over
	calls    string // text from the first tool call on
}

// push takes the next piece and returns what can be shown of it.
func (s *splitter) push(text string) (reasoning, content string) {
	if s.calls != "" {
		s.calls += text
		return "", ""
	}
	s.held += text
	for s.held != "" {
		tag := s.nextTag()
		before, after, found := strings.Cut(s.held, tag)
		if !found {
			keep := s.heldBack()
			before, s.held = s.held[:len(s.held)-keep], s.held[len(s.held)-keep:]
		}
		if s.thinking {
			reasoning += before
		} else {
			content += s.said(before)
		}
		if !found {
			return reasoning, content
		}
		switch s.held = after; tag {
		case openThink:
			s.thinking = true
		case closeThink:
			s.thinking = false
		case openCall:
			s.calls, s.held = openCall+after, ""
		}
	}
	return reasoning, content
}

// flush gives what was held back, at the end of the text.
func (s *splitter) flush() (reasoning, content string) {
	text := s.held
	s.held = ""
	if s.thinking {
		return text, ""
	}
	return "", s.said(text)
}

// said drops the newlines before the first words.
func (s *splitter) said(text string) string {
	if !s.begun {
		text = strings.TrimLeft(text, "\r\n")
		s.begun = text != ""
	}
	return text
}

// tags are those that can come next.
func (s *splitter) tags() []string {
	switch {
	case s.thinking:
		return []string{closeThink}
	case s.tools:
		return []string{openThink, openCall}
	default:
		return []string{openThink}
	}
}

// nextTag is the tag that stands first in the held text, or any when none does.
func (s *splitter) nextTag() string {
	best, at := s.tags()[0], len(s.held)
	for _, tag := range s.tags() {
		if i := strings.Index(s.held, tag); i >= 0 && i < at {
			best, at = tag, i
		}
	}
	return best
}

// heldBack is the length of the longest end of the held text that begins a tag.
func (s *splitter) heldBack() int {
	longest := 0
	for _, tag := range s.tags() {
		for n := min(len(tag)-1, len(s.held)); n > longest; n-- {
			if strings.HasSuffix(s.held, tag[:n]) {
				longest = n
			}
		}
	}
	return longest
}
