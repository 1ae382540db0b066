package toolloop

import (
	"regexp"
	"strings"

	"quern/internal/pytext"
)

const (
	toolCallOpen  = "<tool_call>"
	toolCallClose = "</tool_call>"
)

var hermesBlock = regexp.MustCompile(`(?s)` + toolCallOpen + `(.*?)` + toolCallClose)

// ParseHermes finds the JSON calls in a turn as verl 0.7.1 does (HermesToolParser): whatever stands between
// <tool_call> and the nearest </tool_call> has to be one JSON object with a string "name" and "arguments" of any kind.
// A block that is none is skipped, the others count. Nothing is a call without its closing tag.
// content is the text without the blocks.
func ParseHermes(text string) (content string, calls []ToolCall) {
	if !strings.Contains(text, toolCallOpen) || !strings.Contains(text, toolCallClose) {
		return text, nil
	}
	for _, block := range hermesBlock.FindAllStringSubmatch(text, -1) {
		if call, ok := hermesCall(block[1]); ok {
			calls = append(calls, call)
		}
	}
	return hermesBlock.ReplaceAllLiteralString(text, ""), calls
}

func hermesCall(body string) (ToolCall, bool) {
	v, err := pytext.DecodeJSON(body)
	if err != nil {
		return ToolCall{}, false
	}
	o, ok := v.(*Object)
	if !ok {
		return ToolCall{}, false
	}
	name, _ := o.Get("name")
	arguments, hasArguments := o.Get("arguments")
	text, isText := name.(string)
	return ToolCall{Name: text, Arguments: arguments}, isText && hasArguments
}

// formatHermes writes a call as the model is trained to, for servers that take calls apart.
func formatHermes(c ToolCall) string {
	return toolCallOpen + "\n{\"name\": " + pytext.JSON(c.Name) + ", \"arguments\": " + pytext.JSON(c.Arguments) + "}\n" + toolCallClose
}
