package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"quern/internal/progress"
	"quern/internal/table"
	"quern/toolloop"
)

// style colours text on a terminal and leaves it alone elsewhere.
type style struct{ on bool }

func styleFor(w io.Writer) style { return style{progress.IsTerminal(w)} }

func (s style) paint(code, text string) string {
	if !s.on || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (s style) dim(text string) string   { return s.paint("2", text) }
func (s style) bold(text string) string  { return s.paint("1", text) }
func (s style) good(text string) string  { return s.paint("32", text) }
func (s style) bad(text string) string   { return s.paint("31", text) }
func (s style) query(text string) string { return s.paint("36", text) }

// steps shows what happens on the way to an answer: on a terminal as it is generated, elsewhere a line for each step.
type steps struct {
	out   io.Writer
	style style
	live  bool // generated text flows
	open  bool // a line of generated text is not ended
}

func newSteps(out io.Writer) *steps {
	return &steps{out: out, style: styleFor(out), live: progress.IsTerminal(out)}
}

// event is a toolloop event handler.
func (s *steps) event(e toolloop.Event) {
	switch e.Kind {
	case toolloop.EventText:
		if s.live {
			s.open = true
			fmt.Fprint(s.out, s.style.dim(plainText(e.Text)))
		}
	case toolloop.EventCall:
		s.endLine()
		fmt.Fprintf(s.out, "  → %s\n", s.style.query(indent(callText(*e.Call), 4)))
	case toolloop.EventObservation:
		text := e.Observation.Text
		mark, paint := "←", s.style.dim
		if e.Observation.Failure != "" {
			mark, paint = "✗", s.style.bad
		}
		fmt.Fprintf(s.out, "  %s %s\n", mark, paint(indent(plainText(text), 4)))
	}
}

func (s *steps) endLine() {
	if s.open {
		s.open = false
		fmt.Fprintln(s.out)
	}
}

// callText is a call's only argument where it has one, its JSON otherwise.
func callText(c toolloop.ToolCall) string {
	if o, ok := c.Arguments.(*toolloop.Object); ok && len(o.Members) == 1 {
		if text, ok := o.Members[0].Value.(string); ok {
			return plainText(text)
		}
	}
	text, err := json.Marshal(c.Arguments)
	if err != nil {
		return c.Name
	}
	return c.Name + " " + plainText(string(text))
}

// indent moves all lines but the first.
func indent(text string, n int) string {
	return strings.ReplaceAll(strings.TrimRight(text, "\n"), "\n", "\n"+strings.Repeat(" ", n))
}

// plainText makes visible what could steer a terminal, and keeps line breaks.
func plainText(text string) string {
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		lines[i] = table.Visible(line)
	}
	return strings.Join(lines, "\n")
}
