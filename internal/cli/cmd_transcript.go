package cli

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"quern/toolloop"
	"quern/toolloop/transcriptview"
)

type transcriptOptions struct {
	file, html, id string
}

func transcriptCommand(env Env) *cli.Command {
	var o transcriptOptions
	return &cli.Command{
		Name:  "transcript",
		Usage: "what happened in each question, for reading",
		Subcommands: []*cli.Command{{
			Name: "show", Usage: "show a file of transcripts, one question after the other", ArgsUsage: "FILE",
			Description: `FILE is what --transcript wrote: JSON Lines, one question a line ("-" reads standard input). The fields are described in
docs/TRANSCRIPT.md.`,
			Flags: []cli.Flag{
				&cli.StringFlag{Name: "html", Usage: "write one page of HTML to `OUT` instead", Destination: &o.html},
				&cli.StringFlag{Name: "id", Usage: "only the question with this `ID`", Destination: &o.id},
			},
			Action: func(c *cli.Context) error {
				if c.Args().Len() != 1 {
					return usagef("show takes one file: quern transcript show FILE")
				}
				o.file = c.Args().First()
				return showTranscripts(env, o)
			},
		}},
	}
}

func showTranscripts(env Env, o transcriptOptions) error {
	list, err := readTranscripts(env.Stdin, o.file)
	if err != nil && len(list) == 0 {
		return err
	}
	if err != nil { // a run that was killed: what is whole can be read
		fmt.Fprintf(env.Stderr, "quern: %v; showing the %d before it\n", err, len(list))
	}
	if o.id != "" {
		if list = withID(list, o.id); len(list) == 0 {
			return fmt.Errorf("%s holds no question with id %q", o.file, o.id)
		}
	}
	if o.html == "" {
		return transcriptview.WriteText(env.Stdout, list)
	}
	var page bytes.Buffer
	if err := transcriptview.WriteHTML(&page, "Transcripts of "+filepath.Base(o.file), list); err != nil {
		return err
	}
	return writeWhole(o.html, page.Bytes())
}

func readTranscripts(stdin io.Reader, file string) ([]toolloop.Transcript, error) {
	r := stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		r = f
	}
	list, err := toolloop.ReadTranscripts(r)
	if err != nil {
		return list, fmt.Errorf("%s: %w", file, err)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("%s: %w", file, errors.New("no transcript in it"))
	}
	return list, nil
}

func withID(list []toolloop.Transcript, id string) (found []toolloop.Transcript) {
	for _, t := range list {
		if t.ID == id {
			found = append(found, t)
		}
	}
	return found
}
