package cli

import (
	"context"
	"fmt"
	"io"
	"path/filepath"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/urfave/cli/v2"

	"quern/internal/mcpserver"
	"quern/sqlguard"
)

func mcpCommand(env Env) *cli.Command {
	f := newAskFlags()
	return &cli.Command{
		Name:  "mcp",
		Usage: "offer a database to an assistant over the Model Context Protocol (stdio)",
		Description: `The assistant gets three tools: ask (a question in words, answered by the local model), query (one guarded SELECT), schema.
Nothing can be changed through them. --no-rows hides data from the local model; the assistant gets the rows it asks for,
and --tables decides from which tables. In the assistant's settings:

   {"command": "quern", "args": ["mcp", "--model", "model.gguf", "--db", "shop.sqlite"]}`,
		Flags: f.flags(),
		Action: func(c *cli.Context) error {
			if f.confirm {
				return usagef("--confirm needs a terminal, which mcp does not have")
			}
			return runMCP(c.Context, env, f)
		},
	}
}

func runMCP(ctx context.Context, env Env, f *askFlags) error {
	d, err := f.open(ctx, env)
	if err != nil {
		return err
	}
	defer d.Close()
	server := mcpserver.New(mcpSource{d, env}, filepath.Base(d.guard.Path()))
	transport := &mcp.IOTransport{Reader: io.NopCloser(env.Stdin), Writer: nopCloser{env.Stdout}}
	err = server.Run(ctx, transport)
	if ctx.Err() != nil {
		return nil // stopped, as servers are
	}
	if err != nil {
		return fmt.Errorf("mcp: reading the assistant's messages from standard input: %w", err)
	}
	return nil
}

// mcpSource answers an assistant's calls from a desk.
type mcpSource struct {
	*desk
	env Env
}

func (s mcpSource) Ask(ctx context.Context, question string) (mcpserver.Answer, error) {
	a, err := s.ask(ctx, s.env, question, "", false, nil)
	return mcpserver.Answer{SQL: a.SQL, Result: a.Result, Notes: a.Notes}, err
}

func (s mcpSource) Query(ctx context.Context, sql string) (sqlguard.Result, error) {
	return s.query(ctx, sql)
}

func (s mcpSource) Schema(ctx context.Context) (sqlguard.Schema, error) {
	return s.guard.Schema(ctx, sqlguard.SchemaOptions{})
}

type nopCloser struct{ io.Writer }

func (nopCloser) Close() error { return nil }
