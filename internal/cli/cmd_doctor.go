package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/internal/demo"
	"quern/internal/history"
	"quern/internal/hub"
	"quern/internal/inspect"
	"quern/internal/table"
	"quern/sqlguard"
)

// State is how a check went.
type state string

const (
	stateOK      state = "ok"
	stateWarning state = "warning" // it works, but less well than it could
	stateFailed  state = "failed"
)

// finding is one line of doctor, and one object of its JSON.
type finding struct {
	Name   string `json:"name"`
	State  state  `json:"state"`
	Detail string `json:"detail"`
	Advice string `json:"advice,omitempty"` // what to type or do
}

type doctorOptions struct {
	data, db, model string
	json            bool
}

func doctorCommand(env Env) *cli.Command {
	var o doctorOptions
	return &cli.Command{
		Name:  "doctor",
		Usage: "what works on this machine, what is missing, and what to type",
		Description: `Checks the build, the devices and the memory, runs a query through the guard and a question through the demo model. With
--data also a benchmark's folder, with --db a database, with --model whether a model fits. Exit code 1 when a check failed.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "data", Usage: "`DIR` with Spider, BIRD or Spider 2.0-lite", Destination: &o.data},
			&cli.StringFlag{Name: "db", Usage: "SQLite `FILE`", Destination: &o.db},
			&cli.StringFlag{Name: "model", Usage: "GGUF file, or ORG/NAME[:FILE] that was pulled", Destination: &o.model},
			&cli.BoolFlag{Name: "json", Usage: "as a JSON list", Destination: &o.json},
		},
		Action: func(c *cli.Context) error { return runDoctor(c.Context, env, o) },
	}
}

func runDoctor(ctx context.Context, env Env, o doctorOptions) error {
	findings := []finding{checkBuild(), checkDevices(), checkMemory(), checkGuard(ctx), checkDemo(ctx), checkCache(), checkHistory()}
	if o.model != "" {
		findings = append(findings, checkModel(ctx, o.model))
	}
	if o.db != "" {
		findings = append(findings, checkDatabase(ctx, o.db))
	}
	if o.data != "" {
		findings = append(findings, checkData(o.data))
	}
	if err := printFindings(env.Stdout, findings, o.json); err != nil {
		return err
	}
	if slices.ContainsFunc(findings, func(f finding) bool { return f.State == stateFailed }) {
		return exitError(exitFailed)
	}
	return nil
}

func printFindings(w io.Writer, findings []finding, asJSON bool) error {
	if asJSON {
		return table.EncodeJSON(w, findings)
	}
	s := styleFor(w)
	mark := map[state]string{stateOK: s.good("ok     "), stateWarning: s.bold("warning"), stateFailed: s.bad("failed ")}
	for _, f := range findings {
		if _, err := fmt.Fprintf(w, "%s  %-9s %s\n", mark[f.State], f.Name, indent(plainText(f.Detail), 19)); err != nil {
			return err
		}
		if f.Advice != "" {
			fmt.Fprintf(w, "%19s→ %s\n", "", plainText(f.Advice))
		}
	}
	return nil
}

func failed(name string, err error, advice string) finding {
	return finding{name, stateFailed, err.Error(), advice}
}

func checkBuild() finding {
	v := version()
	f := finding{Name: "build", State: stateOK, Detail: fmt.Sprintf("quern %s, llama.cpp %s, SQLite %s", v.Version, v.Build, v.SQLite.Version)}
	if !slices.Contains(v.SQLite.CompileOptions, "ENABLE_MATH_FUNCTIONS") {
		f.State, f.Advice = stateWarning, "SQLite lacks its math functions: build with make, which sets the build tags"
	}
	return f
}

func checkDevices() finding {
	system := engine.System()
	var names []string
	gpu := false
	for _, d := range system.Devices {
		gpu = gpu || d.GPU
		names = append(names, fmt.Sprintf("%s %s (%s free of %s)", d.Name, d.Description, gigabytes(d.Free), gigabytes(d.Total)))
	}
	f := finding{Name: "devices", State: stateOK, Detail: strings.Join(names, "; ") + "; " + strings.Join(system.CPU, " ") + "; kernels: " + ownKernels(system.Kernels)}
	_, noDriver := exec.LookPath("nvidia-smi")
	switch {
	case gpu:
	case slices.Contains(engine.Backends(), "CUDA"):
		f.State, f.Advice = stateWarning, "this binary supports CUDA and finds no device, so it computes on the CPU; nvidia-smi shows what the driver sees"
	case noDriver == nil:
		f.State, f.Advice = stateWarning, "there is an NVIDIA driver here, but this binary computes on the CPU: make CUDA=1 (docs/cuda.md)"
	}
	return f
}

func gigabytes(n uint64) string { return fmt.Sprintf("%.1f GB", float64(n)/1e9) }

func checkMemory() finding {
	total, available := inspect.MachineMemory()
	if total == 0 {
		return finding{"memory", stateWarning, "the system does not say how much there is", ""}
	}
	return finding{"memory", stateOK, fmt.Sprintf("%s free of %s", gigabytes(uint64(available)), gigabytes(uint64(total))),
		"quern inspect MODEL says what a model needs"}
}

// checkGuard runs a query in a worker process.
func checkGuard(ctx context.Context) finding {
	files, err := demo.Unpack()
	if err != nil {
		return failed("guard", err, "is the temporary folder full? TMPDIR names another")
	}
	defer files.Remove()
	guard, err := sqlguard.Open(ctx, files.Database, sqlguard.AskPolicy())
	if err != nil {
		return failed("guard", err, "")
	}
	defer guard.Close()
	result, err := guard.Query(ctx, "SELECT count(*) FROM ports")
	switch {
	case err != nil:
		return failed("guard", err, "worker processes cannot be started here")
	case result.Failure != nil:
		return failed("guard", errors.New(result.Failure.String()), "")
	}
	return finding{"guard", stateOK, "statements run in worker processes", ""}
}

// checkDemo asks the embedded model one question.
func checkDemo(ctx context.Context) finding {
	files, err := demo.Unpack()
	if err != nil {
		return failed("answer", err, "")
	}
	defer files.Remove()
	a, done, err := openDemo(ctx, files)
	if err != nil {
		return failed("answer", err, "")
	}
	defer done()
	answer, err := a.Ask(ctx, demo.Questions[0], "", nil)
	switch {
	case err != nil:
		return failed("answer", err, "")
	case answer.Failed():
		return failed("answer", errors.New(strings.Join(answer.Notes, " ")), "the demo model should answer this: make demo shows where it fails")
	}
	return finding{"answer", stateOK, "the demo model answers: " + effort(answer.Transcript), ""}
}

func checkCache() finding {
	const local = "files that are here already are run all the same; HF_HOME names another folder"
	cache, err := hub.DefaultCache()
	if err != nil {
		return finding{"downloads", stateWarning, err.Error(), local}
	}
	entries, err := os.ReadDir(cache.Dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return finding{"downloads", stateWarning, err.Error(), local}
	}
	models := 0
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), "models--") {
			models++
		}
	}
	f := finding{Name: "downloads", State: stateOK, Detail: fmt.Sprintf("%s in %s", count(models, "model"), cache.Dir)}
	if models == 0 {
		f.Advice = "quern pull ORG/NAME[:FILE] fetches one"
	}
	return f
}

func checkHistory() finding {
	const without = "questions are answered all the same; QUERN_HISTORY names another file"
	file, err := history.DefaultPath()
	if err != nil {
		return finding{"history", stateWarning, err.Error(), without}
	}
	store, err := history.Open(file)
	if err != nil {
		return finding{"history", stateWarning, err.Error(), without}
	}
	store.Close()
	return finding{"history", stateOK, file, ""}
}

func checkModel(ctx context.Context, name string) finding {
	path, err := findModel(name)
	if err != nil {
		return failed("model", err, "")
	}
	if _, err := os.Stat(path); err != nil {
		return failed("model", err, "give a GGUF file, or ORG/NAME[:FILE] that quern pull fetched")
	}
	need, err := engine.Estimate(ctx, path, engine.LoadOptions{})
	if err != nil {
		return failed("model", err, "quern inspect "+path)
	}
	return finding{"model", stateOK, fmt.Sprintf("%s needs %s for one conversation: weights %s, memory of the conversation %s", filepath.Base(path),
		gigabytes(need.Total()), gigabytes(need.Weights), gigabytes(need.KV+need.Recurrent)), ""}
}

func checkDatabase(ctx context.Context, file string) finding {
	guard, err := sqlguard.Open(ctx, file, sqlguard.AskPolicy())
	if err != nil {
		return failed("database", err, "")
	}
	defer guard.Close()
	schema, err := guard.Schema(ctx, sqlguard.SchemaOptions{RowCounts: 1_000_000})
	if err != nil {
		return failed("database", err, "")
	}
	var broken []string
	for _, t := range schema.Tables {
		if t.Broken != "" {
			broken = append(broken, t.Name+": "+t.Broken)
		}
	}
	f := finding{Name: "database", State: stateOK, Detail: fmt.Sprintf("%s: %s can be read", guard.Path(), count(len(schema.Tables)-len(broken), "table"))}
	if note := guard.Note(); note != "" {
		f.Detail += ". " + note
	}
	if len(broken) > 0 {
		f.State, f.Advice = stateWarning, "cannot be read: "+strings.Join(broken, "; ")
	}
	return f
}

// checkData says which benchmark a folder holds, and what is missing from it.
func checkData(dir string) finding {
	if _, err := os.Stat(dir); err != nil {
		return failed("data", err, "give the folder that the benchmark was unpacked to (docs/evals.md)")
	}
	layout := checkDataLayout(dir)
	if !layout.Complete {
		return finding{"data", stateFailed, layout.String(), "give the folder as it was unpacked, with all its parts"}
	}
	return finding{"data", stateOK, fmt.Sprintf("%s: %s, complete (%s)", layout.Dir, layout.Dataset, count(len(layout.Lines), "part")), ""}
}
