package toolloop

import "strings"

const (
	thinkOpen  = "<think>"
	thinkClose = "</think>"
)

// splitThinking takes a turn apart into the model's reasoning and what it says. open tells that the prompt has already
// opened the block, as the templates of thinking models do; otherwise only a block that begins the turn is reasoning,
// so that a tag which the model merely quotes hides nothing. A block that is never closed is reasoning to its end.
func splitThinking(text string, open bool) (thinking, rest string) {
	if !open {
		trimmed := strings.TrimLeft(text, " \t\r\n")
		if !strings.HasPrefix(trimmed, thinkOpen) {
			return "", text
		}
		text = trimmed[len(thinkOpen):]
	}
	thinking, rest, _ = strings.Cut(text, thinkClose)
	return strings.TrimSpace(thinking), strings.TrimLeft(rest, "\r\n")
}

// SplitThinking takes a turn apart into the reasoning in the think block that begins it, if one does, and the rest.
func SplitThinking(text string) (thinking, rest string) { return splitThinking(text, false) }

// leavesThinkOpen says whether a prompt ends inside a think block.
func leavesThinkOpen(prompt string) bool {
	return strings.LastIndex(prompt, thinkOpen) > strings.LastIndex(prompt, thinkClose)
}
