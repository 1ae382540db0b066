package engine

import (
	"context"

	"quern/engine/internal/llama"
)

// QuantizeOptions say what Quantize writes.
type QuantizeOptions struct {
	Type string // one of QuantizeTypes: "Q4_K_M", "Q8_0", "F16", …; case does not matter
	// Imatrix is an importance matrix (GGUF, or llama.cpp's older .dat format), or "". The I-quants below 3 bits need one.
	Imatrix         string
	Threads         int    // 0 is all
	OutputType      string // tensor type of output.weight, or "" for the type's own choice
	EmbeddingType   string // tensor type of token_embd.weight, or ""
	AllowRequantize bool   // accept input that is quantized already (loses quality twice)
	Pure            bool   // every tensor in the same type
	KeepOutput      bool   // leave output.weight as it is
	// Progress is called with the tensors done so far and in all. It may be nil.
	Progress func(done, total int)
}

// QuantizeTypes are the types that Quantize knows, from small to large.
func QuantizeTypes() []string { return llama.FileTypes() }

// Quantize writes a quantized copy of a GGUF file with llama.cpp's own code. The output appears under its name only
// when it is complete. Ending ctx stops it between two tensors.
func Quantize(ctx context.Context, input, output string, opt QuantizeOptions) error {
	return errUnsupported
}
