package engine

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"strings"

	"quern/engine/internal/llama"
	"quern/gguf"
	"quern/internal/atomicfile"
	"quern/internal/binread"
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
// when it is complete. Ending ctx stops it between two tensors; the error is then ctx.Err().
func Quantize(ctx context.Context, input, output string, opt QuantizeOptions) error {
	fail := func(kind, err error) error { return &Error{Op: "quantize", Path: input, Kind: kind, Err: err} }
	if _, err := readHeader(input, true); err != nil {
		return fail(kindOf(err, ErrBadFile), err)
	}
	imatrix, err := readImatrix(opt.Imatrix)
	if err != nil {
		return fail(ErrBadFile, err)
	}
	out, err := atomicfile.Create(output)
	if err != nil {
		return fail(nil, err)
	}
	defer out.Discard()
	err = llama.Quantize(input, out.Name(), llama.QuantizeParams{
		Type: opt.Type, Threads: opt.Threads, OutputType: opt.OutputType, EmbeddingType: opt.EmbeddingType,
		AllowRequantize: opt.AllowRequantize, Pure: opt.Pure, KeepOutput: opt.KeepOutput, Imatrix: imatrix,
		Progress: func(done, total int) bool {
			if opt.Progress != nil {
				opt.Progress(done, total)
			}
			return ctx.Err() == nil
		},
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return fail(kindOf(err, nil), err)
	}
	return out.Commit()
}

// readImatrix reads the importance of each tensor's columns: the mean of the squared activations that met them
// (llama.cpp: tools/imatrix). nil for no file.
func readImatrix(path string) (map[string][]float32, error) {
	if path == "" {
		return nil, nil
	}
	f, err := gguf.Open(path)
	if errors.Is(err, gguf.ErrMagic) {
		return readLegacyImatrix(path)
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	imatrix := make(map[string][]float32)
	for _, t := range f.Tensors {
		name, isSum := strings.CutSuffix(t.Name, ".in_sum2")
		counts := f.Lookup(name + ".counts")
		if !isSum || counts == nil {
			continue
		}
		sum, err := t.ReadFloats()
		if err != nil {
			return nil, err
		}
		n, err := counts.ReadFloats()
		if err != nil {
			return nil, err
		}
		if len(n) == 0 || len(sum)%len(n) != 0 {
			return nil, fmt.Errorf("importance matrix %s: %d sums and %d counts for %s", path, len(sum), len(n), name)
		}
		imatrix[name] = means(sum, n)
	}
	if len(imatrix) == 0 {
		return nil, fmt.Errorf("importance matrix %s: it holds no tensors NAME.in_sum2 and NAME.counts", path)
	}
	return imatrix, checkImatrix(path, imatrix)
}

// means divides sums by counts; each count stands for an equal part of the sums (an expert's columns). What was never
// met weighs 1.
func means(sum, counts []float32) []float32 {
	columns := len(sum) / len(counts)
	for i := range sum {
		if count := float32(math.Round(float64(counts[i/columns]))); count > 0 {
			sum[i] /= count
		} else {
			sum[i] = 1
		}
	}
	return sum
}

// readLegacyImatrix reads the older format: a count of entries; each has a name, a number of calls and values that are
// to be divided by it. All numbers are int32 and float32, little-endian.
func readLegacyImatrix(path string) (map[string][]float32, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	in := binread.NewReader(strings.NewReader(string(data)), int64(len(data)))
	imatrix := make(map[string][]float32)
	for n := in.U32(); n > 0 && in.Err() == nil; n-- {
		name := string(in.Bytes(uint64(in.U32()), 1<<10))
		calls := float32(max(int32(in.U32()), 1))
		raw := in.Bytes(uint64(in.U32())*4, int64(len(data)))
		values := make([]float32, len(raw)/4)
		for i := range values {
			values[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:])) / calls
		}
		imatrix[name] = values
	}
	if in.Err() != nil || len(imatrix) == 0 {
		return nil, fmt.Errorf("importance matrix %s: it is neither GGUF nor llama.cpp's older format, or cut short", path)
	}
	return imatrix, checkImatrix(path, imatrix)
}

func checkImatrix(path string, imatrix map[string][]float32) error {
	for name, values := range imatrix {
		for _, v := range values {
			if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
				return fmt.Errorf("importance matrix %s: %s holds %v", path, name, v)
			}
		}
	}
	return nil
}
