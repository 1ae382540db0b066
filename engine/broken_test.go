package engine

import (
	"bufio"
	"context"
	"encoding/json"
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
	victimEnv = "QUERN_TEST_VICTIM" // a job as JSON: TestMain then loads broken copies of a file
	patience  = 30 * time.Second    // longer without a word is a hang
)

// job says which broken copies of a file a process is to load.
type job struct {
	Path, Kind   string // "cut" or "flip"
	First, Count int
	Base         string // the model for which Path is an adapter; "" when Path is a model
}

func TestMain(m *testing.M) {
	if text := os.Getenv(victimEnv); text != "" {
		var j job
		if err := json.Unmarshal([]byte(text), &j); err != nil {
			panic(err)
		}
		victim(j)
		os.Exit(0)
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

func victim(j job) {
	file, err := os.ReadFile(j.Path)
	if err != nil {
		panic(err)
	}
	header, err := headerSize(j.Path)
	if err != nil {
		panic(err)
	}
	broken := filepath.Join(os.Getenv("TMPDIR"), "broken.gguf")
	for i := j.First; i < j.First+j.Count; i++ {
		if err := os.WriteFile(broken, breakage(j.Kind, i, file, header), 0o600); err != nil {
			panic(err)
		}
		fmt.Printf("begin %d\n", i)
		how := "loaded"
		if err := use(broken, j.Base); err != nil {
			how = "error " + err.Error()
		}
		fmt.Printf("end %d %s\n", i, strings.ReplaceAll(how, "\n", " // "))
	}
}

// use loads a model, or an adapter for base, and where that works generates a little with it.
func use(path, base string) error {
	ctx := context.Background()
	model := path
	if base != "" {
		model = base
	}
	m, err := Load(ctx, model, LoadOptions{})
	if err != nil {
		return err
	}
	defer m.Close()
	opt := EngineOptions{ContextLength: 64, Threads: 1}
	if base != "" {
		a, err := m.LoadAdapter(ctx, path)
		if err != nil {
			return err
		}
		defer a.Close()
		opt.Adapters = []AdapterScale{{a, 1}}
	}
	if t, err := m.ChatTemplate(); err == nil {
		t.Render(Chat{Messages: []byte(`[{"role": "user", "content": "hi"}]`)})
	}
	ids, err := m.Tokenize([]Segment{{Text: "How many singers?"}})
	if err != nil || len(ids) == 0 {
		return err
	}
	e, err := m.NewEngine(ctx, opt)
	if err != nil {
		return err
	}
	defer e.Close()
	s, err := e.Generate(ctx, Request{Prompt: ids, MaxTokens: 2})
	if err != nil {
		return err
	}
	_, err = s.Wait()
	return err
}

// runVictims loads broken copies of a file and reports crashes, hangs, and errors that are not one line.
func runVictims(t *testing.T, j job) {
	name, count, loaded, refused := filepath.Base(j.Path), j.Count, 0, 0
	left := map[string]int{}
	for j.Count > 0 {
		done, how := runVictim(t, j, func(text string) {
			reason, isError := strings.CutPrefix(text, "error ")
			switch {
			case !isError:
				loaded++
			case strings.Contains(text, " // "):
				t.Errorf("%s: the error has several lines: %s", name, text)
			default:
				refused++
				if strings.Contains(reason, "own check failed") {
					left[reason]++
				}
			}
		})
		j.First, j.Count = j.First+done, j.Count-done
		if j.Count > 0 {
			t.Errorf("%s, %s %d: %s", name, j.Kind, j.First, how)
			j.First, j.Count = j.First+1, j.Count-1
		}
	}
	t.Logf("%s: %d %s copies: %d refused, %d loaded", name, count, j.Kind, refused, loaded)
	for reason, n := range left {
		t.Logf("  left to llama.cpp's own checks: %d × %s", n, reason)
	}
}

// runVictim runs one process until it is through, or dies. done is how many copies it got through, how is why it died.
func runVictim(t *testing.T, j job, report func(string)) (done int, how string) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	text, err := json.Marshal(j)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, os.Args[0])
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), victimEnv+"="+string(text))
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
	runVictims(t, job{Path: tinyModel(t), Kind: "cut", Count: brokenCount(t, 200)})
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
		runVictims(t, job{Path: path, Kind: "flip", Count: brokenCount(t, 2000)/len(models) + 1})
	}
}

func TestBrokenAdapters(t *testing.T) {
	adapter := exportAdapter(t, testenv.OracleInputs(t, "models", "merged", "q2-lora-r8"), "qwen2-tiny")
	for _, kind := range []string{"cut", "flip"} {
		runVictims(t, job{Path: adapter, Kind: kind, Count: brokenCount(t, 200), Base: floatModels(t)["qwen2-tiny"]})
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
		if err == nil || strings.Contains(err.Error(), "\n") || !strings.Contains(err.Error(), printable(filepath.Base(path))) {
			t.Errorf("%q: %v", path, err)
			continue
		}
		t.Log(err)
	}
}
