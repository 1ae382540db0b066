package engine

import (
	"testing"
	"time"

	"quern/engine/internal/llama"
)

// BenchmarkLoad compares Load, which reads and checks the header itself before llama.cpp sees the file, with llama.cpp's
// own load of the same vocabulary of a quarter of a million tokens; weights are mapped and cost neither anything.
func BenchmarkLoad(b *testing.B) {
	path := vocabulary(b, "qwen3.5").Path()
	var ours, theirs time.Duration
	for b.Loop() {
		began := time.Now()
		m, err := Load(b.Context(), path, LoadOptions{VocabOnly: true})
		if err != nil {
			b.Fatal(err)
		}
		ours += time.Since(began)
		m.Close()
		began = time.Now()
		l, err := llama.LoadModel(path, llama.ModelParams{VocabOnly: true, Mmap: true, Progress: func(float64) bool { return true }})
		if err != nil {
			b.Fatal(err)
		}
		theirs += time.Since(began)
		l.Close()
	}
	b.ReportMetric(float64(ours)/float64(theirs), "x-llama.cpp")
}
