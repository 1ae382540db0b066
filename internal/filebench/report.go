package filebench

import (
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"strings"
	"text/tabwriter"
	"time"

	"quern/internal/buildinfo"
)

func newReport(o Options) (*Report, error) {
	r := &Report{
		Date: time.Now().UTC().Format(time.DateOnly), Cores: runtime.NumCPU(),
		Quern: buildinfo.Version + " (" + buildinfo.Commit + ")", Llama: buildinfo.Llama,
		Checkpoint: filepath.Base(o.Checkpoint), Repeats: o.Repeats,
	}
	return r, eachFile(o.Checkpoint, func(path string, info fs.FileInfo) error {
		if filepath.Ext(path) == ".safetensors" {
			r.Bytes += info.Size()
		}
		return nil
	})
}

// WriteTable writes the report for a terminal.
func (r *Report) WriteTable(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, row := range r.rows() {
		fmt.Fprintln(out, strings.Join(row, "\t"))
	}
	if err := out.Flush(); err != nil {
		return err
	}
	_, err := io.WriteString(w, strings.Join(r.notes(), "\n"))
	return err
}

// WriteMarkdown writes the report as a section of a document.
func (r *Report) WriteMarkdown(w io.Writer) error {
	b := &strings.Builder{}
	fmt.Fprintf(b, "## Files: %s\n\n", r.Checkpoint)
	fmt.Fprintf(b, "%.2f GB of weights; adapter of rank %d on all seven projections. Whole processes with the input in the page cache, "+
		"%d runs each, median (range). A peer's ratios say how many times as much as Quern it takes. %d cores, %s/%s; Quern %s, llama.cpp %s; %s.\n\n",
		float64(r.Bytes)/1e9, rank, r.Repeats, r.Cores, runtime.GOOS, runtime.GOARCH, r.Quern, r.Llama, r.Date)
	for i, row := range r.rows() {
		fmt.Fprintf(b, "| %s |\n", strings.Join(row, " | "))
		if i == 0 {
			fmt.Fprintf(b, "|%s\n", strings.Repeat("---|", len(row)))
		}
	}
	b.WriteString("\n")
	for _, note := range r.notes() {
		b.WriteString(note + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (r *Report) rows() [][]string {
	rows := [][]string{{"job", "party", "seconds", "ratio", "CPU seconds", "ratio", "peak MB", "ratio"}}
	for _, j := range r.Jobs {
		rows = append(rows, j.Quern.row(j.Name, "Quern", "", "", ""))
		for _, p := range j.Peers {
			if p.Missing == "" {
				rows = append(rows, p.Cost.row("", p.Name, times(p.Seconds), times(p.CPU), times(p.Memory)))
			}
		}
	}
	return rows
}

func (c *Cost) row(job, party, seconds, cpu, memory string) []string {
	return []string{job, party, c.Seconds.String(), seconds, c.CPU.String(), cpu, c.Memory.String(), memory}
}

func times(x float64) string { return fmt.Sprintf("%.2f", x) }

// notes say which peers were not measured, and why.
func (r *Report) notes() []string {
	var lines []string
	for _, j := range r.Jobs {
		for _, p := range j.Peers {
			if p.Missing != "" {
				lines = append(lines, fmt.Sprintf("%s: %s was not measured: %s.\n", j.Name, p.Name, p.Missing))
			}
		}
	}
	return lines
}
