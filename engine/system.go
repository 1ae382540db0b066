package engine

import (
	"log/slog"

	"quern/engine/internal/llama"
)

// SystemInfo says what this binary was built with and what it finds on this machine.
type SystemInfo struct {
	LlamaCpp string   // version of llama.cpp that is linked
	Backends []string // "CPU", "CUDA", …
	CPU      []string // instruction sets in use: "AVX2", "FMA", …
	Kernels  []string // what Quern computes on this processor itself: "Q8_0 products", …
	Devices  []Device
}

// Device is something that computes.
type Device struct {
	Name        string // "CPU", "CUDA0"
	Description string // "NVIDIA A100-SXM4-80GB"
	Free, Total uint64 // memory in bytes
	GPU         bool
}

// System reads it. It needs no model; with a CUDA build it starts the driver.
func System() SystemInfo {
	info := SystemInfo{LlamaCpp: LlamaVersion(), Backends: Backends(), CPU: CPUFeatures(), Kernels: Kernels()}
	for _, d := range llama.Devices() {
		info.Devices = append(info.Devices, Device(d))
	}
	return info
}

// Backends are the backends that are compiled in. Unlike System it starts none.
func Backends() []string { return llama.Backends() }

// CPUFeatures are the instruction sets that llama.cpp was compiled to use. Unlike System it starts no backend.
func CPUFeatures() []string { return llama.CPUFeatures() }

// Kernels are what Quern computes on this processor with routines of its own, where ggml's would take several times as
// long; none on processors without AVX512-VNNI. Like CPUFeatures it starts no backend.
func Kernels() []string { return llama.Kernels() }

// LlamaVersion is the version of the llama.cpp that is linked, such as "0.5.0".
func LlamaVersion() string { return llama.Version() }

// SetLogger sends llama.cpp's own log to l, lines of at least the given level; nil silences it, as at the start.
func SetLogger(l *slog.Logger, level slog.Level) { llama.SetLogger(l, level) }
