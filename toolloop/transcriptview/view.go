// Package transcriptview shows transcripts to a person: as text for a terminal, as one HTML page without scripts.
package transcriptview

import (
	"bufio"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"strings"
	"time"
	"unicode"

	"quern/toolloop"
)

// WriteText writes transcripts one after the other.
func WriteText(w io.Writer, list []toolloop.Transcript) error {
	b := bufio.NewWriter(w)
	for i := range list {
		if i > 0 {
			fmt.Fprint(b, "\n", strings.Repeat("═", 72), "\n\n")
		}
		writeTranscript(b, &list[i])
	}
	return b.Flush()
}

func writeTranscript(w io.Writer, t *toolloop.Transcript) {
	for _, line := range head(t) {
		fmt.Fprintf(w, "%-10s %s\n", line.Name, printable(line.Value))
	}
	for i, turn := range t.Turns {
		fmt.Fprintf(w, "\n── %s\n", turnTitle(i, turn))
		block(w, "thinks", turn.Thinking)
		block(w, "says", strings.TrimSpace(turn.Content))
		for _, call := range turn.Calls {
			writeCall(w, call)
		}
	}
	fmt.Fprintln(w)
	block(w, string(t.Stop), t.FinalSQL)
	block(w, "error", t.Error)
}

func writeCall(w io.Writer, call toolloop.CallRecord) {
	if call.Dropped {
		block(w, "dropped", call.Name+" "+string(call.Arguments))
		return
	}
	obs := call.Observation
	if obs.SQL != "" {
		block(w, call.Name, obs.SQL)
	} else {
		block(w, call.Name, string(call.Arguments))
	}
	name := "gets"
	if obs.Failure != "" {
		name = string(obs.Failure)
	}
	block(w, name, obs.Text)
	if obs.Full != "" {
		fmt.Fprintf(w, "%12s (the whole result has %d characters)\n", "", len([]rune(obs.Full)))
	}
}

// block writes a text with its name in front, further lines indented below it.
func block(w io.Writer, name, text string) {
	if text == "" {
		return
	}
	for i, line := range strings.Split(text, "\n") {
		if i > 0 {
			name = ""
		}
		fmt.Fprintf(w, "%12s %s\n", name, printable(line))
	}
}

// printable removes what would command a terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) && r != '\t' || unicode.Is(unicode.Bidi_Control, r) {
			return '\ufffd'
		}
		return r
	}, s)
}

type field struct{ Name, Value string }

// head is what stands above the turns.
func head(t *toolloop.Transcript) (lines []field) {
	add := func(name, value string) {
		if value != "" {
			lines = append(lines, field{name, value})
		}
	}
	add("id", t.ID)
	add("question", t.Question)
	add("database", t.Database)
	add("model", t.Model)
	add("adapters", strings.Join(t.Adapters, ", "))
	pack := t.Pack
	if pack != "" && t.PackHash != "" {
		pack += " (" + t.PackHash[:min(12, len(t.PackHash))] + ")"
	}
	add("profile", t.Profile)
	add("prompt", pack)
	add("columns", t.Policy)
	add("tokens", fmt.Sprintf("%d prompt, %d generated", t.PromptTokens, t.GeneratedTokens()))
	add("time", fmt.Sprintf("%s, from %s", rounded(t.Elapsed), t.Started.Format(time.DateTime)))
	for _, note := range t.Notes {
		add("note", note)
	}
	return lines
}

func turnTitle(i int, turn toolloop.Turn) string {
	title := fmt.Sprintf("turn %d: %d tokens", i+1, turn.Tokens)
	if d := turn.Usage.Total; d > 0 {
		title += " in " + rounded(d)
	}
	if turn.Forced {
		title += ", asked for the answer"
	}
	if turn.Finish != toolloop.FinishEOG {
		title += ", " + string(turn.Finish)
	}
	return title
}

func rounded(d time.Duration) string {
	if d > time.Second {
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(100 * time.Microsecond).String()
}

//go:embed page.html
var pageSource string

var page = template.Must(template.New("page").Funcs(template.FuncMap{
	"head": head, "turnTitle": turnTitle, "trim": strings.TrimSpace,
}).Parse(pageSource))

// WriteHTML writes one page that shows all transcripts. It loads nothing and runs nothing, whatever the texts hold.
func WriteHTML(w io.Writer, title string, list []toolloop.Transcript) error {
	return page.Execute(w, struct {
		Title       string
		Transcripts []*toolloop.Transcript
	}{title, pointers(list)})
}

func pointers(list []toolloop.Transcript) []*toolloop.Transcript {
	p := make([]*toolloop.Transcript, len(list))
	for i := range list {
		p[i] = &list[i]
	}
	return p
}
