// Package llama is a thin binding to llama.cpp: one Go type per C type, one method per C function, no opinions.
//
// Every call that may throw or assert goes through shim.cpp, and arguments that would make llama.cpp abort are checked
// here first and answered with an error. Slices never view C memory beyond the call. Handles have one Close, safe to
// call twice; children (Context, Adapter, Sampler) are closed before their Model.
package llama

// #include <stdlib.h>
// #include "shim.h"
import "C"

import (
	"errors"
	"regexp"
	"strings"
	"sync"
	"unsafe"

	"quern/engine/internal/kernel"
)

// Token is llama_token, an index into the vocabulary.
type Token = int32

var initOnce sync.Once

// Init starts llama.cpp and gives it our kernels. Each entry point calls it; nothing happens at package initialisation.
func Init() {
	initOnce.Do(func() {
		C.qn_init()
		kernel.Register()
	})
}

// Version is the version of the linked llama.cpp (llama_version).
func Version() string { return C.GoString(C.llama_version()) }

var (
	functionPrefix = regexp.MustCompile(`^([A-Za-z_0-9:]+: |error loading model: |ERROR: )*`)
	saysSomething  = regexp.MustCompile(`[A-Za-z]`)
)

// takeError frees a message from C and makes it an error; nil for NULL. llama.cpp logs one failure in several lines,
// of which the first tells the cause, and the others which functions gave up.
func takeError(msg *C.char) error {
	if msg == nil {
		return nil
	}
	defer C.free(unsafe.Pointer(msg))
	for line := range strings.Lines(C.GoString(msg)) {
		if line = strings.TrimSpace(functionPrefix.ReplaceAllString(strings.TrimSpace(line), "")); saysSomething.MatchString(line) {
			return errors.New(line)
		}
	}
	return errors.New("llama.cpp gave no reason")
}

// takeReport splits a report into the buffer sizes that were logged and the error.
func takeReport(r C.struct_qn_report) (log string, err error) {
	if r.log != nil {
		log = C.GoString(r.log)
		C.free(unsafe.Pointer(r.log))
	}
	return log, takeError(r.error)
}
