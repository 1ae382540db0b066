// Package progress shows how far long work is: one line that is redrawn on a terminal, a plain line now and then
// elsewhere. It writes to stderr's writer, never to where results go.
package progress

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

const (
	terminalEvery = 100 * time.Millisecond
	plainEvery    = 10 * time.Second
)

// Line is the progress of one piece of work. Its methods may be called from several goroutines.
type Line struct {
	out      io.Writer
	label    string
	unit     string // "bytes" is written as MB, any other as it is
	terminal bool

	mu    sync.Mutex
	start time.Time
	shown time.Time
	first int64 // what was done already at the first report, left out of the rate
	began bool
}

// New starts a line on out. unit is what is counted: "bytes", "questions", "tensors".
func New(out io.Writer, label, unit string) *Line {
	return &Line{out: out, label: label, unit: unit, terminal: IsTerminal(out), start: time.Now()}
}

// IsTerminal says whether a writer is a terminal that a person looks at.
func IsTerminal(w io.Writer) bool {
	file, ok := w.(*os.File)
	return ok && term.IsTerminal(int(file.Fd()))
}

// Set reports that done of total units are done; total 0 means that it is not known. Notes are appended to the line.
func (l *Line) Set(done, total int64, notes ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	now := time.Now()
	if !l.began {
		l.began, l.first, l.start, l.shown = true, done, now, now
		if !l.terminal {
			return
		}
	}
	every := plainEvery
	if l.terminal {
		every = terminalEvery
	}
	if now.Sub(l.shown) < every {
		return
	}
	l.shown = now
	l.write(l.text(done, total, now.Sub(l.start), notes))
}

// Done ends the line, leaving a last word in its place; "" leaves nothing.
func (l *Line) Done(word string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.terminal {
		fmt.Fprint(l.out, "\r\x1b[K")
	}
	if word != "" {
		fmt.Fprintf(l.out, "%s: %s\n", l.label, word)
	}
}

func (l *Line) write(text string) {
	if l.terminal {
		fmt.Fprintf(l.out, "\r\x1b[K%s", text)
	} else {
		fmt.Fprintln(l.out, text)
	}
}

func (l *Line) text(done, total int64, elapsed time.Duration, notes []string) string {
	var b strings.Builder
	if total > 0 {
		fmt.Fprintf(&b, "%s: %s of %s (%d%%)", l.label, l.number(done), l.amount(total), 100*done/total)
	} else {
		fmt.Fprintf(&b, "%s: %s", l.label, l.amount(done))
	}
	if rate := float64(done-l.first) / elapsed.Seconds(); rate > 0 {
		fmt.Fprintf(&b, ", %s/s", l.rate(rate))
		if total > done {
			left := time.Duration(float64(total-done) / rate * float64(time.Second))
			fmt.Fprintf(&b, ", %s left", left.Round(time.Second))
		}
	}
	for _, note := range notes {
		b.WriteString(", " + note)
	}
	return b.String()
}

// number is an amount without its unit.
func (l *Line) number(n int64) string {
	if l.unit == "bytes" {
		return fmt.Sprintf("%.1f", float64(n)/1e6)
	}
	return fmt.Sprint(n)
}

func (l *Line) amount(n int64) string {
	if l.unit == "bytes" {
		return l.number(n) + " MB"
	}
	return l.number(n) + " " + l.unit
}

func (l *Line) rate(perSecond float64) string {
	if l.unit == "bytes" {
		return fmt.Sprintf("%.1f MB", perSecond/1e6)
	}
	return fmt.Sprintf("%.1f", perSecond)
}
