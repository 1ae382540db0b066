package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/convert"
	"quern/internal/hub"
	"quern/internal/progress"
)

type convertOptions struct {
	checkpoint string
	out        string
	kind       string
	noMTP, mtp bool
	pre, name  string
	json       bool
}

func convertCommand(env Env) *cli.Command {
	var o convertOptions
	return &cli.Command{
		Name:      "convert",
		Usage:     "turn a Hugging Face checkpoint into a GGUF file",
		ArgsUsage: "DIR | ORG/NAME",
		Description: `Writes what llama.cpp's own converter writes, bit for bit, in bounded memory and on all cores. The file appears under
its name when it is complete; stopping leaves nothing behind.

   quern convert Qwen2.5-0.5B-Instruct --out qwen.gguf
   quern convert Qwen/Qwen3-0.6B --type q8_0          (after quern pull)

Types: f32, f16, bf16, q8_0, and auto: bf16 for a checkpoint in bf16, else f16. For smaller ones convert first, then
quern quantize. Vectors and norms stay in f32. Of multimodal checkpoints the text model is taken.

A tokenizer that is not one of the published Qwen ones is refused, naming what is different; --pre NAME says which of
llama.cpp's pre-tokenizers splits text in the same way.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "output `FILE` (default: NAME-TYPE.gguf here)", Destination: &o.out},
			&cli.StringFlag{Name: "type", Aliases: []string{"outtype"}, Value: "auto", Usage: "f32, f16, bf16, q8_0 or auto", Destination: &o.kind},
			&cli.BoolFlag{Name: "no-mtp", Usage: "leave out the layers for multi-token prediction", Destination: &o.noMTP},
			&cli.BoolFlag{Name: "mtp", Usage: "only those layers, with embedding and head: a draft model", Destination: &o.mtp},
			&cli.StringFlag{Name: "pre", Usage: "`NAME` of the pre-tokenizer, for a tokenizer that is not recognised", Destination: &o.pre},
			&cli.StringFlag{Name: "name", Usage: "the model's `NAME` in the file (default: from the checkpoint)", Destination: &o.name},
			&cli.BoolFlag{Name: "json", Usage: "print {path, arch, type, tensors, parameters, bytes, skipped, warnings} as JSON", Destination: &o.json},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("convert takes one checkpoint folder: quern convert DIR --out FILE")
			}
			if o.noMTP && o.mtp {
				return usagef("--mtp and --no-mtp exclude each other")
			}
			o.checkpoint = c.Args().First()
			return runConvert(c.Context, env, o)
		},
	}
}

func runConvert(ctx context.Context, env Env, o convertOptions) error {
	dir, name, err := findCheckpoint(o.checkpoint)
	if err != nil {
		return err
	}
	opt := convert.Options{Type: convert.Type(strings.ToLower(o.kind)), Pre: o.pre, Name: o.name}
	switch {
	case o.noMTP:
		opt.MTP = convert.DropMTP
	case o.mtp:
		opt.MTP = convert.OnlyMTP
	}
	if !opt.Type.Valid() {
		return usagef("--type %s: possible are f32, f16, bf16, q8_0 and auto; for others convert first, then quern quantize", o.kind)
	}
	line := progress.New(env.Stderr, "convert", "bytes")
	opt.Progress = func(done, total int64) { line.Set(done, total) }
	out := o.out
	if out == "" {
		if opt.Type, err = convert.Resolve(dir, opt.Type); err != nil {
			return err
		}
		out = fmt.Sprintf("%s-%s.gguf", name, strings.ToUpper(string(opt.Type)))
	}
	report, err := convert.Convert(ctx, dir, out, opt)
	line.Done("")
	if err != nil {
		return err
	}
	for _, w := range report.Warnings {
		fmt.Fprintf(env.Stderr, "warning: %s\n", w)
	}
	if o.json {
		return json.NewEncoder(env.Stdout).Encode(struct {
			Path string `json:"path"`
			*convert.Report
		}{out, report})
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s, %s, %d tensors, %s parameters, %s\n",
		out, report.Arch, strings.ToUpper(string(report.Type)), report.Tensors, countText(report.Parameters), sizeText(report.Bytes))
	return err
}

// findCheckpoint resolves a checkpoint folder, or a model in the hub's cache, and returns a name for files made of it.
func findCheckpoint(name string) (dir, short string, err error) {
	if _, err := os.Stat(name); err == nil {
		absolute, err := filepath.Abs(name)
		return name, filepath.Base(absolute), err
	}
	ref, err := hub.ParseRef(name)
	if err != nil {
		return "", "", fmt.Errorf("%s: no such file or folder, nor the id of a model on the hub", name)
	}
	if dir, err = cachedSnapshot(ref, name); err != nil {
		return "", "", err
	}
	return dir, filepath.Base(ref.ID), nil
}

// sizeText writes bytes with a decimal unit.
func sizeText(n int64) string {
	return withUnit(float64(n), " ", []string{"B", "kB", "MB", "GB", "TB"})
}

// countText writes a number with a decimal unit.
func countText(n int64) string { return withUnit(float64(n), "", []string{"", "K", "M", "B", "T"}) }

func withUnit(x float64, space string, units []string) string {
	i := 0
	for ; x >= 999.5 && i < len(units)-1; i++ {
		x /= 1000
	}
	digits := 0
	if i > 0 && x < 99.95 {
		digits = 1
	}
	return fmt.Sprintf("%.*f%s%s", digits, x, space, units[i])
}
