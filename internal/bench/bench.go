// Package bench measures Quern's speed beside its peers, in the same run, on the same weights and threads: llama.cpp's
// own batched bench for the bare forward pass, its server and a plain Transformers loop for a load of agents.
//
// Runs of the parties take turns, so that a machine that warms up or is disturbed disturbs all; a figure is the median of
// its runs, beside it the range.
package bench

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"quern/engine"
	"quern/gguf"
)

// Options are what all measurements share. The zero value of a field means its default.
type Options struct {
	Model   string // GGUF file
	Threads int    // default: all cores
	Chunk   int    // tokens of a prompt step (n_ubatch), default 512
	Repeats int    // runs of each party, default 3
	Tools   string // folder of llama.cpp's programs; "" measures Quern alone
	Flash   engine.Switch
	GPU     engine.GPULayers // of Quern and its peers; the zero value is what fits
	// GPURead is the bandwidth of the GPU's memory in bytes per second, from its data sheet. 0: the bound that decoding
	// is held against is this machine's main memory, as measured.
	GPURead float64
	Log     *slog.Logger
}

func (o Options) withDefaults() Options {
	o.Threads = cmp.Or(o.Threads, runtime.GOMAXPROCS(0))
	o.Chunk = cmp.Or(o.Chunk, 512)
	o.Repeats = cmp.Or(o.Repeats, 3)
	o.Log = cmp.Or(o.Log, slog.New(slog.DiscardHandler))
	return o
}

// peerFlags are the options in the words of llama.cpp's programs.
func (o Options) peerFlags() []string {
	layers := strconv.Itoa(int(o.GPU))
	switch o.GPU {
	case engine.GPUNone:
		layers = "0"
	case engine.GPUAuto, engine.GPUAll:
		layers = "999"
	}
	flash := map[engine.Switch]string{engine.Auto: "auto", engine.On: "on", engine.Off: "off"}
	return []string{"-m", o.Model, "-fa", flash[o.Flash], "-ngl", layers, "-t", strconv.Itoa(o.Threads), "-tb", strconv.Itoa(o.Threads)}
}

// tool is the path of one of llama.cpp's programs.
func (o Options) tool(name string) (string, error) {
	path := filepath.Join(o.Tools, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%s is not in %s: `make tools` builds it", name, o.Tools)
	}
	return path, nil
}

// Figure is one measured quantity: the median of its runs, and all of them in the order in which they were made.
type Figure struct {
	Median float64   `json:"median"`
	Runs   []float64 `json:"runs"`
}

func (f *Figure) add(x float64) {
	f.Runs = append(f.Runs, x)
	sorted := slices.Sorted(slices.Values(f.Runs))
	n := len(sorted)
	f.Median = (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// String writes the median and the range.
func (f *Figure) String() string {
	if f == nil || len(f.Runs) == 0 {
		return "–"
	}
	text := digits(f.Median)
	if len(f.Runs) > 1 {
		text += fmt.Sprintf(" (%s–%s)", digits(slices.Min(f.Runs)), digits(slices.Max(f.Runs)))
	}
	return text
}

// digits writes three significant digits, without an exponent.
func digits(x float64) string {
	switch {
	case x >= 100:
		return fmt.Sprintf("%.0f", x)
	case x >= 10:
		return fmt.Sprintf("%.1f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// ratio is the quotient of two medians, 0 where one is missing.
func ratio(a, b *Figure) float64 {
	if a == nil || b == nil || b.Median == 0 {
		return 0
	}
	return a.Median / b.Median
}

// randomTokens are ordinary tokens of a vocabulary, others for each seed.
func randomTokens(seed uint64, n, vocab int) []int32 {
	r := rand.New(rand.NewPCG(seed, 11))
	out := make([]int32, n)
	for i := range out {
		out[i] = int32(r.IntN(min(vocab, 900))) // the front of a vocabulary: neither control tokens nor unused ids
	}
	return out
}

// weightBytes is what one step reads of a model: all tensors, but of an embedding that is not the head too only some rows.
func weightBytes(path string) (int64, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	total := int64(0)
	for i := range f.Tensors {
		t := &f.Tensors[i]
		if t.Name != "token_embd.weight" || f.Lookup("output.weight") == nil {
			total += t.Bytes()
		}
	}
	return total, nil
}

// lastLines is the end of a program's output, for an error message.
func lastLines(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "\n")
}

var errNotReady = errors.New("not ready")

// httpClient has no limit on time: a loaded server answers when it can.
var httpClient = &http.Client{}
