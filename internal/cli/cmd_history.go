package cli

import (
	"context"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"quern/internal/history"
	"quern/internal/table"
	"quern/sqlguard"
)

func historyCommand(env Env) *cli.Command {
	var filter history.Filter
	var asJSON, clear bool
	return &cli.Command{
		Name:      "history",
		Usage:     "what was asked, and what came of it",
		ArgsUsage: "[text]",
		Description: `Lists questions, newest first; with a text only those that hold it in the question or its SQL. The history is a SQLite
file in your data folder (QUERN_HISTORY names another);
 answers are not kept, but a chat is, with what its model saw (--no-history keeps nothing).`,
		Flags: []cli.Flag{
			&cli.IntFlag{Name: "n", Value: 50, Usage: "how many", Destination: &filter.Limit},
			&cli.BoolFlag{Name: "json", Usage: "as a JSON list", Destination: &asJSON},
			&cli.BoolFlag{Name: "clear", Usage: "forget all questions (saved queries stay)", Destination: &clear},
		},
		Action: func(c *cli.Context) error {
			filter.Text = c.Args().First()
			return withHistory(func(store *history.Store) error {
				if clear {
					n, err := store.Clear(c.Context)
					if err == nil {
						fmt.Fprintf(env.Stderr, "quern: %d questions forgotten\n", n)
					}
					return err
				}
				return listHistory(c.Context, env, store, filter, asJSON)
			})
		},
	}
}

func withHistory(work func(*history.Store) error) error {
	file, err := history.DefaultPath()
	if err != nil {
		return err
	}
	store, err := history.Open(file)
	if err != nil {
		return err
	}
	defer store.Close()
	return work(store)
}

func listHistory(ctx context.Context, env Env, store *history.Store, filter history.Filter, asJSON bool) error {
	questions, err := store.Questions(ctx, filter)
	if err != nil {
		return err
	}
	if asJSON {
		return table.EncodeJSON(env.Stdout, append([]history.Question{}, questions...))
	}
	rows := sqlguard.Result{Columns: columns("id", "asked", "question", "SQL", "outcome", "rows")}
	for _, q := range questions {
		rows.Rows = append(rows.Rows, []sqlguard.Value{
			integer(q.ID), textValue(q.AskedAt.Local().Format(time.DateTime)), textValue(q.Question), textValue(q.FinalSQL), textValue(q.Outcome), integer(int64(q.RowCount)),
		})
	}
	return table.Write(env.Stdout, rows, table.Options{MaxCell: 200})
}

func savedCommand(env Env) *cli.Command {
	var asJSON bool
	return &cli.Command{
		Name:  "saved",
		Usage: "queries that were kept under a name (chat: .save NAME)",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "as a JSON list", Destination: &asJSON}},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("saved lists; saved show NAME prints one, saved remove NAME drops it")
			}
			return withHistory(func(store *history.Store) error { return listSaved(c.Context, env, store, asJSON) })
		},
		Subcommands: []*cli.Command{
			{
				Name: "show", Usage: "print the SQL, for: quern sql --db FILE \"$(quern saved show NAME)\"", ArgsUsage: "NAME",
				Action: func(c *cli.Context) error {
					return withHistory(func(store *history.Store) error { return showSaved(c.Context, env, store, c.Args().First()) })
				},
			},
			{
				Name: "remove", Usage: "drop a saved query", ArgsUsage: "NAME",
				Action: func(c *cli.Context) error {
					return withHistory(func(store *history.Store) error {
						found, err := store.Remove(c.Context, c.Args().First())
						if err == nil && !found {
							err = fmt.Errorf("no saved query %q", c.Args().First())
						}
						return err
					})
				},
			},
		},
	}
}

func listSaved(ctx context.Context, env Env, store *history.Store, asJSON bool) error {
	saved, err := store.SavedQueries(ctx, "")
	if err != nil {
		return err
	}
	if asJSON {
		return table.EncodeJSON(env.Stdout, append([]history.Saved{}, saved...))
	}
	rows := sqlguard.Result{Columns: columns("name", "question", "SQL", "database")}
	for _, q := range saved {
		rows.Rows = append(rows.Rows, []sqlguard.Value{textValue(q.Name), textValue(q.Question), textValue(q.SQL), textValue(q.Database)})
	}
	return table.Write(env.Stdout, rows, table.Options{MaxCell: 200})
}

func showSaved(ctx context.Context, env Env, store *history.Store, name string) error {
	if name == "" {
		return usagef("saved show takes a name")
	}
	found, err := store.SavedQueries(ctx, name)
	if err != nil {
		return err
	}
	if len(found) == 0 {
		return fmt.Errorf("no saved query %q; quern saved lists them", name)
	}
	_, err = fmt.Fprintln(env.Stdout, found[0].SQL)
	return err
}

func columns(names ...string) []sqlguard.Column {
	list := make([]sqlguard.Column, len(names))
	for i, name := range names {
		list[i].Name = name
	}
	return list
}

func textValue(s string) sqlguard.Value { return sqlguard.Value{Kind: sqlguard.Text, Data: s} }
func integer(n int64) sqlguard.Value    { return sqlguard.Value{Kind: sqlguard.Integer, Int: n} }
