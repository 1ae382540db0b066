package engine

import (
	"bufio"
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"quern/gguf"
	"quern/internal/testenv"
)

// Broken model files are loaded in a process of their own, so that a crash or a hang of one is a failed test and not the
// end of all tests. The process says what it begins and how it ended; the parent starts it again behind a crash.

const (
	victimEnv = "QUERN_TEST_VICTIM" // "MODEL KIND FIRST COUNT": TestMain then loads broken copies of MODEL
	patience  = 30 * time.Second    // longer without a word is a hang
)

func TestMain(m *testing.M) {
	if job := os.Getenv(victimEnv); job != "" {
		os.Exit(victim(job))
	}
	os.Exit(m.Run())
}

// breakage makes the i-th broken copy of a model in memory. It is the same each time.
func breakage(kind string, i int, model []byte, header int) []byte {
	r := rand.New(rand.NewPCG(uint64(i), uint64(len(model))))
	if kind == "cut" {
		return model[:r.IntN(len(model))]
	}
	broken := append([]byte(nil), model...)
	for range 1 + r.IntN(4) {
		broken[structured(r, model[:header])] ^= byte(1 + r.IntN(255))
	}
	return broken
}

// structured picks a place in the header. Most of a header is the text of tokens, where a flip does little; so half of
// the picks are near a key or a tensor's name.
func structured(r *rand.Rand, header []byte) int {
	if r.IntN(2) == 0 {
		return r.IntN(len(header))
	}
	for range 1000 {
		at := r.IntN(len(header) - 8)
		if strings.HasPrefix(string(header[at:]), "blk.") || strings.HasPrefix(string(header[at:]), "qwen") || strings.HasPrefix(string(header[at:]), "tokenizer") {
			return min(at+r.IntN(64), len(header)-1)
		}
	}
	return r.IntN(len(header))
}

// headerSize is the number of bytes before the data of the tensors.
func headerSize(path string) (int, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	data := int64(0)
	for i := range f.Tensors {
		data += (f.Tensors[i].Bytes() + f.Alignment - 1) / f.Alignment * f.Alignment
	}
	info, err := os.Stat(path)
	if err != nil {
		return 0, err
	}
	return int(info.Size() - data), nil
}

func victim(job string) int {
	fields := strings.Fields(job)
	path, kind := strings.ReplaceAll(fields[0], "\x1f", " "), fields[1]
	first, _ := strconv.Atoi(fields[2])
	count, _ := strconv.Atoi(fields[3])
	model, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	header, err := headerSize(path)
	if err != nil {
		panic(err)
	}
	broken := filepath.Join(os.Getenv("TMPDIR"), "broken.gguf")
	for i := first; i < first+count; i++ {
		if err := os.WriteFile(broken, breakage(kind, i, model, header), 0o600); err != nil {
			panic(err)
		}
		fmt.Printf("begin %d\n", i)
		fmt.Printf("end %d %s\n", i, strings.ReplaceAll(outcome(broken), "\n", " // "))
	}
	return 0
}

// outcome loads a file and, where that works, generates a little with it.
func outcome(path string) string {
	m, err := Load(context.Background(), path, LoadOptions{})
	if err != nil {
		return "error " + err.Error()
	}
	defer m.Close()
	if t, err := m.ChatTemplate(); err == nil {
		t.Render(Chat{Messages: []byte(`[{"role": "user", "content": "hi"}]`)})
	}
	ids, err := m.Tokenize([]Segment{{Text: "How many singers?"}})
	if err != nil {
		return "error " + err.Error()
	}
	if len(ids) == 0 {
		return "loaded, but tokenizes to nothing"
	}
	e, err := m.NewEngine(context.Background(), EngineOptions{ContextLength: 64, Threads: 1})
	if err != nil {
		return "error " + err.Error()
	}
	defer e.Close()
	s, err := e.Generate(context.Background(), Request{Prompt: ids, MaxTokens: 2})
	if err != nil {
		return "error " + err.Error()
	}
	if _, err := s.Wait(); err != nil {
		return "error " + err.Error()
	}
	return "loaded"
}

// runVictims loads count broken copies of a model and reports crashes, hangs and errors that are no single line naming
// the file.
func runVictims(t *testing.T, model, kind string, count int) {
	loaded, refused := 0, 0
	reasons := map[string]int{}
	for next := 0; next < count; {
		done, how := runVictim(t, model, kind, next, count-next, func(text string) {
			reason, isError := strings.CutPrefix(text, "error ")
			switch {
			case !isError:
				loaded++
			case strings.Contains(text, " // "):
				t.Errorf("%s: the error has several lines: %s", filepath.Base(model), text)
			default:
				refused++
				if strings.Contains(reason, "own check failed") {
					reasons[reason]++
				}
			}
		})
		next += done
		if next < count {
			t.Errorf("%s, %s %d: %s", filepath.Base(model), kind, next, how)
			next++
		}
	}
	t.Logf("%s: %d %s copies: %d refused, %d loaded", filepath.Base(model), count, kind, refused, loaded)
	for reason, n := range reasons {
		t.Logf("  left to llama.cpp's own checks: %d × %s", n, reason)
	}
}

// runVictim runs one process until it is through, or dies. done is how many copies it got through, how is why it died.
func runVictim(t *testing.T, model, kind string, first, count int, report func(string)) (done int, how string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(),
		fmt.Sprintf("%s=%s %s %d %d", victimEnv, strings.ReplaceAll(model, " ", "\x1f"), kind, first, count))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	hung := time.AfterFunc(patience, cancel)
	in := bufio.NewScanner(out)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		hung.Reset(patience)
		if fields := strings.SplitN(in.Text(), " ", 3); fields[0] == "end" {
			done++
			report(fields[2])
		}
	}
	stopped := !hung.Stop()
	err = cmd.Wait()
	if stopped {
		return done, "hung"
	}
	return done, fmt.Sprintf("crashed (%v): %.600s", err, stderr.String())
}

// brokenCount is how many broken copies are tried in all, per kind.
func brokenCount(t *testing.T, otherwise int) int {
	if n, err := strconv.Atoi(os.Getenv("QUERN_TEST_BROKEN")); err == nil {
		return n
	}
	return otherwise
}

func TestCutFiles(t *testing.T) {
	runVictims(t, tinyModel(t), "cut", brokenCount(t, 200))
}

func TestFlippedHeaders(t *testing.T) {
	models := []string{tinyModel(t)}
	t.Run("oracles", func(t *testing.T) { // where they are missing, this part says so and the rest goes on
		more, err := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "*.bf16.gguf"))
		if err != nil || len(more) == 0 {
			t.Fatalf("no models in the oracles (%v)", err)
		}
		models = append(models, more...)
	})
	for _, path := range models {
		runVictims(t, path, "flip", brokenCount(t, 2000)/len(models)+1)
	}
}

// TestNoModel: what is no model at all gives one line with the file's name and what is wrong.
func TestNoModel(t *testing.T) {
	dir := t.TempDir()
	text := filepath.Join(dir, "notes.gguf")
	os.WriteFile(text, []byte("These are notes.\n"), 0o600)
	empty := filepath.Join(dir, "empty.gguf")
	os.WriteFile(empty, nil, 0o600)
	for _, path := range []string{filepath.Join(dir, "missing.gguf"), text, empty, dir, "a\x00b", "/dev/null"} {
		_, err := Load(context.Background(), path, LoadOptions{})
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), filepath.Base(path)) {
			t.Errorf("%q: %v", path, err)
			continue
		}
		t.Log(err)
	}
}
