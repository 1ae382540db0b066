package progress

import (
	"strings"
	"testing"
	"time"
)

func TestText(t *testing.T) {
	l := &Line{label: "eval", unit: "questions", first: 10}
	got := l.text(30, 50, 10*time.Second, []string{"71.0 % right"})
	if want := "eval: 30 of 50 questions (60%), 2.0/s, 10s left, 71.0 % right"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	l = &Line{label: "pull", unit: "bytes"}
	if got := l.text(0, 0, 0, nil); got != "pull: 0.0 MB" {
		t.Errorf("got %q", got)
	}
}

func TestPlainOutputStaysQuiet(t *testing.T) {
	var out strings.Builder
	l := New(&out, "pull", "bytes")
	for i := range int64(1000) {
		l.Set(i, 1000)
	}
	l.Done("whole")
	if out.String() != "pull: whole\n" {
		t.Errorf("a short run off a terminal wrote %q", out.String())
	}
}
