package llama

// #include <stdbool.h>
// #include <stdint.h>
// #include "shim.h"
import "C"

import (
	"context"
	"log/slog"
	"runtime/cgo"
	"strings"
	"sync/atomic"
)

var logger atomic.Pointer[slog.Logger]

// SetLogger sends llama.cpp's log lines of at least the given level to l; nil silences it, as at the start.
// Loggers that a C function was called from must not call into this package.
func SetLogger(l *slog.Logger, level slog.Level) {
	logger.Store(l)
	if l == nil {
		C.qn_log_level(C.GGML_LOG_LEVEL_CONT + 1)
		return
	}
	C.qn_log_level(ggmlLevel(level))
}

func ggmlLevel(level slog.Level) C.int {
	switch {
	case level <= slog.LevelDebug:
		return C.GGML_LOG_LEVEL_DEBUG
	case level <= slog.LevelInfo:
		return C.GGML_LOG_LEVEL_INFO
	case level <= slog.LevelWarn:
		return C.GGML_LOG_LEVEL_WARN
	default:
		return C.GGML_LOG_LEVEL_ERROR
	}
}

//export quernLog
func quernLog(level C.int, text *C.char) {
	l := logger.Load()
	if l == nil {
		return
	}
	line := strings.TrimRight(C.GoString(text), "\n ")
	if line == "" {
		return
	}
	slogLevel := map[C.int]slog.Level{
		C.GGML_LOG_LEVEL_DEBUG: slog.LevelDebug,
		C.GGML_LOG_LEVEL_INFO:  slog.LevelInfo,
		C.GGML_LOG_LEVEL_WARN:  slog.LevelWarn,
		C.GGML_LOG_LEVEL_ERROR: slog.LevelError,
	}[level]
	l.Log(context.Background(), slogLevel, line, "from", "llama.cpp")
}

//export quernProgress
func quernProgress(handle C.uintptr_t, share C.float) C.bool {
	return C.bool(cgo.Handle(handle).Value().(func(float64) bool)(float64(share)))
}

//export quernTensor
func quernTensor(handle C.uintptr_t, done, total C.int) C.bool {
	return C.bool(cgo.Handle(handle).Value().(func(int, int) bool)(int(done), int(total)))
}
