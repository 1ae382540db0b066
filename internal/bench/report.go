package bench

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"quern/engine"
	"quern/gguf"
	"quern/internal/buildinfo"
)

// Report is all that was measured of one model on one machine. Its JSON is the output of `quern bench --json`.
type Report struct {
	Date    string         `json:"date"`
	Quern   string         `json:"quern"`
	Llama   string         `json:"llama"` // pin of llama.cpp, the same for the peers
	Machine Machine        `json:"machine"`
	Model   Model          `json:"model"`
	Threads int            `json:"threads"`
	Chunk   int            `json:"prompt_step_tokens"`
	Gen     *GenReport     `json:"gen,omitempty"`
	Agent   []*AgentReport `json:"agent,omitempty"` // one of each load
}

// Machine is where it was measured.
type Machine struct {
	CPU      string   `json:"cpu"`
	Cores    int      `json:"cores"`
	MemoryGB int      `json:"memory_gb"`
	OS       string   `json:"os"`
	Features []string `json:"features"` // instruction sets that llama.cpp was compiled to use
	Kernels  []string `json:"kernels"`  // what Quern computes by routines of its own, which its peers do not have
}

// Model is what was measured.
type Model struct {
	Name       string `json:"name"`
	Type       string `json:"type"`
	Parameters int64  `json:"parameters"`
	Bytes      int64  `json:"bytes"` // of all tensors
}

// NewReport fills in what is known before anything is measured.
func NewReport(o Options) (*Report, error) {
	o = o.withDefaults()
	r := &Report{
		Date:    time.Now().UTC().Format(time.DateOnly),
		Quern:   buildinfo.Version + " (" + buildinfo.Commit + ")",
		Llama:   engine.LlamaVersion() + " (" + buildinfo.Llama + ")",
		Machine: thisMachine(),
		Threads: o.Threads,
		Chunk:   o.Chunk,
	}
	var err error
	r.Model, err = describe(o.Model)
	return r, err
}

func describe(path string) (Model, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return Model{}, err
	}
	defer f.Close()
	m := Model{Name: filepath.Base(path)}
	if name, ok := f.Meta.Text("general.name"); ok {
		m.Name = name
	}
	for i := range f.Tensors {
		t := &f.Tensors[i]
		n, err := t.Shape.Elements()
		if err != nil {
			return Model{}, err
		}
		m.Parameters += n
		m.Bytes += t.Bytes()
		if t.Name == "token_embd.weight" {
			m.Type = strings.ToLower(t.DType.String())
		}
	}
	return m, nil
}

func thisMachine() Machine {
	m := Machine{CPU: "unknown", Cores: runtime.NumCPU(), OS: runtime.GOOS + "/" + runtime.GOARCH, Features: engine.CPUFeatures(), Kernels: engine.Kernels()}
	for key, value := range fields("/proc/cpuinfo") {
		if key == "model name" {
			m.CPU = value
			break
		}
	}
	for key, value := range fields("/proc/meminfo") {
		var kb int
		if key == "MemTotal" {
			if _, err := fmt.Sscanf(value, "%d kB", &kb); err == nil {
				m.MemoryGB = (kb + 1<<19) >> 20
			}
		}
	}
	return m
}

// fields yields the "key: value" lines of a file, none where it cannot be read.
func fields(path string) func(func(key, value string) bool) {
	return func(yield func(key, value string) bool) {
		f, err := os.Open(path)
		if err != nil {
			return
		}
		defer f.Close()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			key, value, _ := strings.Cut(lines.Text(), ":")
			if !yield(strings.TrimSpace(key), strings.TrimSpace(value)) {
				return
			}
		}
	}
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error { return r.write(w, false) }

// WriteMarkdown writes the report as a section of a document.
func (r *Report) WriteMarkdown(w io.Writer) error { return r.write(w, true) }

func (r *Report) write(w io.Writer, markdown bool) error {
	heading, line := "%s\n", "%s\n"
	if markdown {
		heading, line = "## %s\n\n", "%s\n\n"
	}
	b := &strings.Builder{}
	fmt.Fprintf(b, heading, r.Model.Name+", "+r.Model.Type)
	fmt.Fprintf(b, line, fmt.Sprintf("%d M parameters. %s, %d cores, %d GB, %s (%s); %d threads, prompt steps of %d tokens; Quern %s, llama.cpp %s; %s.",
		r.Model.Parameters/1e6, r.Machine.CPU, r.Machine.Cores, r.Machine.MemoryGB, r.Machine.OS, strings.Join(r.Machine.Features, " "),
		r.Threads, r.Chunk, r.Quern, r.Llama, r.Date))
	if len(r.Machine.Kernels) > 0 {
		fmt.Fprintf(b, line, "Quern computes by kernels of its own, which its peers do not have: "+strings.Join(r.Machine.Kernels, ", ")+".")
	}
	if r.Gen != nil {
		r.Gen.write(b, markdown, line)
	}
	for _, a := range r.Agent {
		a.write(b, markdown, line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (g *GenReport) write(b *strings.Builder, markdown bool, line string) {
	memory := fmt.Sprintf("the GPU's memory gives %.0f GB/s by its data sheet", g.Bandwidth.Read/1e9)
	if g.Bandwidth.Triad > 0 {
		memory = fmt.Sprintf("this machine reads %.1f GB/s from memory (triad: %.1f GB/s)", g.Bandwidth.Read/1e9, g.Bandwidth.Triad/1e9)
	}
	fmt.Fprintf(b, line, fmt.Sprintf("Reading prompts of %d tokens and generating %d tokens in each lane; tokens per second over all lanes, median (range). "+
		"Each decode step reads %.2f GB of weights; %s.%s", g.Prompt, g.Generate, float64(g.WeightBytes)/1e9, memory, onGPU(g.GPULayers)))
	rows := [][]string{{"lanes", "prefill", "llama-batched-bench", "ratio", "decode", "llama-batched-bench", "ratio", "of bandwidth", "own time"}}
	for _, w := range g.Widths {
		rows = append(rows, []string{fmt.Sprint(w.Lanes), w.Prefill.String(), w.PeerPrefill.String(), times(w.PrefillOf),
			w.Decode.String(), w.PeerDecode.String(), times(w.DecodeOf), percent(w.OfBandwidth), percent(w.Overhead)})
	}
	table(b, rows, markdown)
}

func (a *AgentReport) write(b *strings.Builder, markdown bool, line string) {
	fmt.Fprintf(b, line, fmt.Sprintf("%d conversations with prompts of %.0f tokens and %.1f turns on average, %d at once in %d lanes, %d tokens generated; seconds for all, median (range).%s",
		a.Questions, a.Prompt, a.Turns, a.Workers, a.Lanes, a.Generated, onGPU(a.GPULayers)))
	rows := [][]string{{"party", "seconds", "Quern is as fast, times"}, {"Quern", a.Quern.String(), ""}}
	rows = append(rows, []string{"llama-server", a.Server.String(), times(a.OverServer)})
	rows = append(rows, []string{"Transformers loop", a.Transformers.String(), times(a.OverLoop)})
	table(b, rows, markdown)
	if a.Missing != "" {
		fmt.Fprintf(b, line, "The Transformers loop was not measured: "+a.Missing+".")
	}
	if s := a.Stats; s != nil {
		fmt.Fprintf(b, line, fmt.Sprintf("Quern's last run: %d prompt tokens, %d of them found in memory, %d read; %d decode steps with %.0f %% of the lanes busy; "+
			"%d turns went on in place, %d began as copies, %d from nothing; %d evictions, %d preemptions; own time %s.",
			s.PromptTokens, s.PrefixHits, s.PrefillTokens, s.DecodeSteps, 100*s.Occupancy, s.Continued, s.Forked, s.Misses, s.Evictions, s.Preemptions, percent(a.Overhead)))
	}
}

func onGPU(layers int) string {
	if layers == 0 {
		return ""
	}
	return fmt.Sprintf(" %d layers on the GPU.", layers)
}

func times(x float64) string {
	if x == 0 {
		return "–"
	}
	return fmt.Sprintf("%.2f", x)
}

func percent(x float64) string { return fmt.Sprintf("%.1f %%", 100*x) }

func table(b *strings.Builder, rows [][]string, markdown bool) {
	if !markdown {
		w := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
		for _, row := range rows {
			fmt.Fprintln(w, "  "+strings.Join(row, "\t"))
		}
		w.Flush()
		return
	}
	for i, row := range rows {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	b.WriteString("\n")
}
