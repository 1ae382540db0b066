package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/internal/hub"
	"quern/internal/progress"
)

type pullOptions struct {
	ref      string
	revision string
	convert  string // GGUF type; "" leaves the checkpoint as it is
	json     bool
}

func pullCommand(env Env) *cli.Command {
	var o pullOptions
	return &cli.Command{
		Name:      "pull",
		Usage:     "download a model or adapter from the Hugging Face hub; resumes, checks every hash",
		ArgsUsage: "ORG/NAME[:FILE]",
		Description: `Downloads into the cache that huggingface_hub shares (HF_HOME, HF_HUB_CACHE) and prints where the files are:
the file itself when one was asked for, else the model's folder.

   quern pull Qwen/Qwen2.5-3B-Instruct
   quern pull Qwen/Qwen2.5-3B-Instruct-GGUF:*q8_0.gguf
   quern pull Qwen/Qwen2.5-0.5B-Instruct --convert q8_0

An adapter is pulled the same way; quern lora merge takes pulled models and adapters by their names, and checks that the
base is the one that the adapter names:

   quern pull ORG/BASE && quern pull ORG/ADAPTER
   quern lora merge --base ORG/BASE --adapter ORG/ADAPTER --out merged

Private and gated models need HF_TOKEN. HF_ENDPOINT names another hub. --revision takes a branch, tag or commit.`,
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "revision", Value: "main", Usage: "branch, tag or commit", Destination: &o.revision},
			&cli.StringFlag{Name: "convert", Usage: "then make a GGUF of this `TYPE` here (f32, f16, bf16, q8_0, auto), as quern convert does", Destination: &o.convert},
			&cli.BoolFlag{Name: "json", Usage: "print {id, dir, files, bytes} as JSON", Destination: &o.json},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("pull takes one model, ORG/NAME or ORG/NAME:FILE")
			}
			o.ref = c.Args().First()
			return pullModel(c.Context, env, o)
		},
	}
}

func pullModel(ctx context.Context, env Env, o pullOptions) error {
	ref, err := hub.ParseRef(o.ref)
	if err != nil {
		return usageError{err.Error()}
	}
	client, err := hub.NewClient()
	if err != nil {
		return err
	}
	line := progress.New(env.Stderr, "pull "+ref.ID, "bytes")
	client.Progress = func(done, total int64) { line.Set(done, total) }
	got, err := client.Pull(ctx, ref, o.revision)
	if err != nil {
		line.Done("")
		return fmt.Errorf("pull: %w", err)
	}
	line.Done(fmt.Sprintf("%d files, %.1f MB downloaded", len(got.Files), float64(got.Bytes)/1e6))
	if o.convert != "" {
		return runConvert(ctx, env, convertOptions{checkpoint: ref.ID, kind: o.convert, json: o.json})
	}
	if o.json {
		return json.NewEncoder(env.Stdout).Encode(map[string]any{"id": ref.ID, "dir": got.Dir, "files": got.Files, "bytes": got.Bytes})
	}
	where := got.Dir
	if ref.Pattern != "" && len(got.Files) == 1 {
		where = filepath.Join(got.Dir, got.Files[0])
	}
	_, err = fmt.Fprintln(env.Stdout, where)
	return err
}
