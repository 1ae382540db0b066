package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/internal/bench"
	"quern/internal/synth"
	"quern/tensor"
)

func benchCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "bench",
		Usage: "measure speed beside llama.cpp's own programs, and against this machine's memory bandwidth",
		Description: `Speed depends on the sizes of a model, not on its values: without --model the weights are random, in a shape of --shape.

   quern bench gen                        prefill and decode beside llama-batched-bench, at 1, 4, 8, 16 lanes
   quern bench agent                      64 conversations beside llama-server and a Transformers loop
   quern bench run --shape qwen3.5-0.8b   both
   quern bench synth qwen2.5-3b --type bf16 -o model.gguf

--json prints one document per run: internal/bench, Report.`,
		Subcommands: []*cli.Command{
			benchSynthCommand(env),
			benchRunCommand(env, "gen", "prefill and decode, tokens per second by number of lanes", true, false),
			benchRunCommand(env, "agent", "a scripted load of conversations, seconds", false, true),
			benchRunCommand(env, "run", "gen and agent", true, true),
			benchFilesCommand(env),
			benchBandwidthCommand(env),
		},
	}
}

type synthOptions struct {
	shape, typ, out string
	hf              bool
}

func benchSynthCommand(env Env) *cli.Command {
	var o synthOptions
	return &cli.Command{
		Name:      "synth",
		Usage:     "write a model with random weights",
		ArgsUsage: "SHAPE",
		Description: "SHAPE is one of " + strings.Join(synth.Names(), ", ") + `, or a config.json, or a folder with one.
With --hf the output is a folder: a Hugging Face checkpoint.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "type", Value: "q8_0", Usage: "`TYPE` of the matrices: f32, f16, bf16, q8_0, q4_0 (checkpoint: f32, f16, bf16)", Destination: &o.typ},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "`FILE` or folder to write (default: SHAPE.TYPE.gguf here)", Destination: &o.out},
			&cli.BoolFlag{Name: "hf", Usage: "write a Hugging Face checkpoint", Destination: &o.hf},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("bench synth takes one shape: %s, or a config.json", strings.Join(synth.Names(), ", "))
			}
			o.shape = c.Args().First()
			if o.hf && !c.IsSet("type") {
				o.typ = "bf16"
			}
			return runSynth(c.Context, env, o)
		},
	}
}

func runSynth(ctx context.Context, env Env, o synthOptions) error {
	shape, err := synth.Find(o.shape)
	if err != nil {
		return err
	}
	typ, err := synth.ParseType(o.typ)
	if err != nil {
		return usageError{err.Error()}
	}
	if o.out == "" {
		o.out = modelName(shape, typ, o.hf)
	}
	if o.hf {
		err = synth.WriteCheckpoint(ctx, shape, typ, o.out)
	} else {
		err = synth.WriteGGUF(ctx, shape, typ, o.out)
	}
	if err == nil {
		fmt.Fprintf(env.Stderr, "%s: %d parameters in %v\n", o.out, synth.Parameters(shape), typ)
	}
	return err
}

func modelName(s *synth.Shape, t tensor.DType, hf bool) string {
	name := s.Name + "." + strings.ToLower(t.String())
	if !hf {
		name += ".gguf"
	}
	return name
}

type benchOptions struct {
	bench.GenOptions
	gen, agent       bool
	shape, typ       string
	gpu, flash       string
	gpuRead          float64
	loads            []string
	python           string
	static           int
	workers, slots   int
	json, alone      bool
	markdown, models string
	verbose          bool
}

func benchRunCommand(env Env, name, usage string, gen, agent bool) *cli.Command {
	o := benchOptions{gen: gen, agent: agent}
	lanes, loads := cli.NewIntSlice(1, 4, 8, 16), cli.NewStringSlice("demo")
	flags := []cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Usage: "GGUF `FILE` to measure, instead of random weights", Destination: &o.Model},
		&cli.StringFlag{Name: "shape", Value: "qwen2.5-0.5b", Usage: "`SHAPE` of the random weights: " + strings.Join(synth.Names(), ", ") + ", or a config.json", Destination: &o.shape},
		&cli.StringFlag{Name: "type", Value: "q8_0", Usage: "`TYPE` of the random weights", Destination: &o.typ},
		&cli.StringFlag{Name: "models", Usage: "`FOLDER` for random weights (default: in the user's cache folder)", Destination: &o.models},
		&cli.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "`N` threads (default: all cores)", Destination: &o.Threads},
		&cli.IntFlag{Name: "chunk", Value: 512, Usage: "`N` tokens of a prompt step", Destination: &o.Chunk},
		&cli.StringFlag{Name: "gpu-layers", Value: "auto", Usage: "layers on the GPU, of Quern and its peers: auto, all, none or a number", Destination: &o.gpu},
		&cli.Float64Flag{Name: "gpu-bandwidth", Usage: "bandwidth of the GPU's memory in `GB/s`, from its data sheet, as the bound of decoding", Destination: &o.gpuRead},
		&cli.StringFlag{Name: "flash-attn", Value: "on", Usage: "fused attention, of Quern and its peers: auto, on, off", Destination: &o.flash},
		&cli.IntFlag{Name: "repeats", Value: 3, Usage: "`N` runs of each party, in turns", Destination: &o.Repeats},
		&cli.StringFlag{Name: "tools", Value: filepath.Join("third_party", "llama.cpp", "bin"), Usage: "`FOLDER` of llama.cpp's programs (make tools)", Destination: &o.Tools},
		&cli.BoolFlag{Name: "alone", Usage: "measure Quern without its peers", Destination: &o.alone},
		&cli.BoolFlag{Name: "json", Usage: "as JSON", Destination: &o.json},
		&cli.StringFlag{Name: "markdown", Usage: "append the report to this `FILE` too", Destination: &o.markdown},
		&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "log each run", Destination: &o.verbose},
	}
	if gen {
		flags = append(flags,
			&cli.IntSliceFlag{Name: "lanes", Value: lanes, Usage: "`N,N,…` lanes"},
			&cli.IntFlag{Name: "prompt", Value: 128, Usage: "`N` tokens of each lane's prompt", Destination: &o.Prompt},
			&cli.IntFlag{Name: "generate", Value: 48, Usage: "`N` tokens that each lane generates", Destination: &o.Generate})
	}
	if agent {
		flags = append(flags,
			&cli.StringSliceFlag{Name: "load", Value: loads, Usage: "64 conversations on 8 databases: demo (short), spider (prompts of 1,000 to 2,900 tokens, 3 turns), or a `FILE` (format: internal/bench, Load); with :N the first N; may be repeated"},
			&cli.IntFlag{Name: "slots", Value: 16, Usage: "`N` lanes, and slots of the server", Destination: &o.slots},
			&cli.IntFlag{Name: "workers", Usage: "`N` conversations at once (default: --slots)", Destination: &o.workers},
			&cli.StringFlag{Name: "python", Value: "python3", Usage: "`PROGRAM` with torch and transformers, for the Transformers loop", Destination: &o.python},
			&cli.IntFlag{Name: "static", Value: 16, Usage: "play only the first `N` questions through the Transformers loop and scale its time up (0: all)", Destination: &o.static})
	}
	return &cli.Command{
		Name: name, Usage: usage, Flags: flags,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("bench %s takes no arguments; the model is named with --model or --shape", name)
			}
			if gen {
				o.Lanes = c.IntSlice("lanes")
			}
			if agent {
				o.loads = c.StringSlice("load")
			}
			return runBench(c.Context, env, o)
		},
	}
}

func runBench(ctx context.Context, env Env, o benchOptions) error {
	level := slog.LevelWarn
	if o.verbose {
		level = slog.LevelInfo
	}
	o.Log = slog.New(slog.NewTextHandler(env.Stderr, &slog.HandlerOptions{Level: level}))
	if o.alone {
		o.Tools, o.python = "", ""
	}
	var err error
	if o.GPU, err = engine.ParseGPULayers(o.gpu); err != nil {
		return usageError{err.Error()}
	}
	if o.Flash, err = parseSwitch("--flash-attn", o.flash); err != nil {
		return err
	}
	o.GPURead = o.gpuRead * 1e9
	hf := ""
	if o.Model == "" {
		if o.Model, hf, err = o.randomModel(ctx); err != nil {
			return err
		}
	}
	report, err := bench.NewReport(o.Options)
	if err != nil {
		return err
	}
	if o.gen {
		if report.Gen, err = bench.Gen(ctx, o.GenOptions); err != nil {
			return err
		}
	}
	for _, name := range o.loads {
		load, err := bench.ReadLoad(name)
		if err != nil {
			return err
		}
		agent, err := bench.Agent(ctx, bench.AgentOptions{
			Options: o.Options, Load: load, Lanes: o.slots, Workers: o.workers, Python: o.python, HF: hf, Static: o.static,
		})
		if err != nil {
			return err
		}
		report.Agent = append(report.Agent, agent)
	}
	return o.write(env, report)
}

func (o benchOptions) write(env Env, report *bench.Report) error {
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
		e := json.NewEncoder(env.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(report)
	}
	return report.WriteTable(env.Stdout)
}

// randomModel writes the random weights unless they are there from an earlier run, and for the Transformers loop, where
// that can run, the checkpoint too.
func (o benchOptions) randomModel(ctx context.Context) (file, hf string, err error) {
	shape, err := synth.Find(o.shape)
	if err != nil {
		return "", "", err
	}
	typ, err := synth.ParseType(o.typ)
	if err != nil {
		return "", "", usageError{err.Error()}
	}
	dir := o.models
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return "", "", err
		}
		dir = filepath.Join(cache, "quern", "bench")
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", "", err
	}
	file = filepath.Join(dir, modelName(shape, typ, false))
	if _, err := os.Stat(file); err != nil {
		if err := synth.WriteGGUF(ctx, shape, typ, file); err != nil {
			return "", "", err
		}
	}
	if !o.agent || o.python == "" || !bench.HasTransformers(ctx, o.python) {
		return file, "", nil
	}
	hf = filepath.Join(dir, modelName(shape, tensor.BF16, true))
	if _, err := os.Stat(hf); err != nil {
		err = synth.WriteCheckpoint(ctx, shape, tensor.BF16, hf)
		return file, hf, err
	}
	return file, hf, nil
}

func benchBandwidthCommand(env Env) *cli.Command {
	var threads int
	var asJSON bool
	return &cli.Command{
		Name:  "bandwidth",
		Usage: "memory bandwidth of this machine: the bound of decoding",
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "threads", Aliases: []string{"t"}, Usage: "`N` threads (default: all cores)", Destination: &threads},
			&cli.BoolFlag{Name: "json", Usage: "as JSON, bytes per second", Destination: &asJSON},
		},
		Action: func(c *cli.Context) error {
			b := bench.MeasureBandwidth(threads)
			if asJSON {
				return json.NewEncoder(env.Stdout).Encode(b)
			}
			_, err := fmt.Fprintf(env.Stdout, "read %.1f GB/s, triad %.1f GB/s\n", b.Read/1e9, b.Triad/1e9)
			return err
		},
	}
}
