package toolloop

import (
	"math"
	"math/big"
	"strconv"
	"strings"

	"quern/internal/pytext"
)

const (
	functionOpen   = "<function="
	functionClose  = "</function>"
	parameterOpen  = "<parameter="
	parameterClose = "</parameter>"
)

// ParseXML finds the calls in a turn of the Qwen3.5 form:
//
//	<tool_call>
//	<function=NAME>
//	<parameter=KEY>
//	value
//	</parameter>
//	</function>
//	</tool_call>
//
// It agrees with what the parsers of verl, vLLM and SGLang have in common, closing tags that are missing included: one
// newline at either end of a value is dropped, nothing else is trimmed or decoded, and a value is converted to the type
// that the tool's schema declares where it can be. Unlike theirs it keeps the tags of this syntax where they are text
// inside a value (SELECT '</parameter>'): a tag ends a value only where the syntax can go on after it.
// content is the text outside <tool_call> blocks.
func ParseXML(text string, tools []Definition) (content string, calls []ToolCall) {
	p := xmlParser{text: text, tools: tools}
	var outside strings.Builder
	for {
		before, found := p.until(toolCallOpen)
		outside.WriteString(before)
		if !found {
			return outside.String(), p.calls
		}
		p.block()
	}
}

type xmlParser struct {
	text  string // what is still to be read
	tools []Definition
	calls []ToolCall
}

// until moves past the next tag and returns what stood before it: all of the rest when there is none.
func (p *xmlParser) until(tag string) (before string, found bool) {
	before, p.text, found = strings.Cut(p.text, tag)
	return before, found
}

// block reads from behind <tool_call> to behind its </tool_call>, or to the end of the text.
func (p *xmlParser) block() {
	for {
		switch tag, at := firstTag(p.text, functionOpen, toolCallClose); tag {
		case functionOpen:
			p.text = p.text[at+len(tag):]
			p.function()
		case toolCallClose:
			p.text = p.text[at+len(tag):]
			return
		default:
			p.text = ""
			return
		}
	}
}

// function reads from behind <function= to behind </function>; where that is missing, to the end of the block.
func (p *xmlParser) function() {
	name, found := p.until(">")
	if !found {
		return // cut inside the name: no call
	}
	args := &Object{}
	types := parameterTypes(p.tools, name)
	for {
		tag, at := firstTag(p.text, parameterOpen, functionClose, toolCallClose)
		if tag != parameterOpen {
			if tag == functionClose {
				p.text = p.text[at+len(tag):]
			}
			p.calls = append(p.calls, ToolCall{Name: name, Arguments: args})
			return
		}
		p.text = p.text[at+len(tag):]
		key, found := p.until(">")
		if !found {
			continue // cut inside the key; the call stands with what it has
		}
		args.Set(key, convertParameter(p.value(), types[key]))
	}
}

// value reads a parameter's value and moves past its </parameter>, if it has one.
func (p *xmlParser) value() string {
	end, next := valueEnd(p.text)
	v := p.text[:end]
	p.text = p.text[next:]
	return strings.TrimSuffix(strings.TrimPrefix(v, "\n"), "\n")
}

// valueEnd finds where the value at the start of text ends and where reading goes on: behind its </parameter>, or at
// the tag that can only come after it. A tag inside an SQL literal is followed by the rest of the literal, so what
// follows a tag tells whether it is meant; and so does a line of its own.
func valueEnd(text string) (end, next int) {
	for at := 0; ; at++ {
		i := strings.IndexByte(text[at:], '<')
		if i < 0 {
			return closeOpen(text, len(text))
		}
		at += i
		tail := text[at:]
		before := strings.TrimRight(text[:at], " \t")
		beginsLine := before == "" || strings.HasSuffix(before, "\n")
		switch {
		case strings.HasPrefix(tail, parameterClose):
			if beginsLine || continues(tail[len(parameterClose):], parameterOpen, functionClose, toolCallClose) {
				return at, at + len(parameterClose)
			}
		case strings.HasPrefix(tail, functionClose):
			if beginsLine || continues(tail[len(functionClose):], toolCallClose, functionOpen) {
				return closeOpen(text, at)
			}
		case strings.HasPrefix(tail, toolCallClose):
			if beginsLine || continues(tail[len(toolCallClose):], toolCallOpen) {
				return closeOpen(text, at)
			}
		case strings.HasPrefix(tail, parameterOpen):
			if beginsLine {
				return closeOpen(text, at)
			}
		}
	}
}

// closeOpen ends a value whose </parameter> was not recognised: at the last one there is, else at the tag that follows.
func closeOpen(text string, at int) (end, next int) {
	if i := strings.LastIndex(text[:at], parameterClose); i >= 0 {
		return i, i + len(parameterClose)
	}
	return at, at
}

// continues says whether text, after white space, is at its end or goes on with one of the tags or the start of one.
func continues(text string, tags ...string) bool {
	text = strings.TrimLeft(text, " \t\r\n")
	for _, tag := range tags {
		if strings.HasPrefix(text, tag) || strings.HasPrefix(tag, text) {
			return true
		}
	}
	return false
}

// firstTag returns the tag that comes first in text, and where.
func firstTag(text string, tags ...string) (tag string, at int) {
	at = len(text)
	for _, t := range tags {
		if i := strings.Index(text, t); i >= 0 && i < at {
			tag, at = t, i
		}
	}
	return tag, at
}

// parameterTypes returns the declared type of each parameter of a tool; none for a tool that is not there.
func parameterTypes(tools []Definition, name string) map[string]string {
	for _, tool := range tools {
		if tool.Name == name {
			return tool.parameterTypes()
		}
	}
	return nil
}

// convertParameter gives a value the type that is declared for it; what cannot be converted stays text.
func convertParameter(text, declared string) any {
	trimmed := strings.TrimSpace(text)
	if strings.EqualFold(trimmed, "null") && declared != "" && declared != "string" {
		return nil
	}
	switch declared {
	case "integer":
		if n, ok := new(big.Int).SetString(trimmed, 10); ok {
			return n
		}
	case "number":
		if n, ok := new(big.Int).SetString(trimmed, 10); ok {
			return n
		}
		if f, err := strconv.ParseFloat(trimmed, 64); err == nil && !math.IsInf(f, 0) && !math.IsNaN(f) {
			return f
		}
	case "boolean":
		return strings.EqualFold(trimmed, "true")
	case "array", "object":
		if v, err := pytext.DecodeJSON(trimmed); err == nil {
			return v
		}
		if v, err := pytext.DecodeLiteral(trimmed); err == nil {
			return v
		}
	}
	return text
}

// formatXML writes a call as the model is trained to, for servers that take calls apart.
func formatXML(c ToolCall) string {
	var b strings.Builder
	b.WriteString(toolCallOpen + "\n" + functionOpen + c.Name + ">\n")
	if args, ok := c.Arguments.(*Object); ok {
		for _, m := range args.Members {
			b.WriteString(parameterOpen + m.Key + ">\n" + xmlValue(m.Value) + "\n" + parameterClose + "\n")
		}
	}
	b.WriteString(functionClose + "\n" + toolCallClose)
	return b.String()
}

// xmlValue is how the template prints a value: text as it is, lists and objects as JSON, the rest by str().
func xmlValue(v any) string {
	switch v := v.(type) {
	case string:
		return v
	case []any, *Object:
		return pytext.JSON(v)
	}
	return pytext.Repr(v)
}
