// Package mcpserver offers a database to assistants over the Model Context Protocol: ask it a question, query it
// behind the guard, read its schema.
package mcpserver

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"quern/internal/buildinfo"
	"quern/sqlguard"
)

// Source is the database that is served.
type Source interface {
	// Ask answers a question with the local model; what went wrong is in Answer.Notes, an error means our side broke.
	Ask(ctx context.Context, question string) (Answer, error)
	Query(ctx context.Context, sql string) (sqlguard.Result, error)
	Schema(ctx context.Context) (sqlguard.Schema, error)
}

// Answer is what a question came to.
type Answer struct {
	SQL    string
	Result sqlguard.Result
	Notes  []string
}

// maxRows is how many rows an assistant is shown; it is told how many there were.
const maxRows = 200

type askInput struct {
	Question string `json:"question" jsonschema:"a question about the database, in words"`
}

type queryInput struct {
	SQL string `json:"sql" jsonschema:"one SQLite SELECT statement"`
}

type schemaInput struct {
	Table string `json:"table,omitempty" jsonschema:"only this table or view"`
}

type rowsOutput struct {
	SQL       string   `json:"sql,omitempty" jsonschema:"the statement that ran"`
	Columns   []string `json:"columns" jsonschema:"names of the columns"`
	Rows      [][]any  `json:"rows" jsonschema:"rows; blobs as hex text"`
	RowCount  int      `json:"row_count" jsonschema:"rows of the result, also those not shown"`
	Truncated bool     `json:"truncated" jsonschema:"true when rows are missing here"`
	Notes     []string `json:"notes,omitempty" jsonschema:"what a reader should know about the result"`
}

type schemaOutput struct {
	DDL string `json:"ddl" jsonschema:"CREATE statements"`
}

// New makes an MCP server over source. name is the database's name for people.
func New(source Source, name string) *mcp.Server {
	server := mcp.NewServer(&mcp.Implementation{Name: "quern", Version: buildinfo.Version}, &mcp.ServerOptions{
		Instructions: "Answers questions about the SQLite database " + name + ". Nothing can be changed through it.",
	})
	readOnly := &mcp.ToolAnnotations{ReadOnlyHint: true, IdempotentHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "schema", Annotations: readOnly, Description: "The tables and views of " + name + " as CREATE statements."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in schemaInput) (*mcp.CallToolResult, schemaOutput, error) {
			return schema(ctx, source, in)
		})
	mcp.AddTool(server, &mcp.Tool{Name: "query", Annotations: readOnly, Description: "Run one SELECT statement on " + name + ". Anything that writes is refused."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in queryInput) (*mcp.CallToolResult, rowsOutput, error) {
			result, err := source.Query(ctx, in.SQL)
			if err != nil {
				return nil, rowsOutput{}, err
			}
			return rows(in.SQL, result, nil)
		})
	mcp.AddTool(server, &mcp.Tool{Name: "ask", Annotations: readOnly, Description: "Answer a question about " + name + " with a local text-to-SQL model: it writes SQL, runs it, and returns the SQL with its rows."},
		func(ctx context.Context, _ *mcp.CallToolRequest, in askInput) (*mcp.CallToolResult, rowsOutput, error) {
			answer, err := source.Ask(ctx, in.Question)
			if err != nil {
				return nil, rowsOutput{}, err
			}
			if answer.SQL == "" {
				return failed("The model gave no SQL. " + strings.Join(answer.Notes, " "))
			}
			return rows(answer.SQL, answer.Result, answer.Notes)
		})
	return server
}

func schema(ctx context.Context, source Source, in schemaInput) (*mcp.CallToolResult, schemaOutput, error) {
	all, err := source.Schema(ctx)
	if err != nil {
		return nil, schemaOutput{}, err
	}
	var ddl, names []string
	for _, t := range all.Tables {
		names = append(names, t.Name)
		if in.Table == "" || strings.EqualFold(in.Table, t.Name) {
			ddl = append(ddl, t.SQL+";")
		}
	}
	if in.Table != "" && len(ddl) == 0 {
		return nil, schemaOutput{}, fmt.Errorf("no table %q; there are %s", in.Table, strings.Join(names, ", "))
	}
	return nil, schemaOutput{DDL: strings.Join(ddl, "\n\n")}, nil
}

// rows turns a result into a tool's answer. A statement that failed is an error that the assistant can read and mend.
func rows(sql string, result sqlguard.Result, notes []string) (*mcp.CallToolResult, rowsOutput, error) {
	if f := result.Failure; f != nil {
		return failed(strings.TrimSpace(f.Message + " " + f.Hint))
	}
	out := rowsOutput{SQL: sql, Columns: []string{}, Rows: [][]any{}, RowCount: len(result.Rows), Notes: notes,
		Truncated: result.Truncated != sqlguard.Whole || len(result.Rows) > maxRows}
	for _, c := range result.Columns {
		out.Columns = append(out.Columns, c.Name)
	}
	for _, row := range result.Rows[:min(maxRows, len(result.Rows))] {
		cells := make([]any, len(row))
		for i, v := range row {
			cells[i] = jsonValue(v)
		}
		out.Rows = append(out.Rows, cells)
	}
	return nil, out, nil
}

func failed(text string) (*mcp.CallToolResult, rowsOutput, error) {
	return nil, rowsOutput{}, fmt.Errorf("%s", text) // the SDK turns it into a result with isError set
}

// jsonValue keeps every value exact: integers beyond JavaScript's range as numbers all the same, what JSON cannot say
// as text.
func jsonValue(v sqlguard.Value) any {
	switch v.Kind {
	case sqlguard.Integer:
		return json.Number(fmt.Sprint(v.Int))
	case sqlguard.Real:
		if math.IsInf(v.Real, 0) || math.IsNaN(v.Real) {
			return fmt.Sprint(v.Real)
		}
		return v.Real
	case sqlguard.Text:
		return strings.ToValidUTF8(v.Data, "\uFFFD")
	case sqlguard.Blob:
		return fmt.Sprintf("%x", v.Data)
	default:
		return nil
	}
}
