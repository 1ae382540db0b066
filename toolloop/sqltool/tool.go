// Package sqltool gives a model a SQLite database: the tool that runs its queries, the text of the results and the
// text of the schema, each in the form that the model's profile was trained with.
//
// For the hermes profile every byte is as Python wrote it in training, errors and cuts included. For other profiles a
// result is a compact table with the number of rows, and a failure comes with what helps to get on: the nearest names,
// values that are stored in another case.
package sqltool

import (
	"context"
	"fmt"
	"sync"

	"quern/sqlguard"
	"quern/toolloop"
)

// Database is what questions are asked of; a *sqlguard.Guard is one.
type Database interface {
	Query(ctx context.Context, sql string) (sqlguard.Result, error)
	Schema(ctx context.Context, opts sqlguard.SchemaOptions) (sqlguard.Schema, error)
}

// Tool runs a model's SQL. It may be used from many goroutines.
type Tool struct {
	db         Database
	definition toolloop.Definition
	query      string // name of the parameter that holds the SQL
	opts       Options
	hermes     bool

	mu     sync.Mutex
	schema *sqlguard.Schema // for hints; nil until one needs it
}

// Options bound what the model is shown. A zero field means the profile's default.
type Options struct {
	// hermes: the text is cut to MaxText code points on one side.
	MaxText int  // 256
	Side    Side // Middle

	// other profiles
	MaxRows  int // rows: 50
	MaxCell  int // characters of one cell: 200
	MaxTable int // characters of all rows: 8000
}

// New returns the tool that declaration declares, with results in the form of the profile. Its first required
// parameter is the SQL.
func New(db Database, profile toolloop.Profile, declaration string, opts Options) (*Tool, error) {
	definition, err := toolloop.NewDefinition(declaration)
	if err != nil {
		return nil, err
	}
	required := definition.Required()
	if len(required) == 0 {
		return nil, fmt.Errorf("sqltool: tool %s requires no parameter, so that none is known to hold the SQL", definition.Name)
	}
	setDefault(&opts.MaxText, 256)
	setDefault(&opts.MaxRows, 50)
	setDefault(&opts.MaxCell, 200)
	setDefault(&opts.MaxTable, 8000)
	if opts.Side == "" {
		opts.Side = Middle
	}
	return &Tool{db: db, definition: definition, query: required[0], opts: opts, hermes: profile.Name == toolloop.ProfileHermes}, nil
}

func setDefault(n *int, value int) {
	if *n == 0 {
		*n = value
	}
}

// Definition is the declaration that New was given.
func (t *Tool) Definition() toolloop.Definition { return t.definition }

// Call runs the SQL in the arguments.
func (t *Tool) Call(ctx context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	if t.hermes {
		return t.callHermes(ctx, inv.Arguments)
	}
	return t.callCompact(ctx, inv)
}

// failureKind is the loop's word for a failure of the guard.
func failureKind(f *sqlguard.Failure) toolloop.FailureKind {
	switch f.Kind {
	case sqlguard.Refused, sqlguard.MultipleStatements, sqlguard.NoStatement, sqlguard.Parameters, sqlguard.BadText:
		return toolloop.FailRefused
	case sqlguard.TimedOut:
		return toolloop.FailTimeout
	case sqlguard.OutOfMemory, sqlguard.TooBig:
		return toolloop.FailTooLarge
	}
	return toolloop.FailSQL
}

// maxFull is how much of a result a transcript keeps, in code points.
const maxFull = 1 << 16

// observation is what the model is shown and, where that is less, what there was.
func observation(sql, full, shown string) toolloop.Observation {
	obs := toolloop.Observation{SQL: sql, Text: shown}
	if shown != full {
		obs.Full = Truncate(full, maxFull, Middle)
	}
	return obs
}

// GuardPolicy is the policy to open a guard with for this profile: for hermes as Oumi's run_sql had its connection in
// training (Python's sqlite3, 100 million VM instructions, no cap on rows), for the others the base unchanged.
func GuardPolicy(base sqlguard.Policy, profile toolloop.Profile) sqlguard.Policy {
	if profile.Name != toolloop.ProfileHermes {
		return base
	}
	base.Python, base.DoubleQuotedStrings = true, true
	base.Limits.MaxOps = 100_000_000
	base.Limits.MaxRows = max(base.Limits.MaxRows, 500_000)
	return base
}
