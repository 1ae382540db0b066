package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"strings"
	"unsafe"
)

// Template is a parsed chat template of llama.cpp's Jinja engine. It may be rendered by several goroutines at once.
type Template struct{ c *C.struct_qn_template }

// Part is a piece of a rendered text.
type Part struct {
	Text  string
	Input bool // it came from the marked variables
}

// RaisedError is what a template gave to raise_exception.
type RaisedError string

func (e RaisedError) Error() string { return string(e) }

// ParseTemplate parses a template.
func ParseTemplate(source string) (*Template, error) {
	var msg *C.char
	csource := C.CString(source)
	defer C.free(unsafe.Pointer(csource))
	t := C.qn_template_parse(csource, C.size_t(len(source)), &msg)
	if t == nil {
		if msg == nil {
			return nil, errors.New("out of memory")
		}
		return nil, templateError(msg)
	}
	return &Template{c: t}, nil
}

// Close frees the template.
func (t *Template) Close() {
	if t.c != nil {
		C.qn_template_free(t.c)
		t.c = nil
	}
}

// Render renders with the variables of two JSON objects. Strings of the first are marked as input. now, in seconds
// since 1970, is what strftime_now reads.
func (t *Template) Render(input, plain []byte, now int64) ([]Part, error) {
	cin, cplain := C.CBytes(input), C.CBytes(plain)
	defer C.free(cin)
	defer C.free(cplain)
	var out C.struct_qn_rendered
	msg := C.qn_template_render(t.c, (*C.char)(cin), C.size_t(len(input)), (*C.char)(cplain), C.size_t(len(plain)), C.int64_t(now), &out)
	defer func() {
		C.free(unsafe.Pointer(out.text))
		C.free(unsafe.Pointer(out.parts))
		C.free(unsafe.Pointer(out.raised))
	}()
	if msg != nil {
		err := templateError(msg)
		if out.raised != nil {
			return nil, RaisedError(C.GoString(out.raised))
		}
		return nil, err
	}
	text := string(unsafe.Slice((*byte)(unsafe.Pointer(out.text)), int(out.len)))
	parts, start := make([]Part, 0, int(out.n_parts)), 0
	for _, p := range unsafe.Slice(out.parts, int(out.n_parts)) {
		parts = append(parts, Part{Text: text[start:int(p.end)], Input: bool(p.input)})
		start = int(p.end)
	}
	return parts, nil
}

// templateError frees the engine's message, which quotes the place in the template over several lines, and makes it
// one line.
func templateError(msg *C.char) error {
	defer C.free(unsafe.Pointer(msg))
	return errors.New(oneLine(C.GoString(msg)))
}

// oneLine keeps "Error: …" and the place; the lines between quote the source and point at it.
func oneLine(text string) string {
	var place, cause string
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "While executing"):
			_, place, _ = strings.Cut(strings.TrimSuffix(line, " in source:"), " at ")
		case strings.HasPrefix(line, "Error: "):
			cause = strings.TrimPrefix(line, "Error: ")
		case cause == "" && line != "" && !strings.HasPrefix(line, "---"):
			cause = line
		}
	}
	if place != "" {
		return place + ": " + cause
	}
	return cause
}
