package mcpserver

import (
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"quern/sqlguard"
)

// fake answers without a model or a database.
type fake struct{}

func text(s string) sqlguard.Value { return sqlguard.Value{Kind: sqlguard.Text, Data: s} }

func (fake) Ask(_ context.Context, question string) (Answer, error) {
	if question == "unanswerable" {
		return Answer{Notes: []string{"It ran out of turns."}}, nil
	}
	return Answer{SQL: "SELECT 1", Result: sqlguard.Result{Columns: []sqlguard.Column{{Name: "n"}}, Rows: [][]sqlguard.Value{{{Kind: sqlguard.Integer, Int: 1<<62 + 1}}}}}, nil
}

func (fake) Query(_ context.Context, sql string) (sqlguard.Result, error) {
	if strings.HasPrefix(sql, "DROP") {
		return sqlguard.Result{Failure: &sqlguard.Failure{Kind: sqlguard.Refused, Message: "not authorized", Hint: "only reading is allowed"}}, nil
	}
	many := make([][]sqlguard.Value, maxRows+1)
	for i := range many {
		many[i] = []sqlguard.Value{text("x\xff")}
	}
	return sqlguard.Result{Columns: []sqlguard.Column{{Name: "a"}}, Rows: many}, nil
}

func (fake) Schema(context.Context) (sqlguard.Schema, error) {
	return sqlguard.Schema{Tables: []sqlguard.Table{{Name: "cat", SQL: "CREATE TABLE cat (name)"}, {Name: "dog", SQL: "CREATE TABLE dog (name)"}}}, nil
}

// connect starts the server and the official SDK's client on a pipe.
func connect(t *testing.T, source Source) *mcp.ClientSession {
	t.Helper()
	here, there := mcp.NewInMemoryTransports()
	ctx := context.Background()
	server, err := New(source, "pets").Connect(ctx, here, nil)
	if err != nil {
		t.Fatal(err)
	}
	client, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, there, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { client.Close(); server.Wait() })
	return client
}

func call(t *testing.T, client *mcp.ClientSession, tool string, args map[string]any) (string, bool) {
	t.Helper()
	result, err := client.CallTool(context.Background(), &mcp.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if result.StructuredContent != nil {
		out, _ := json.Marshal(result.StructuredContent)
		return string(out), result.IsError
	}
	return result.Content[0].(*mcp.TextContent).Text, result.IsError
}

func TestToolsThroughTheOfficialClient(t *testing.T) {
	client := connect(t, fake{})
	tools, err := client.ListTools(context.Background(), nil)
	if err != nil || len(tools.Tools) != 3 {
		t.Fatalf("%v, %d tools", err, len(tools.Tools))
	}
	for _, c := range []struct {
		tool    string
		args    map[string]any
		want    string
		isError bool
	}{
		{"schema", nil, `CREATE TABLE cat (name);\n\nCREATE TABLE dog (name);`, false},
		{"schema", map[string]any{"table": "DOG"}, `"CREATE TABLE dog (name);"`, false},
		{"schema", map[string]any{"table": "cow"}, "there are cat, dog", true},
		{"ask", map[string]any{"question": "how many?"}, `"row_count":1`, false},
		{"ask", map[string]any{"question": "unanswerable"}, "It ran out of turns.", true},
		{"query", map[string]any{"sql": "DROP TABLE cat"}, "not authorized only reading is allowed", true},
		{"query", map[string]any{"sql": "SELECT a"}, `"truncated":true`, false},
	} {
		got, isError := call(t, client, c.tool, c.args)
		if !strings.Contains(got, c.want) || isError != c.isError {
			t.Errorf("%s %v: error %v, %s", c.tool, c.args, isError, got)
		}
	}
}
