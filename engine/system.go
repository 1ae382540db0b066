package engine

// SystemInfo says what this binary was built with and what it finds on this machine.
type SystemInfo struct {
	LlamaCpp string   // version of llama.cpp that is linked
	Backends []string // "CPU", "CUDA", …
	CPU      []string // instruction sets in use: "AVX2", "FMA", …
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
func System() SystemInfo { return SystemInfo{} }

// CPUFeatures are the instruction sets that llama.cpp uses here. Unlike System it starts no backend.
func CPUFeatures() []string { return nil }

// LlamaVersion is the version of the llama.cpp that is linked, such as "0.5.0".
func LlamaVersion() string { return "" }
