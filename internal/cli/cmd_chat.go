package cli

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/peterh/liner"
	"github.com/urfave/cli/v2"

	"quern/internal/assistant"
	"quern/internal/history"
	"quern/internal/progress"
	"quern/internal/table"
	"quern/sqlguard"
	"quern/toolloop"
)

func chatCommand(env Env) *cli.Command {
	f := newAskFlags()
	var resume string
	return &cli.Command{
		Name:  "chat",
		Usage: "a conversation about a SQLite file, with follow-up questions",
		Description: `Ask, look at the rows, ask on: "and by year?". Lines that begin with a point are commands, .help lists them. Ctrl-C stops
an answer, not the program. Without a terminal it reads one question a line.

   quern chat --model model.gguf --db shop.sqlite
   quern chat --model model.gguf --db shop.sqlite --resume last`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "resume", Usage: "take up an earlier conversation: its `ID`, or last", Destination: &resume},
		}, f.flags()...),
		Action: func(c *cli.Context) error { return runChat(c.Context, env, f, resume) },
	}
}

// chat is a conversation under way.
type chat struct {
	*desk
	env          Env
	in           lineReader
	conversation string
	last         assistant.Answer // the newest answer
}

// lineReader gives one line of input at a time; io.EOF ends it, errAborted means Ctrl-C at the prompt.
type lineReader interface {
	Line() (string, error)
	Close() error
}

var errAborted = errors.New("aborted")

func runChat(ctx context.Context, env Env, f *askFlags, resume string) error {
	d, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer d.Close()
	c := &chat{desk: d, env: env, in: newLineReader(env)}
	defer c.in.Close()
	if _, ok := c.in.(*terminalReader); ok {
		// Main's context ends at the first Ctrl-C, which here stops no more than what runs.
		var stop context.CancelFunc
		ctx, stop = signal.NotifyContext(context.WithoutCancel(ctx), syscall.SIGTERM)
		defer stop()
	}
	if resume != "" {
		if err := c.resume(ctx, resume); err != nil {
			return err
		}
	}
	fmt.Fprintf(env.Stderr, "%s on %s. .help lists commands, Ctrl-D ends.\n", d.model.Name, filepath.Base(d.guard.Path()))
	return c.loop(ctx)
}

func (c *chat) loop(ctx context.Context) error {
	for {
		line, err := c.line(ctx)
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errAborted):
			continue
		case err != nil:
			return err
		}
		line = strings.TrimSpace(line)
		if line == ".quit" || line == ".exit" {
			return nil
		}
		switch err := c.handle(ctx, line); {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, context.Canceled):
			fmt.Fprintln(c.env.Stderr, "quern: Stopped.")
		case err != nil:
			fmt.Fprintf(c.env.Stderr, "quern: %v\n", err)
		}
	}
}

// line reads one line, or gives up when ctx ends.
func (c *chat) line(ctx context.Context) (string, error) {
	type read struct {
		line string
		err  error
	}
	got := make(chan read, 1)
	go func() {
		line, err := c.in.Line()
		got <- read{line, err}
	}()
	select {
	case r := <-got:
		return r.line, r.err
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// handle does what a line asks for; Ctrl-C stops it.
func (c *chat) handle(ctx context.Context, line string) error {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	switch {
	case line == "":
		return nil
	case strings.HasPrefix(line, "."):
		name, rest, _ := strings.Cut(line, " ")
		return c.command(ctx, name, strings.TrimSpace(rest))
	default:
		return c.question(ctx, line)
	}
}

// question asks. An answer that is stopped leaves the conversation as it was.
func (c *chat) question(ctx context.Context, question string) error {
	show := newSteps(c.env.Stderr)
	answer, err := c.ask(ctx, c.env, question, c.conversation, true, show.event)
	show.endLine()
	if err != nil {
		return err
	}
	c.last = answer
	if answer.Transcript.Stop != toolloop.StopCancelled {
		c.conversation = answer.Conversation
	}
	return printAnswer(c.env, answer, "", table.Options{MaxCell: maxShownCell})
}

func (c *chat) resume(ctx context.Context, id string) error {
	if c.history == nil {
		return errors.New("there is no history to resume from")
	}
	filter := history.Filter{Database: c.guard.Path(), Conversation: id, Limit: 1}
	if id == "last" {
		filter.Conversation, filter.Limit = "", 200
	}
	questions, err := c.history.Questions(ctx, filter)
	if err != nil {
		return err
	}
	for _, q := range questions {
		if len(q.Tokens) == 0 {
			continue
		}
		if q.Model != c.model.Name {
			return fmt.Errorf("that conversation was held with %s, not with %s", q.Model, c.model.Name)
		}
		if err := c.Resume(q.Conversation, q.Tokens); err != nil {
			return err
		}
		c.conversation = q.Conversation
		fmt.Fprintf(c.env.Stderr, "Going on after: %s\n", plainText(q.Question))
		return nil
	}
	return fmt.Errorf("no conversation %q about this database is kept; quern history --json lists them", id)
}

// chatCommands explain themselves in .help.
var chatCommands = []struct{ name, help string }{
	{".tables", "tables and views"},
	{".schema [TABLE]", "their definitions"},
	{".sql [SELECT …]", "the last query; with a statement, run that one"},
	{".rows [FORMAT]", "the last rows again: table, markdown, csv, json, line"},
	{".export FILE", "write the last rows, in the format that the name ends in"},
	{".save NAME", "keep the last query; quern saved lists them"},
	{".explain", "what the last query needs of the database, and how SQLite runs it"},
	{".model", "the model, its profile and what it did so far"},
	{".history [TEXT]", "what was asked before"},
	{".new", "forget this conversation and begin another"},
	{".help", "this list"},
	{".quit", "end (also Ctrl-D)"},
}

func (c *chat) command(ctx context.Context, name, rest string) error {
	switch name {
	case ".tables":
		return c.tables(ctx)
	case ".schema":
		return c.showSchema(ctx, rest)
	case ".sql":
		return c.sql(ctx, rest)
	case ".rows":
		return c.rows(rest)
	case ".export":
		return c.export(rest)
	case ".save":
		return c.save(ctx, rest)
	case ".explain":
		return c.explain(ctx)
	case ".model":
		return c.about()
	case ".history":
		if c.history == nil {
			return errors.New("no history is kept here")
		}
		return listHistory(ctx, c.env, c.history, history.Filter{Text: rest}, false)
	case ".new":
		c.conversation, c.last = "", assistant.Answer{}
		return nil
	case ".help":
		for _, command := range chatCommands {
			fmt.Fprintf(c.env.Stdout, "  %-18s %s\n", command.name, command.help)
		}
		return nil
	}
	return fmt.Errorf("no command %s; .help lists them", name)
}

func (c *chat) tables(ctx context.Context) error {
	schema, err := c.guard.Schema(ctx, sqlguard.SchemaOptions{RowCounts: 100_000})
	if err != nil {
		return err
	}
	rows := sqlguard.Result{Columns: columns("name", "kind", "columns", "rows")}
	for _, t := range schema.Tables {
		kind, count := "table", fmt.Sprint(t.Rows)
		if t.View {
			kind = "view"
		}
		if t.MoreRows {
			count += "+"
		}
		if t.Rows < 0 {
			count = ""
		}
		rows.Rows = append(rows.Rows, []sqlguard.Value{textValue(t.Name), textValue(kind), integer(int64(len(t.Columns))), textValue(count)})
	}
	return table.Write(c.env.Stdout, rows, table.Options{})
}

func (c *chat) showSchema(ctx context.Context, name string) error {
	schema, err := c.guard.Schema(ctx, sqlguard.SchemaOptions{})
	if err != nil {
		return err
	}
	found := false
	for _, t := range schema.Tables {
		if name == "" || strings.EqualFold(name, t.Name) {
			found = true
			fmt.Fprintf(c.env.Stdout, "%s;\n", plainText(t.SQL))
		}
	}
	if !found {
		return fmt.Errorf("no table %q; .tables lists them", name)
	}
	return nil
}

// sql prints the last query, or runs one that the person wrote.
func (c *chat) sql(ctx context.Context, statement string) error {
	if statement == "" {
		if c.last.SQL == "" {
			return errors.New("there is no query yet")
		}
		_, err := fmt.Fprintln(c.env.Stdout, styleFor(c.env.Stdout).highlight(plainText(c.last.SQL)))
		return err
	}
	result, err := c.query(ctx, statement)
	if err != nil {
		return err
	}
	if result.Failure != nil {
		return errors.New(result.Failure.String())
	}
	c.last = assistant.Answer{Question: c.last.Question, SQL: statement, Result: result, Transcript: c.last.Transcript}
	return c.rows("")
}

func (c *chat) rows(format string) error {
	if c.last.SQL == "" || c.last.Failed() {
		return errors.New("there are no rows yet")
	}
	f, err := chooseFormat(format, "")
	if err != nil {
		return err
	}
	if err := writeRows(c.env, c.last.Result, "", table.Options{Format: f, MaxCell: maxShownCell}); err != nil {
		return err
	}
	reportCut(c.env, c.last.Result)
	return nil
}

func (c *chat) export(file string) error {
	switch {
	case file == "":
		return errors.New(".export takes the name of a file, such as answer.csv")
	case c.last.SQL == "" || c.last.Failed():
		return errors.New("there are no rows yet")
	}
	format, err := chooseFormat("", file)
	if err != nil {
		return err
	}
	if err := writeRows(c.env, c.last.Result, file, table.Options{Format: format}); err != nil {
		return err
	}
	fmt.Fprintf(c.env.Stderr, "%s in %s\n", count(len(c.last.Result.Rows), "row"), file)
	return nil
}

func (c *chat) save(ctx context.Context, name string) error {
	switch {
	case c.last.SQL == "":
		return errors.New("there is no query yet")
	case c.history == nil:
		return errors.New("no history is kept here, so nothing can be saved")
	}
	err := c.history.Save(ctx, history.Saved{Name: name, Database: c.guard.Path(), Question: c.last.Question, SQL: c.last.SQL, SavedAt: time.Now()})
	if err == nil {
		fmt.Fprintf(c.env.Stderr, "saved as %s; quern saved lists it\n", name)
	}
	return err
}

func (c *chat) explain(ctx context.Context) error {
	if c.last.SQL == "" {
		return errors.New("there is no query yet")
	}
	decision, err := c.guard.Explain(ctx, c.last.SQL)
	if err != nil {
		return err
	}
	doc := explainDocument{Allowed: decision.Failure == nil, Failure: decision.Failure, Uses: decision.Uses}
	if _, err := io.WriteString(c.env.Stdout, explainText(doc)); err != nil || decision.Failure != nil {
		return err
	}
	plan, err := c.query(ctx, "EXPLAIN QUERY PLAN "+c.last.SQL)
	if err != nil || plan.Failure != nil {
		return err // a plan is extra: a query that runs but cannot be explained is no fault
	}
	for _, row := range plan.Rows {
		fmt.Fprintf(c.env.Stdout, "  plan  %s\n", table.Cell(row[len(row)-1], 0))
	}
	return nil
}

func (c *chat) about() error {
	fmt.Fprintf(c.env.Stdout, "%s, profile %s, prompt pack %s\n", c.model.Name, c.model.Profile.Name, c.model.Pack.Name)
	if c.model.Engine != nil {
		s := c.model.Engine.Stats()
		fmt.Fprintf(c.env.Stdout, "%d requests, %d tokens generated, %d of %d prompt tokens taken from memory\n", s.Requests, s.DecodeTokens, s.PrefixHits, s.PromptTokens)
	}
	return nil
}

// newLineReader edits lines on a terminal and reads them plainly elsewhere.
func newLineReader(env Env) lineReader {
	if env.Stdin == os.Stdin && progress.IsTerminal(env.Stdout) && liner.TerminalSupported() {
		return newTerminalReader()
	}
	return plainReader{bufio.NewReader(env.Stdin)}
}

type plainReader struct{ in *bufio.Reader }

func (r plainReader) Line() (string, error) {
	line, err := r.in.ReadString('\n')
	if line != "" {
		return line, nil
	}
	return "", err
}

func (plainReader) Close() error { return nil }

// terminalReader keeps the lines of earlier runs in the user's data folder.
type terminalReader struct {
	state *liner.State
	file  string // "" when they cannot be kept
}

func newTerminalReader() *terminalReader {
	r := &terminalReader{state: liner.NewLiner()}
	r.state.SetCtrlCAborts(true)
	r.state.SetCompleter(completeCommand)
	if store, err := history.DefaultPath(); err == nil {
		r.file = filepath.Join(filepath.Dir(store), "chat-lines")
		if f, err := os.Open(r.file); err == nil {
			r.state.ReadHistory(f) // lines that cannot be read are not missed
			f.Close()
		}
	}
	return r
}

func completeCommand(line string) (found []string) {
	for _, c := range chatCommands {
		name, _, _ := strings.Cut(c.name, " ")
		if strings.HasPrefix(name, line) && strings.HasPrefix(line, ".") {
			found = append(found, name)
		}
	}
	return found
}

func (r *terminalReader) Line() (string, error) {
	line, err := r.state.Prompt("> ")
	switch {
	case errors.Is(err, liner.ErrPromptAborted):
		return "", errAborted
	case err == nil && strings.TrimSpace(line) != "":
		r.state.AppendHistory(line)
	}
	return line, err
}

func (r *terminalReader) Close() error {
	if r.file != "" && os.MkdirAll(filepath.Dir(r.file), 0o700) == nil {
		if f, err := os.OpenFile(r.file, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600); err == nil {
			r.state.WriteHistory(f) // a convenience: nothing depends on it
			f.Close()
		}
	}
	return r.state.Close()
}
