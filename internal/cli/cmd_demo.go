package cli

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"quern/internal/assistant"
	"quern/internal/demo"
	"quern/internal/table"
	"quern/sqlguard"
	"quern/toolloop/sqltool"
)

func demoCommand(env Env) *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name:      "demo",
		Usage:     "watch a tiny embedded model answer three questions about a sample database",
		ArgsUsage: `["question"…]`,
		Description: `Everything is inside the binary: a model of 1.28 million parameters that was trained for this, and a database of ports and
vessels. It shows each step: the query that the model runs, the rows that it reads, its answer. Questions of your own
are welcome; it knows 17 kinds.`,
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "print the transcripts, one JSON line each", Destination: &asJSON}},
		Action: func(c *cli.Context) error {
			questions := c.Args().Slice()
			if len(questions) == 0 {
				questions = demo.Questions
			}
			return runDemo(c.Context, env, questions, asJSON)
		},
	}
}

func runDemo(ctx context.Context, env Env, questions []string, asJSON bool) error {
	files, err := demo.Unpack()
	if err != nil {
		return err
	}
	defer files.Remove()
	a, done, err := openDemo(ctx, files)
	if err != nil {
		return err
	}
	defer done()
	s := styleFor(env.Stdout)
	if !asJSON {
		fmt.Fprintf(env.Stdout, "%s, %d parameters, reads %s\n", a.Model().Name, a.Model().Weights().Parameters(), s.bold("harbor.sqlite"))
	}
	failed := false
	for i, question := range questions {
		if err := demoQuestion(ctx, env, a, i, question, asJSON, &failed); err != nil {
			return err
		}
	}
	if !asJSON {
		fmt.Fprintf(env.Stdout, `
%s
For real questions take a real model:
  quern pull Qwen/Qwen2.5-3B-Instruct-GGUF:*q8_0.gguf
  quern ask --model FILE.gguf --db YOUR.sqlite "a question"
`, s.dim("This tiny model is "+demo.Accuracy+"."))
	}
	if failed {
		return exitError(exitFailed)
	}
	return nil
}

// openDemo opens the demo's model on the demo's database.
func openDemo(ctx context.Context, files demo.Files) (*assistant.Assistant, func(), error) {
	model, err := assistant.OpenModel(ctx, assistant.ModelOptions{Path: files.Model})
	if err != nil {
		return nil, nil, err
	}
	guard, err := sqlguard.Open(ctx, files.Database, sqltool.GuardPolicy(sqlguard.AskPolicy(), model.Profile))
	if err != nil {
		model.Close()
		return nil, nil, err
	}
	done := func() { model.Close(); guard.Close() }
	a, err := assistant.New(ctx, model, guard, assistant.Options{})
	if err != nil {
		done()
		return nil, nil, err
	}
	return a, done, nil
}

func demoQuestion(ctx context.Context, env Env, a *assistant.Assistant, i int, question string, asJSON bool, failed *bool) error {
	s, show := styleFor(env.Stdout), newSteps(env.Stdout)
	if asJSON {
		answer, err := a.Ask(ctx, question, "", nil)
		if err != nil {
			return err
		}
		*failed = *failed || answer.Failed()
		return json.NewEncoder(env.Stdout).Encode(answer.Transcript)
	}
	fmt.Fprintf(env.Stdout, "\n%d. %s\n", i+1, s.bold(plainText(question)))
	answer, err := a.Ask(ctx, question, "", show.event)
	show.endLine()
	if err != nil {
		return err
	}
	*failed = *failed || answer.Failed()
	if answer.SQL != "" {
		fmt.Fprintf(env.Stdout, "  = %s\n", s.highlight(plainText(answer.SQL)))
	}
	if !answer.Failed() {
		if err := table.Write(env.Stdout, answer.Result, table.Options{MaxCell: maxShownCell}); err != nil {
			return err
		}
	}
	for _, note := range answer.Notes {
		fmt.Fprintf(env.Stdout, "  %s\n", plainText(note))
	}
	fmt.Fprintf(env.Stdout, "  %s\n", s.dim(effort(answer.Transcript)))
	return nil
}
