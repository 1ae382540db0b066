package cli

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"quern/internal/assistant"
	"quern/internal/history"
	"quern/internal/table"
	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

// askFlags are what ask and chat share: a database, and how it is asked.
type askFlags struct {
	db                 string
	confirm, noRows    bool
	describe, examples string
	votes              int
	voteTemperature    float64
	noHistory          bool
	model              modelFlags
	sql                *sqlFlags
}

func newAskFlags() *askFlags { return &askFlags{sql: newSQLFlags(sqlguard.AskPolicy())} }

func (f *askFlags) flags() []cli.Flag {
	own := []cli.Flag{
		&cli.StringFlag{Name: "db", Usage: "SQLite `FILE` to ask; it is only read", Destination: &f.db},
		&cli.BoolFlag{Name: "confirm", Usage: "show each query of the model and wait for a yes before it runs", Destination: &f.confirm},
		&cli.BoolFlag{Name: "no-rows", Usage: "hide data from the model: it sees row counts and columns, no value", Destination: &f.noRows},
		&cli.StringFlag{Name: "describe", Usage: "`FILE` (JSON or BIRD's CSV) or folder with descriptions of tables and columns", Destination: &f.describe},
		&cli.StringFlag{Name: "examples", Usage: "JSON `FILE` of question/sql pairs; the most similar are shown to the model", Destination: &f.examples},
		&cli.IntFlag{Name: "votes", Value: 1, Usage: "run so many trajectories and take the result that most agree on", Destination: &f.votes},
		&cli.Float64Flag{Name: "vote-temperature", Value: 0.7, Usage: "temperature of the trajectories after the first", Destination: &f.voteTemperature},
		&cli.BoolFlag{Name: "no-history", Usage: "do not keep the question in the history", Destination: &f.noHistory},
	}
	return append(append(own, f.model.flags()...), f.sql.flags()...)
}

// desk is an open database with its model, for one command.
type desk struct {
	*assistant.Assistant
	model   *assistant.Model
	guard   *sqlguard.Guard
	limits  sqlguard.Limits // of the person's own queries; the guard's are those that the model was trained with
	history *history.Store  // nil: none is kept
}

// query runs a statement for the person. A text without a statement, which some models were trained to see as an empty
// result, is a mistake of a person's.
func (d *desk) query(ctx context.Context, sql string) (sqlguard.Result, error) {
	result, err := d.guard.QueryLimits(ctx, sql, d.limits)
	if err == nil && result.Failure == nil && len(result.Columns) == 0 {
		result.Failure = &sqlguard.Failure{Kind: sqlguard.NoStatement, Rule: "one_statement", Message: "no SQL statement: the text is empty or only comments", Hint: "write one SELECT"}
	}
	return result, err
}

// open opens everything.
func (f *askFlags) open(ctx context.Context, env Env) (d *desk, err error) {
	if f.db == "" {
		return nil, usagef("--db is missing: the SQLite file to ask")
	}
	options, err := f.options(env)
	if err != nil {
		return nil, err
	}
	policy, err := f.sql.policy(sqlguard.AskPolicy())
	if err != nil {
		return nil, err
	}
	modelOptions, err := f.model.options()
	if err != nil {
		return nil, err
	}
	modelOptions.Load.Engine.Lanes = max(modelOptions.Load.Engine.Lanes, f.votes)
	modelOptions.LogProbs = f.votes > 1
	d = &desk{}
	defer func() {
		if err != nil {
			d.Close()
		}
	}()
	if _, err := os.Stat(f.db); err != nil { // before a model takes its time to load
		return d, err
	}
	if d.model, err = openModel(ctx, env, modelOptions); err != nil {
		return d, err
	}
	if d.guard, err = sqlguard.Open(ctx, f.db, sqltool.GuardPolicy(policy, d.model.Profile)); err != nil {
		return d, err
	}
	if note := d.guard.Note(); note != "" {
		fmt.Fprintf(env.Stderr, "quern: %s\n", note)
	}
	d.limits, options.Limits = policy.Limits, policy.Limits
	if d.Assistant, err = assistant.New(ctx, d.model, d.guard, options); err != nil {
		return d, err
	}
	if !f.noHistory {
		d.history = openHistory(env)
	}
	return d, nil
}

func (f *askFlags) options(env Env) (o assistant.Options, err error) {
	if f.votes < 1 || f.votes > 64 {
		return o, usagef("--votes %d: must be from 1 to 64", f.votes)
	}
	o = assistant.Options{NoRows: f.noRows, Votes: f.votes, Temperature: f.voteTemperature}
	if f.describe != "" {
		if o.Descriptions, err = assistant.ReadDescriptions(f.describe); err != nil {
			return o, fmt.Errorf("--describe: %w", err)
		}
	}
	if f.examples != "" {
		if o.Examples, err = assistant.ReadExamples(f.examples); err != nil {
			return o, fmt.Errorf("--examples: %w", err)
		}
	}
	if f.confirm {
		o.Confirm = confirmOn(env)
	}
	return o, nil
}

// confirmOn asks on stderr and reads the answer from stdin; anything but a yes is a no.
func confirmOn(env Env) func(context.Context, string) bool {
	in := bufio.NewReader(env.Stdin)
	return func(_ context.Context, sql string) bool {
		fmt.Fprintf(env.Stderr, "%s\nRun this query? [y/N] ", styleFor(env.Stderr).highlight(plainText(sql)))
		answer, err := in.ReadString('\n')
		if err != nil {
			fmt.Fprintln(env.Stderr)
		}
		switch strings.ToLower(strings.TrimSpace(answer)) {
		case "y", "yes":
			return true
		}
		return false
	}
}

// openHistory opens the user's history. It is a convenience: where it cannot be had, questions are answered without.
func openHistory(env Env) *history.Store {
	file, err := history.DefaultPath()
	if err == nil {
		var store *history.Store
		if store, err = history.Open(file); err == nil {
			return store
		}
	}
	fmt.Fprintf(env.Stderr, "quern: the question is not kept: %v\n", err)
	return nil
}

// Close frees everything that is open.
func (d *desk) Close() {
	if d.history != nil {
		d.history.Close()
	}
	if d.model != nil {
		d.model.Close()
	}
	if d.guard != nil {
		d.guard.Close()
	}
}

// ask asks one question and keeps it in the history; with keepTokens so that the conversation can be taken up again.
func (d *desk) ask(ctx context.Context, env Env, question, conversation string, keepTokens bool, onEvent func(toolloop.Event)) (assistant.Answer, error) {
	began := time.Now()
	answer, err := d.Ask(ctx, question, conversation, onEvent)
	if err != nil || d.history == nil {
		return answer, err
	}
	q := history.Question{
		AskedAt: began, Database: d.guard.Path(), Model: d.model.Name, Question: question, FinalSQL: answer.SQL,
		Outcome: outcome(answer), RowCount: len(answer.Result.Rows), Seconds: time.Since(began).Seconds(),
		Conversation: answer.Conversation,
	}
	if keepTokens {
		q.Tokens = d.Tokens(answer.Conversation)
	}
	if _, err := d.history.Add(context.WithoutCancel(ctx), q); err != nil {
		fmt.Fprintf(env.Stderr, "quern: %v\n", err)
	}
	return answer, nil
}

// outcome is one word on how a question ended: the loop's stop reason, or what kind of failure its query met.
func outcome(a assistant.Answer) string {
	if f := a.Result.Failure; f != nil {
		return string(f.Kind)
	}
	return string(a.Transcript.Stop)
}

type askOptions struct {
	*askFlags
	question       string
	verbose, json  bool
	format, output string
	csvSafe        bool
	transcript     string
}

func askCommand(env Env) *cli.Command {
	o := askOptions{askFlags: newAskFlags()}
	return &cli.Command{
		Name:      "ask",
		Usage:     "answer one question about a SQLite file",
		ArgsUsage: `"question"`,
		Description: `Prints the final SQL on stderr and its rows on stdout; -v shows every step. "-" reads the question from standard input.

   quern ask --model model.gguf --db shop.sqlite "Which products were never sold?"
   quern ask --model model.gguf --db shop.sqlite --format csv -o answer.csv "Revenue by month"

Exit code 0: the final query ran, also when it found no rows. 1: no answer, or something broke. 2: the command line is wrong.`,
		Flags: append([]cli.Flag{
			&cli.BoolFlag{Name: "verbose", Aliases: []string{"v"}, Usage: "show every step: what is generated, each call, the rows the model sees", Destination: &o.verbose},
			&cli.StringFlag{Name: "format", Usage: formatUsage, Destination: &o.format},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write all rows to `FILE`", Destination: &o.output},
			&cli.BoolFlag{Name: "csv-safe", Usage: "CSV: put ' before text that a spreadsheet would take for a formula", Destination: &o.csvSafe},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON document: SQL, rows, notes, transcript", Destination: &o.json},
			&cli.StringFlag{Name: "transcript", Usage: "append the transcript to `FILE` (JSON Lines; see quern transcript)", Destination: &o.transcript},
		}, o.flags()...),
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef(`ask takes one question, in quotes: quern ask --model M --db FILE "How many …?"`)
			}
			o.question = c.Args().First()
			return runAsk(c.Context, env, o)
		},
	}
}

// askDocument is the JSON of `quern ask --json`.
type askDocument struct {
	Question   string               `json:"question"`
	SQL        string               `json:"sql"`    // "" when the model gave none
	Result     *table.Document      `json:"result"` // null when there is none
	Failure    *sqlguard.Failure    `json:"failure"`
	Notes      []string             `json:"notes"`
	Agreement  int                  `json:"agreement,omitempty"` // with --votes
	Transcript *toolloop.Transcript `json:"transcript"`
}

func runAsk(ctx context.Context, env Env, o askOptions) error {
	format, err := chooseFormat(o.format, o.output)
	if err != nil {
		return err
	}
	if o.question == "-" {
		text, err := io.ReadAll(io.LimitReader(env.Stdin, 1<<20))
		if err != nil {
			return fmt.Errorf("read the question from standard input: %w", err)
		}
		o.question = strings.TrimSpace(string(text))
	}
	d, err := o.open(ctx, env)
	if err != nil {
		return err
	}
	defer d.Close()
	var onEvent func(toolloop.Event)
	show := newSteps(env.Stderr)
	if o.verbose {
		onEvent = show.event
	}
	answer, err := d.ask(ctx, env, o.question, "", false, onEvent)
	show.endLine()
	if err != nil {
		return err
	}
	if o.transcript != "" {
		if err := appendTranscript(o.transcript, answer.Transcript); err != nil {
			return err
		}
	}
	if o.json {
		if err := table.EncodeJSON(env.Stdout, askJSON(answer)); err != nil {
			return err
		}
	} else if err := printAnswer(env, answer, o.output, table.Options{Format: format, MaxCell: maxShownCell, Formulas: o.csvSafe}); err != nil {
		return err
	}
	if o.verbose {
		fmt.Fprintf(env.Stderr, "quern: %s\n", effort(answer.Transcript))
	}
	if answer.Failed() {
		return exitError(exitFailed)
	}
	return nil
}

func askJSON(a assistant.Answer) askDocument {
	doc := askDocument{Question: a.Question, SQL: a.SQL, Failure: a.Result.Failure, Notes: append([]string{}, a.Notes...), Agreement: a.Agreement, Transcript: a.Transcript}
	if !a.Failed() {
		result := table.NewDocument(a.Result)
		doc.Result = &result
	}
	return doc
}

// printAnswer writes the SQL and the notes to stderr, and the rows to stdout or a file.
func printAnswer(env Env, a assistant.Answer, output string, o table.Options) error {
	s := styleFor(env.Stderr)
	if a.SQL != "" {
		fmt.Fprintln(env.Stderr, s.highlight(plainText(a.SQL)))
	}
	if !a.Failed() {
		if err := writeRows(env, a.Result, output, o); err != nil {
			return err
		}
	}
	for _, note := range a.Notes {
		fmt.Fprintf(env.Stderr, "quern: %s\n", plainText(note))
	}
	return nil
}

// effort is what a question cost, in one line.
func effort(t *toolloop.Transcript) string {
	var decode time.Duration
	calls, decoded := 0, 0
	for _, turn := range t.Turns {
		decode += turn.Usage.Total - turn.Usage.FirstToken
		decoded += max(0, turn.Tokens-1) // the first token came with the prompt
		calls += len(turn.Calls)
	}
	tokens := t.GeneratedTokens()
	line := fmt.Sprintf("%s, %s generated in %.2f s", count(calls, "call"), count(tokens, "token"), t.Elapsed.Seconds())
	if decode > 0 && decoded > 0 {
		line += fmt.Sprintf(" (%.0f tokens/s)", float64(decoded)/decode.Seconds())
	}
	return line
}

// count writes a number of things: 1 call, 2 calls.
func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// appendTranscript adds one whole line to a file.
func appendTranscript(file string, t *toolloop.Transcript) error {
	var line strings.Builder
	if _, err := t.WriteTo(&line); err != nil {
		return err
	}
	f, err := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o644)
	if err != nil {
		return fmt.Errorf("transcript: %w", err)
	}
	if _, err := f.WriteString(line.String()); err != nil {
		f.Close()
		return fmt.Errorf("transcript %s: %w", file, err)
	}
	return f.Close()
}
