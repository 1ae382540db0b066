package engine

import (
	"errors"
	"strings"
	"unicode"
)

// The kinds of failure that callers branch on, with errors.Is.
var (
	// ErrBadFile: the file is missing, not GGUF, cut short, corrupt or inconsistent.
	ErrBadFile = errors.New("bad model file")
	// ErrUnsupported: the file is sound, but this build of llama.cpp cannot run it (unknown architecture, tokenizer or type).
	ErrUnsupported = errors.New("unsupported model")
	// ErrOutOfMemory: weights, key/value memory or compute buffers do not fit.
	ErrOutOfMemory = errors.New("out of memory")
	// ErrContextFull: a prompt is longer than a lane's context.
	ErrContextFull = errors.New("context full")
	// ErrClosed: the Model, Engine or Adapter was closed.
	ErrClosed = errors.New("closed")
	// ErrTemplate: the chat template does not parse, or raised an error for this conversation.
	ErrTemplate = errors.New("chat template")
	// ErrDecode: llama.cpp failed in the middle of a step; the requests of that step are lost, the Engine goes on.
	ErrDecode = errors.New("decode failed")
)

// Error says which operation failed, on which file, and why.
type Error struct {
	Op   string // "load", "new engine", "tokenize", …
	Path string // the file concerned, or ""
	Kind error  // one of the kinds above, or nil
	Err  error  // the cause in words
}

// Error is one line without control characters: files can put anything into names that an error quotes.
func (e *Error) Error() string {
	cause := printable(e.Err.Error())
	if e.Path == "" || strings.Contains(cause, e.Path) { // once is enough
		return e.Op + ": " + cause
	}
	return e.Op + " " + printable(e.Path) + ": " + cause
}

func printable(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case unicode.IsControl(r):
			return '?'
		}
		return r
	}, text)
}

// Unwrap gives the kind and the cause, so that errors.Is sees both.
func (e *Error) Unwrap() []error {
	if e.Kind == nil {
		return []error{e.Err}
	}
	return []error{e.Kind, e.Err}
}
