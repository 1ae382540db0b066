package assistant

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"quern/sqlguard"
	"quern/toolloop"
)

// approval asks a person about queries and remembers which were allowed.
type approval struct {
	ask func(ctx context.Context, sql string) bool

	mu      sync.Mutex // also keeps two questions from being on the screen at once
	allowed map[string]bool
}

func newApproval(ask func(ctx context.Context, sql string) bool) *approval {
	return &approval{ask: ask, allowed: map[string]bool{}}
}

// each asks about a query, whatever was said of it before.
func (a *approval) each(ctx context.Context, sql string) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	yes := a.ask(ctx, sql)
	a.allowed[bare(sql)] = yes
	return yes
}

// final asks about the query that ends an answer, unless the same was allowed on the way.
func (a *approval) final(ctx context.Context, sql string) bool {
	a.mu.Lock()
	yes := a.allowed[bare(sql)]
	a.mu.Unlock()
	return yes || a.each(ctx, sql)
}

// bare is a statement without what makes no difference at its ends.
func bare(sql string) string { return strings.Trim(sql, "; \t\r\n") }

// confirmed asks a person before each query.
type confirmed struct {
	toolloop.Tool
	*approval
}

func (c confirmed) Call(ctx context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	sql, ok := queryArgument(c.Tool, inv)
	if ok && !c.each(ctx, sql) {
		return toolloop.Observation{SQL: sql, Failure: toolloop.FailRefused, Text: "The person at the terminal declined to run this query."}, nil
	}
	return c.Tool.Call(ctx, inv)
}

// shapes shows the model what a query gave without any value of it.
type shapes struct {
	toolloop.Tool
	guard *sqlguard.Guard
}

func (s shapes) Call(ctx context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	sql, ok := queryArgument(s.Tool, inv)
	if !ok {
		return s.Tool.Call(ctx, inv) // it says what is missing
	}
	result, err := s.guard.Query(ctx, sql)
	if err != nil {
		return toolloop.Observation{}, err
	}
	if f := result.Failure; f != nil {
		return toolloop.Observation{SQL: sql, Failure: toolloop.FailSQL, Text: "Error: " + f.Message}, nil
	}
	return toolloop.Observation{SQL: sql, Rows: len(result.Rows), Text: shapeText(result)}, nil
}

// shapeText tells rows, columns and the storage classes found in each column.
func shapeText(r sqlguard.Result) string {
	var columns []string
	for i, c := range r.Columns {
		columns = append(columns, fmt.Sprintf("%s (%s)", c.Name, classes(r.Rows, i)))
	}
	count := fmt.Sprintf("%d rows", len(r.Rows))
	if r.Truncated != sqlguard.Whole {
		count = fmt.Sprintf("more than %d rows", len(r.Rows))
	}
	return count + "; columns: " + strings.Join(columns, ", ") + ". The values are not shown."
}

func classes(rows [][]sqlguard.Value, column int) string {
	names := map[sqlguard.Kind]string{sqlguard.Null: "null", sqlguard.Integer: "integer", sqlguard.Real: "real", sqlguard.Text: "text", sqlguard.Blob: "blob"}
	var seen [len("nirtb")]bool
	for _, row := range rows {
		seen[row[column].Kind] = true
	}
	var found []string
	for kind, yes := range seen {
		if yes {
			found = append(found, names[sqlguard.Kind(kind)])
		}
	}
	if len(found) == 0 {
		return "no values"
	}
	return strings.Join(found, "/")
}

// queryArgument is the SQL of a call, when it has one.
func queryArgument(t toolloop.Tool, inv toolloop.Invocation) (string, bool) {
	required := t.Definition().Required()
	if len(required) == 0 || inv.Arguments == nil {
		return "", false
	}
	for _, m := range inv.Arguments.Members {
		if sql, ok := m.Value.(string); ok && m.Key == required[0] {
			return sql, true
		}
	}
	return "", false
}
