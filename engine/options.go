package engine

import (
	"fmt"
	"log/slog"
	"strconv"
)

// GPULayers says how many of a model's layers go to the GPU, counted from the output.
type GPULayers int

const (
	GPUAuto GPULayers = 0  // everything if it fits, else as many layers as fit; 0 layers where there is no GPU
	GPUAll  GPULayers = -1 // everything, or fail
	GPUNone GPULayers = -2 // nothing: run on the CPU
)

// ParseGPULayers reads "auto", "all", "none" or a number of layers ("0" is none).
func ParseGPULayers(s string) (GPULayers, error) {
	switch s {
	case "", "auto":
		return GPUAuto, nil
	case "all":
		return GPUAll, nil
	case "none", "0":
		return GPUNone, nil
	}
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 || n > 1<<16 {
		return 0, fmt.Errorf("GPU layers %q: want auto, all, none or a number", s)
	}
	return GPULayers(n), nil
}

// KVType is the number format of the key/value memory.
type KVType string

const (
	KVF16  KVType = "f16" // the default
	KVF32  KVType = "f32" // for comparison with references that compute in float32
	KVBF16 KVType = "bf16"
	KVQ8_0 KVType = "q8_0" // half the memory of f16; needs flash attention
	KVQ4_0 KVType = "q4_0" // a quarter; costs accuracy; needs flash attention
)

// Switch turns something on or off, or leaves it to the engine.
type Switch int

const (
	Auto Switch = iota // on where it is supported and pays
	On
	Off
)

// LoadOptions are the choices made when a model is loaded. The zero value is the default.
type LoadOptions struct {
	GPULayers GPULayers
	NoMmap    bool // read the weights into memory instead of mapping the file
	VocabOnly bool // vocabulary and metadata only: tokenize and render, but no NewEngine

	// Progress is called during the load with the share done, 0 to 1. It may be nil.
	Progress func(share float64)

	// Engine is the engine that will be made, so that GPUAuto and the memory check leave room for its context.
	Engine EngineOptions
}

// EngineOptions are the choices made when an Engine is made. The zero value is the default: one lane.
type EngineOptions struct {
	// ContextLength is the most tokens (prompt and generation) that one lane can hold; 0 is the length the model was
	// trained with, at most 16384.
	ContextLength int
	// Lanes is how many requests run at once, 1 to 128; 0 is 1. Further requests wait.
	Lanes int
	// Pool is how many tokens all lanes and held prefixes can hold together; 0 is Lanes × ContextLength. A smaller
	// pool saves memory; a lane that finds it full is set back and runs again later.
	Pool int
	// Holders is how many sequences beside the lanes stay in memory for requests that begin with the same tokens;
	// 0 is as many as Lanes and at least 8 (none with SplitKV), -1 none. For hybrid models each costs one recurrent state.
	Holders int
	// Rollback is how many tokens a hybrid model can take back at the end of a sequence, where its architecture
	// supports it; each costs one more recurrent state per sequence. 0 is none. Other models can always take back.
	Rollback int
	// BatchTokens is the most tokens computed in one step (n_batch and n_ubatch); 0 is 512.
	BatchTokens int
	// Threads are the CPU threads for decoding, and PromptThreads those for prompts; 0 is one per CPU allowed here
	// (GOMAXPROCS), one alone for models too small to share, and as many as Threads.
	Threads, PromptThreads int

	KVType         KVType // "" is KVF16
	FlashAttention Switch // the fused attention kernel
	// GraphSampling lets the compute graph itself choose the tokens of greedy requests, so that no logits leave the
	// GPU. Auto is on where the model's output layer lies on a GPU.
	GraphSampling Switch
	// SplitKV gives each sequence its own share of the memory instead of one shared pool. Faster for many lanes that
	// have little in common; a shared prefix is then copied, and Pool does not apply.
	SplitKV bool
	// Deterministic makes batches depend on the requests and not on the clock, so that a run can be repeated to the
	// bit on the same machine; see Engine.Join and Request.Order. Nothing is preempted then.
	Deterministic bool

	// Log gets what the scheduler has to tell (debug level: hits and misses of held prefixes); nil is none.
	Log *slog.Logger

	// Adapters are applied to every request of this engine, each with its scale.
	Adapters []AdapterScale
}
