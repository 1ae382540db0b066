package cli

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/internal/filebench"
)

type benchFilesOptions struct {
	filebench.Options
	shape, models, markdown string
	json, verbose           bool
}

func benchFilesCommand(env Env) *cli.Command {
	var o benchFilesOptions
	return &cli.Command{
		Name:  "files",
		Usage: "convert and lora merge beside llama.cpp's script, PEFT and cp",
		Description: `Whole processes in turns, on a checkpoint with random weights and an adapter of rank 16 on all seven projections:
seconds, CPU seconds, peak memory. scripts/peers/setup.sh installs the peers; those that are missing are left out.

--json prints internal/filebench, Report.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "shape", Value: "qwen2.5-0.5b", Usage: "`SHAPE` of the random weights, as in bench synth", Destination: &o.shape},
			&cli.StringFlag{Name: "checkpoint", Usage: "`FOLDER` to measure with, instead of random weights", Destination: &o.Checkpoint},
			&cli.StringFlag{Name: "models", Usage: "`FOLDER` for random weights (default: in the user's cache folder)", Destination: &o.models},
			&cli.IntFlag{Name: "repeats", Value: 3, Usage: "`N` runs of each party, in turns", Destination: &o.Repeats},
			&cli.StringFlag{Name: "quern", Usage: "`PROGRAM` to measure (default: this one)", Destination: &o.Quern},
			&cli.StringFlag{Name: "python", Usage: "`PROGRAM` with the peers (default: what scripts/peers/setup.sh makes)", Destination: &o.Python},
			&cli.StringFlag{Name: "peers", Value: filepath.Join("scripts", "peers"), Usage: "`FOLDER` of the peers' scripts", Destination: &o.Peers},
			&cli.StringFlag{Name: "llama", Value: filepath.Join("third_party", "llama.cpp", "src"), Usage: "`FOLDER` of llama.cpp's sources", Destination: &o.Llama},
			&cli.StringFlag{Name: "work", Usage: "`FOLDER` for what the parties write (default: the system's for temporary files)", Destination: &o.Work},
			&cli.BoolFlag{Name: "json", Usage: "as JSON", Destination: &o.json},
			&cli.StringFlag{Name: "markdown", Usage: "append the report to this `FILE` too", Destination: &o.markdown},
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log each run", Destination: &o.verbose},
		},
		Action: func(c *cli.Context) error {
			switch {
			case c.Args().Present():
				return usagef("bench files takes no arguments; the checkpoint is named with --checkpoint or --shape")
			case o.Repeats < 1:
				return usagef("--repeats %d: at least one run is needed", o.Repeats)
			}
			return runBenchFiles(c.Context, env, o)
		},
	}
}

func runBenchFiles(ctx context.Context, env Env, o benchFilesOptions) error {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	o.Log = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	if err := o.fill(ctx, env); err != nil {
		return err
	}
	report, err := filebench.Run(ctx, o.Options)
	if err != nil {
		return err
	}
	if o.markdown != "" {
		f, err := os.OpenFile(o.markdown, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return err
		}
		if err := errors.Join(report.WriteMarkdown(f), f.Close()); err != nil {
			return err
		}
	}
	if o.json {
		return writeIndented(env.Stdout, report)
	}
	return report.WriteTable(env.Stdout)
}

// fill settles what depends on this machine. The random weights are written by a process of their own: memory that this
// one has used would count as its children's.
func (o *benchFilesOptions) fill(ctx context.Context, env Env) error {
	var err error
	if o.Quern == "" {
		if o.Quern, err = os.Executable(); err != nil {
			return err
		}
	}
	cache, err := scriptCache()
	if err != nil {
		return err
	}
	if o.Python == "" {
		o.Python = filepath.Join(cache, "peers", "bin", "python")
	}
	if o.Checkpoint != "" {
		return nil
	}
	if o.models == "" {
		o.models = filepath.Join(cache, "bench")
	}
	o.Checkpoint = filepath.Join(o.models, filepath.Base(o.shape)+".bf16")
	if _, err := os.Stat(o.Checkpoint); err == nil {
		return nil
	}
	if err := os.MkdirAll(o.models, 0o755); err != nil {
		return err
	}
	synth := exec.CommandContext(ctx, o.Quern, "bench", "synth", o.shape, "--hf", "--output", o.Checkpoint)
	synth.Stderr = env.Stderr
	return synth.Run()
}

// scriptCache is the folder in which the project's scripts keep what takes long to make.
func scriptCache() (string, error) {
	if dir := os.Getenv("QUERN_CACHE"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "quern"), nil
	}
	home, err := os.UserHomeDir()
	return filepath.Join(home, ".cache", "quern"), err
}
