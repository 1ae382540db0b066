package cli

import (
	"bytes"
	"io"

	"github.com/urfave/cli/v2"

	"quern/eval"
	"quern/eval/report"
)

// outputFlags say in which forms something is written: to files, "-" to stdout; Markdown to stdout where none is asked for.
type outputFlags struct{ html, markdown, json string }

func (f *outputFlags) flags(html bool) []cli.Flag {
	flags := []cli.Flag{
		&cli.StringFlag{Name: "markdown", Usage: "Markdown to `FILE` (- for stdout, which is the default)", Destination: &f.markdown},
		&cli.StringFlag{Name: "json", Usage: "JSON to `FILE` (- for stdout); its fields are a contract", Destination: &f.json},
	}
	if html {
		flags = append(flags, &cli.StringFlag{Name: "html", Usage: "one self-contained page to `FILE`", Destination: &f.html})
	}
	return flags
}

func evalReportCommand(env Env) *cli.Command {
	var o outputFlags
	return &cli.Command{
		Name: "report", Usage: "what results files say, for people and programs", ArgsUsage: "RUN…",
		Description: "RUN is a results file of eval run or eval score. Several are put side by side.",
		Flags:       o.flags(true),
		Action: func(c *cli.Context) error {
			if !c.Args().Present() {
				return usagef("report needs a results file: quern eval report run.jsonl --html run.html")
			}
			return writeReport(env, o, c.Args().Slice())
		},
	}
}

func writeReport(env Env, o outputFlags, paths []string) error {
	var runs []*eval.ResultsFile
	for _, path := range paths {
		run, err := eval.ReadResults(path)
		if err != nil {
			return err
		}
		runs = append(runs, run)
	}
	r := eval.BuildReport(runs, officialTables)
	return o.write(env, map[*string]func(io.Writer) error{
		&o.markdown: func(w io.Writer) error { return report.Markdown(w, r) },
		&o.json:     func(w io.Writer) error { return writeJSON(w, r) },
		&o.html:     func(w io.Writer) error { return report.HTML(w, r, runs) },
	})
}

// write calls the writers of the forms that were asked for.
func (f *outputFlags) write(env Env, writers map[*string]func(io.Writer) error) error {
	if f.html == "" && f.markdown == "" && f.json == "" {
		f.markdown = "-"
	}
	for _, path := range []*string{&f.html, &f.markdown, &f.json} {
		write := writers[path]
		if *path == "" || write == nil {
			continue
		}
		if *path == "-" {
			if err := write(env.Stdout); err != nil {
				return err
			}
			continue
		}
		var b bytes.Buffer
		if err := write(&b); err != nil {
			return err
		}
		if err := writeWhole(*path, b.Bytes()); err != nil {
			return err
		}
	}
	return nil
}

type evalCompareOptions struct {
	outputFlags
	allowDifferent bool
}

func evalCompareCommand(env Env) *cli.Command {
	var o evalCompareOptions
	return &cli.Command{
		Name: "compare", Usage: "did a change help: fixed and broken questions, with tests", ArgsUsage: "A B",
		Description: "A and B are results files on the same questions and databases. B is judged against A.",
		Flags: append(o.flags(false),
			&cli.BoolFlag{Name: "allow-different-data", Usage: "compare the questions that are in both, whatever else differs", Destination: &o.allowDifferent}),
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 2 {
				return usagef("compare needs two results files: quern eval compare before.jsonl after.jsonl")
			}
			return compareRuns(env, o, c.Args().Get(0), c.Args().Get(1))
		},
	}
}

func compareRuns(env Env, o evalCompareOptions, pathA, pathB string) error {
	a, err := eval.ReadResults(pathA)
	if err != nil {
		return err
	}
	b, err := eval.ReadResults(pathB)
	if err != nil {
		return err
	}
	c, err := eval.Compare(a, b, o.allowDifferent)
	if err != nil {
		return err
	}
	return o.write(env, map[*string]func(io.Writer) error{
		&o.markdown: func(w io.Writer) error { return report.CompareMarkdown(w, c) },
		&o.json:     func(w io.Writer) error { return writeJSON(w, c) },
	})
}
