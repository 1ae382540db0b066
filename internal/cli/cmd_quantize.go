package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/gguf"
	"quern/internal/progress"
)

type quantizeOptions struct {
	input, out string
	engine     engine.QuantizeOptions
	json       bool
}

func quantizeCommand(env Env) *cli.Command {
	var o quantizeOptions
	return &cli.Command{
		Name:      "quantize",
		Usage:     "make a GGUF file smaller with llama.cpp's quantiser",
		ArgsUsage: "FILE.gguf",
		Description: `Best from a file in f32, bf16 or f16. The output appears under its name when it is complete.

   quern quantize model-BF16.gguf --type Q4_K_M
   quern quantize model-BF16.gguf --type IQ2_XS --imatrix imatrix.gguf

Types, from small to large: ` + strings.Join(engine.QuantizeTypes(), " ") + `

--imatrix takes an importance matrix made by llama-imatrix; the smallest types need one.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "type", Aliases: []string{"t"}, Usage: "what to write, Q4_K_M for instance", Destination: &o.engine.Type},
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "output `FILE` (default: beside the input, with the type in its name)", Destination: &o.out},
			&cli.StringFlag{Name: "imatrix", Usage: "importance matrix `FILE`", Destination: &o.engine.Imatrix},
			&cli.StringFlag{Name: "output-type", Usage: "tensor type of the output head (default: the type's own choice)", Destination: &o.engine.OutputType},
			&cli.StringFlag{Name: "embedding-type", Usage: "tensor type of the token embedding (default: the type's own choice)", Destination: &o.engine.EmbeddingType},
			&cli.BoolFlag{Name: "keep-output", Usage: "leave the output head as it is", Destination: &o.engine.KeepOutput},
			&cli.BoolFlag{Name: "pure", Usage: "every matrix in the same type, no mixture", Destination: &o.engine.Pure},
			&cli.BoolFlag{Name: "allow-requantize", Usage: "accept a file that is quantized already; that loses quality twice", Destination: &o.engine.AllowRequantize},
			&cli.IntFlag{Name: "threads", Usage: "CPU threads (default: all)", Destination: &o.engine.Threads},
			&cli.BoolFlag{Name: "json", Usage: "print {path, type, bytes, input_bytes} as JSON", Destination: &o.json},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("quantize takes one GGUF file: quern quantize FILE.gguf --type Q4_K_M")
			}
			o.input = c.Args().First()
			return runQuantize(c.Context, env, o)
		},
	}
}

func runQuantize(ctx context.Context, env Env, o quantizeOptions) error {
	if !slices.ContainsFunc(engine.QuantizeTypes(), func(t string) bool { return strings.EqualFold(t, o.engine.Type) }) {
		return usagef("--type %q: possible are %s", o.engine.Type, strings.Join(engine.QuantizeTypes(), " "))
	}
	input, err := findModel(o.input)
	if err != nil {
		return err
	}
	if info, err := os.Stat(input); err == nil && info.IsDir() {
		return fmt.Errorf("quantize: %s is a folder; make a GGUF of the checkpoint first: quern convert %s", input, input)
	}
	if o.out == "" {
		o.out = quantizedName(input, o.engine.Type)
	}
	if sameFile(input, o.out) {
		return errors.New("quantize: input and output are the same file")
	}
	line := progress.New(env.Stderr, "quantize", "tensors")
	o.engine.Progress = func(done, total int) { line.Set(int64(done), int64(total)) }
	err = engine.Quantize(ctx, input, o.out, o.engine)
	line.Done("")
	if err != nil {
		return fmt.Errorf("quantize %s: %w", input, err)
	}
	before, err := modelBytes(input)
	if err != nil {
		return err
	}
	after, err := modelBytes(o.out)
	if err != nil {
		return err
	}
	if o.json {
		return json.NewEncoder(env.Stdout).Encode(map[string]any{"path": o.out, "type": strings.ToUpper(o.engine.Type), "bytes": after, "input_bytes": before})
	}
	_, err = fmt.Fprintf(env.Stdout, "%s: %s, %s (%.0f%% of %s)\n", o.out, strings.ToUpper(o.engine.Type), sizeText(after), 100*float64(after)/float64(before), sizeText(before))
	return err
}

// quantizedName puts the type in the place of the one at the end of a file's name, or behind it.
func quantizedName(input, kind string) string {
	name := strings.TrimSuffix(filepath.Base(input), ".gguf")
	for _, t := range append(engine.QuantizeTypes(), "F32", "F16", "BF16") {
		for _, sep := range []string{"-", "."} {
			if n := len(name) - len(sep+t); n > 0 && strings.EqualFold(name[n:], sep+t) {
				name = name[:n]
			}
		}
	}
	return filepath.Join(filepath.Dir(input), name+"-"+strings.ToUpper(kind)+".gguf")
}

func sameFile(a, b string) bool {
	x, errA := os.Stat(a)
	y, errB := os.Stat(b)
	return errA == nil && errB == nil && os.SameFile(x, y)
}

// modelBytes returns the size of a GGUF file, of all its parts.
func modelBytes(path string) (int64, error) {
	f, err := gguf.Open(path)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	var sum int64
	for _, part := range f.Parts {
		info, err := os.Stat(part)
		if err != nil {
			return 0, err
		}
		sum += info.Size()
	}
	return sum, nil
}
