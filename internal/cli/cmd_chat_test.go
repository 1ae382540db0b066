package cli

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"quern/sqlguard"
)

// script is a person who types lines; between is called before each.
type script struct {
	lines   []string
	between func(next int)
	at      int
}

func (s *script) Line() (string, error) {
	if s.between != nil {
		s.between(s.at)
	}
	s.at++
	if s.at > len(s.lines) {
		return "", io.EOF
	}
	return s.lines[s.at-1], nil
}

func (*script) Close() error { return nil }

// chatOn is a chat on a database without a model.
func chatOn(t *testing.T, in lineReader) (c *chat, stdout, stderr *bytes.Buffer) {
	t.Helper()
	guard, err := sqlguard.Open(context.Background(), shopDB(t), sqlguard.AskPolicy())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guard.Close() })
	stdout, stderr = &bytes.Buffer{}, &bytes.Buffer{}
	limits := guard.Policy().Limits
	limits.Timeout = time.Hour
	return &chat{desk: &desk{guard: guard, limits: limits}, env: Env{Stdout: stdout, Stderr: stderr}, in: in}, stdout, stderr
}

const endless = ".sql WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n) SELECT count(*) FROM n"

// Ctrl-C ends what runs; the next line is answered as if nothing had been.
func TestChatOutlivesCtrlC(t *testing.T) {
	caught := make(chan os.Signal, 100)
	signal.Notify(caught, os.Interrupt) // so that one which comes too late does not end the test
	defer signal.Stop(caught)
	over := make(chan struct{})
	in := &script{lines: []string{endless, ".sql SELECT 42 AS answer"}, between: func(next int) {
		switch next {
		case 0:
			go func() {
				for {
					select {
					case <-over:
						return
					case <-time.After(20 * time.Millisecond):
						syscall.Kill(os.Getpid(), syscall.SIGINT)
					}
				}
			}()
		case 1:
			over <- struct{}{}
		}
	}}
	c, stdout, stderr := chatOn(t, in)
	if err := c.loop(context.Background()); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(stderr.String(), "Stopped.") || !strings.Contains(stdout.String(), "42") {
		t.Errorf("stdout %q, stderr %q", stdout, stderr)
	}
}

// A chat that waits for a line or works ends with its context.
func TestChatEndsWithItsContext(t *testing.T) {
	read, write := io.Pipe()
	defer write.Close()
	for name, in := range map[string]lineReader{"waiting": newLineReader(Env{Stdin: read}), "working": &script{lines: []string{endless}}} {
		ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
		c, _, _ := chatOn(t, in)
		if err := c.loop(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
		cancel()
	}
}
