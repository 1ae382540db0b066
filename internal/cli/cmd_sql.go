package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/internal/atomicfile"
	"quern/internal/progress"
	"quern/internal/table"
	"quern/sqlguard"
)

type sqlOptions struct {
	db, statement  string
	format, output string
	json, explain  bool
	csvSafe        bool
	sql            *sqlFlags
}

func sqlCommand(env Env) *cli.Command {
	o := sqlOptions{sql: newSQLFlags(sqlguard.AskPolicy())}
	return &cli.Command{
		Name:      "sql",
		Usage:     "run one SQL statement, any SQL, against a database that cannot be harmed by it",
		ArgsUsage: `"SELECT …"`,
		Description: `Runs the statement read-only, in a worker process, within limits of time, memory, rows and bytes. What needs more than
reading is refused; --explain says by which rule, without running the statement. "-" reads it from standard input.

   quern sql --db shop.sqlite "SELECT name, price FROM product"
   quern sql --db shop.sqlite -o product.csv "SELECT * FROM product"

Exit code 1: the statement was refused, failed or was stopped.`,
		Flags: append([]cli.Flag{
			&cli.StringFlag{Name: "db", Usage: "database `FILE`", Destination: &o.db},
			&cli.StringFlag{Name: "format", Usage: formatUsage, Destination: &o.format},
			&cli.StringFlag{Name: "output", Aliases: []string{"o"}, Usage: "write the rows to `FILE`", Destination: &o.output},
			&cli.BoolFlag{Name: "csv-safe", Usage: "CSV: put ' before text that a spreadsheet would take for a formula", Destination: &o.csvSafe},
			&cli.BoolFlag{Name: "explain", Usage: "say whether the statement may run and what it needs; do not run it", Destination: &o.explain},
			&cli.BoolFlag{Name: "json", Usage: "print one JSON document, a failure included", Destination: &o.json},
		}, o.sql.flags()...),
		Action: func(c *cli.Context) error {
			if o.db == "" || c.Args().Len() != 1 {
				return usagef(`sql takes a database and one statement: quern sql --db FILE "SELECT …"`)
			}
			o.statement = c.Args().First()
			return runSQL(c.Context, env, o)
		},
	}
}

var formatUsage = "how rows are written: " + strings.Trim(fmt.Sprint(table.Formats), "[]") + " (default: table, or by the name of the output file)"

// sqlDocument is the JSON of `quern sql --json`.
type sqlDocument struct {
	table.Document
	ElapsedMS float64           `json:"elapsed_ms"`
	Failure   *sqlguard.Failure `json:"failure"` // null when the statement ran
}

func runSQL(ctx context.Context, env Env, o sqlOptions) error {
	format, err := chooseFormat(o.format, o.output)
	if err != nil {
		return err
	}
	policy, err := o.sql.policy(sqlguard.AskPolicy())
	if err != nil {
		return err
	}
	if o.statement == "-" {
		text, err := io.ReadAll(io.LimitReader(env.Stdin, 1<<20))
		if err != nil {
			return fmt.Errorf("read the statement from standard input: %w", err)
		}
		o.statement = string(text)
	}
	guard, err := sqlguard.Open(ctx, o.db, policy)
	if err != nil {
		return err
	}
	defer guard.Close()
	if note := guard.Note(); note != "" {
		fmt.Fprintf(env.Stderr, "quern: %s\n", note)
	}
	if o.explain {
		return explainSQL(ctx, env, guard, o)
	}
	result, err := guard.Query(ctx, o.statement)
	if err != nil {
		return err
	}
	if o.json {
		if err := table.EncodeJSON(env.Stdout, sqlDocument{table.NewDocument(result), result.Elapsed.Seconds() * 1000, result.Failure}); err != nil {
			return err
		}
		return exitOn(result.Failure)
	}
	if result.Failure != nil {
		fmt.Fprintf(env.Stderr, "quern: %s\n", table.Visible(result.Failure.String()))
		return exitOn(result.Failure)
	}
	if err := writeRows(env, result, o.output, table.Options{Format: format, MaxCell: maxShownCell, Formulas: o.csvSafe}); err != nil {
		return err
	}
	reportCut(env, result)
	return nil
}

func exitOn(f *sqlguard.Failure) error {
	if f != nil {
		return exitError(exitFailed)
	}
	return nil
}

// maxShownCell bounds a cell, in characters, where it is shown rather than exported.
const maxShownCell = 2000

// chooseFormat takes the flag, else what the output file's name says, else a table.
func chooseFormat(flag, output string) (table.Format, error) {
	if flag != "" {
		format, err := table.ParseFormat(flag)
		if err != nil {
			return "", usagef("--format: %v", err)
		}
		return format, nil
	}
	switch strings.ToLower(filepath.Ext(output)) {
	case ".csv":
		return table.CSV, nil
	case ".json":
		return table.JSON, nil
	case ".md":
		return table.Markdown, nil
	}
	return table.Table, nil
}

// writeRows writes a result to standard output, or whole or not at all to a file.
func writeRows(env Env, r sqlguard.Result, output string, o table.Options) error {
	if output == "" {
		o.Terminal = progress.IsTerminal(env.Stdout)
		return table.Write(env.Stdout, r, o)
	}
	f, err := atomicfile.Create(output)
	if err != nil {
		return err
	}
	defer f.Discard()
	o.MaxCell = 0 // a file gets everything
	if err := table.Write(f, r, o); err != nil {
		return f.Explain(err)
	}
	return f.Commit()
}

// reportCut says that a result is not all, and how to get more.
func reportCut(env Env, r sqlguard.Result) {
	switch r.Truncated {
	case sqlguard.CutByMaxRows:
		fmt.Fprintf(env.Stderr, "quern: these are the first %d rows, there are more; --sql-max-rows raises the limit\n", len(r.Rows))
	case sqlguard.CutByMaxBytes:
		fmt.Fprintf(env.Stderr, "quern: these are the first %d rows, there are more; --sql-max-bytes raises the limit\n", len(r.Rows))
	}
}

// explainDocument is the JSON of `quern sql --explain --json`.
type explainDocument struct {
	Allowed bool              `json:"allowed"`
	Failure *sqlguard.Failure `json:"failure"`
	Uses    []sqlguard.Use    `json:"uses"`
	Columns []string          `json:"columns"`
}

func explainSQL(ctx context.Context, env Env, guard *sqlguard.Guard, o sqlOptions) error {
	d, err := guard.Explain(ctx, o.statement)
	if err != nil {
		return err
	}
	doc := explainDocument{Allowed: d.Failure == nil, Failure: d.Failure, Uses: append([]sqlguard.Use{}, d.Uses...), Columns: []string{}}
	for _, c := range d.Columns {
		doc.Columns = append(doc.Columns, c.Name)
	}
	if o.json {
		err = table.EncodeJSON(env.Stdout, doc)
	} else {
		_, err = io.WriteString(env.Stdout, explainText(doc))
	}
	if err != nil {
		return err
	}
	return exitOn(d.Failure)
}

func explainText(d explainDocument) string {
	var b strings.Builder
	if d.Allowed {
		b.WriteString("allowed: it only reads\n")
	} else {
		fmt.Fprintf(&b, "not allowed: %s\n", table.Visible(d.Failure.String()))
		if d.Failure.Rule != "" {
			fmt.Fprintf(&b, "  rule %s %s\n", d.Failure.Rule, table.Visible(d.Failure.Object))
		}
	}
	for _, use := range d.Uses {
		fmt.Fprintf(&b, "  needs %s %s\n", use.Action, table.Visible(use.Object))
	}
	return b.String()
}
