// Package filebench measures Quern's work on files beside its peers, in the same run and on the same checkpoint:
// conversion beside llama.cpp's script, a merge beside PEFT and beside a plain copy.
//
// Each party is a whole process, from its start to its end, with the input in the page cache. Runs of the parties take
// turns, so that what disturbs the machine disturbs all; a figure is the median of its runs, beside it the range.
package filebench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"quern/internal/bench"
)

// Options say what Run measures and where the parties are.
type Options struct {
	Checkpoint string // folder with a Hugging Face checkpoint
	Quern      string // the program
	Python     string // interpreter with what scripts/peers/requirements.txt names
	Peers      string // scripts/peers
	Llama      string // sources of llama.cpp
	Work       string // folder for outputs, removed after each run; "" means the system's for temporary files
	Repeats    int    // runs of each party, at least 1
	Log        *slog.Logger
}

// Report is what was measured. Its JSON is the output of `quern bench files --json`.
type Report struct {
	Date       string `json:"date"`
	Quern      string `json:"quern"`
	Llama      string `json:"llama"` // pin of llama.cpp
	Cores      int    `json:"cores"`
	Checkpoint string `json:"checkpoint"`
	Bytes      int64  `json:"bytes"` // of the checkpoint's weights
	Repeats    int    `json:"repeats"`
	Jobs       []Job  `json:"jobs"`
}

// Job is one piece of work and what it cost each party.
type Job struct {
	Name  string `json:"name"`
	Quern Cost   `json:"quern"`
	Peers []Peer `json:"peers"`
}

// Peer is another program's cost for the same job, as a multiple of Quern's too: 3 means that it takes three times as
// much.
type Peer struct {
	Name    string  `json:"name"`
	Missing string  `json:"missing,omitempty"` // why it was not measured; the rest is then zero
	Cost    Cost    `json:"cost"`
	Seconds float64 `json:"seconds_ratio"`
	CPU     float64 `json:"cpu_ratio"`
	Memory  float64 `json:"memory_ratio"`
}

// Cost is what a process took: seconds by the clock, seconds of all processors, and the most memory that was resident
// at once, in MB (10⁶ bytes).
type Cost struct {
	Seconds bench.Figure `json:"seconds"`
	CPU     bench.Figure `json:"cpu_seconds"`
	Memory  bench.Figure `json:"peak_mb"`
}

// Run measures all jobs. A peer that is not installed is left out, with the reason in its place.
func Run(ctx context.Context, o Options) (*Report, error) {
	r, err := newReport(o)
	if err != nil {
		return nil, err
	}
	if o.Work, err = os.MkdirTemp(o.Work, "quern-bench-"); err != nil {
		return nil, err
	}
	defer os.RemoveAll(o.Work)
	adapter := filepath.Join(o.Work, "adapter")
	if err := WriteAdapter(o.Checkpoint, adapter); err != nil {
		return nil, err
	}
	if err := readAll(o.Checkpoint); err != nil {
		return nil, err
	}
	for _, c := range o.contests(ctx, adapter) {
		job, err := c.run(ctx, o)
		if err != nil {
			return nil, err
		}
		r.Jobs = append(r.Jobs, job)
	}
	return r, nil
}

// contest is a job before it is measured: each party's command writes to the path that ends it.
type contest struct {
	name    string
	parties []party // Quern first
}

type party struct {
	name    string
	command []string
	missing string
}

func (o Options) contests(ctx context.Context, adapter string) []contest {
	converter := filepath.Join(o.Llama, "convert_hf_to_gguf.py")
	noConverter := o.missing(ctx, converter, "torch", "transformers", "numpy", "yaml", "requests", "tqdm", "sentencepiece")
	noPEFT := o.missing(ctx, filepath.Join(o.Peers, "merge.py"), "torch", "transformers", "peft")
	var list []contest
	for _, t := range []string{"bf16", "q8_0"} {
		list = append(list, contest{"convert to " + t, []party{
			{name: "Quern", command: []string{o.Quern, "convert", o.Checkpoint, "--pre", "qwen2", "--type", t, "--out"}},
			{name: "convert_hf_to_gguf.py", missing: noConverter, command: []string{o.Python, filepath.Join(o.Peers, "convert.py"), o.Llama, o.Checkpoint, "--outtype", t, "--outfile"}},
		}})
	}
	return append(list, contest{"merge an adapter", []party{
		{name: "Quern", command: []string{o.Quern, "lora", "merge", "--base", o.Checkpoint, "--adapter", adapter, "--accept-base-mismatch", "--out"}},
		{name: "PEFT", missing: noPEFT, command: []string{o.Python, filepath.Join(o.Peers, "merge.py"), o.Checkpoint, adapter}},
		{name: "cp -r", command: []string{"cp", "-r", o.Checkpoint}},
		{name: "cp -r; sync", command: []string{"sh", "-c", `cp -r "$0" "$1" && sync "$1"/*.safetensors`, o.Checkpoint}}, // on the disk at its end, as a merge is
	}})
}

// missing says what keeps a Python peer from running, "" when nothing does.
func (o Options) missing(ctx context.Context, script string, modules ...string) string {
	if _, err := os.Stat(script); err != nil {
		return script + " is not here"
	}
	if _, err := exec.LookPath(o.Python); err != nil {
		return o.Python + " is not here; scripts/peers/setup.sh makes it"
	}
	var absent []string
	for _, m := range modules {
		if exec.CommandContext(ctx, o.Python, "-c", "import importlib.util as u, sys; sys.exit(u.find_spec('"+m+"') is None)").Run() != nil {
			absent = append(absent, m)
		}
	}
	if len(absent) > 0 {
		return o.Python + " has no " + strings.Join(absent, ", ") + "; scripts/peers/setup.sh makes an environment that has"
	}
	return ""
}

func (c contest) run(ctx context.Context, o Options) (Job, error) {
	costs := make([]Cost, len(c.parties))
	for run := range o.Repeats {
		for i, p := range c.parties {
			if p.missing != "" {
				continue
			}
			o.Log.Info(c.name, "run", run+1, "party", p.name)
			if err := p.run(ctx, o.Work, &costs[i]); err != nil {
				return Job{}, fmt.Errorf("%s: %s: %w", c.name, p.name, err)
			}
		}
	}
	job := Job{Name: c.name, Quern: costs[0]}
	for i, p := range c.parties[1:] {
		job.Peers = append(job.Peers, compare(p, &costs[i+1], &job.Quern))
	}
	return job, nil
}

func (p party) run(ctx context.Context, work string, cost *Cost) error {
	out := filepath.Join(work, "out")
	if slices.Contains(p.command, "convert") || slices.Contains(p.command, "--outfile") {
		out += ".gguf"
	}
	defer os.RemoveAll(out)
	return measure(ctx, append(slices.Clone(p.command), out), cost)
}

func compare(p party, cost, quern *Cost) Peer {
	return Peer{Name: p.name, Missing: p.missing, Cost: *cost,
		Seconds: ratio(cost.Seconds, quern.Seconds), CPU: ratio(cost.CPU, quern.CPU), Memory: ratio(cost.Memory, quern.Memory)}
}

func ratio(a, b bench.Figure) float64 {
	if b.Median == 0 {
		return 0
	}
	return a.Median / b.Median
}

// readAll brings the files of a folder into the page cache.
func readAll(dir string) error {
	return eachFile(dir, func(path string, _ fs.FileInfo) error {
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, f)
		return errors.Join(err, f.Close())
	})
}

func eachFile(dir string, do func(path string, info fs.FileInfo) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		return errors.Join(err, do(path, info))
	})
}
