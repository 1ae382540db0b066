package spider

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"

	"quern/internal/pytext"
	"quern/sqlguard"
)

// Kinds of evaluation, as the scripts' --etype.
const (
	All   = "all"
	Exec  = "exec"
	Match = "match"
)

// Options are the official command lines' flags.
type Options struct {
	Type         string // All, Exec or Match; "" is All
	PlugValue    bool   // --plug_value: try the gold's values in the prediction
	KeepDistinct bool   // --keep_distinct: do not take DISTINCT out of both queries
	Legacy       bool   // also what taoyds/spider's evaluation.py makes of it
}

func (o Options) exec() bool  { return o.Type != Match }
func (o Options) match() bool { return o.Type != Exec }

// Outcome is what one official script makes of a pair.
type Outcome struct {
	Hardness   string    `json:"hardness,omitempty"` // easy, medium, hard, extra; empty when the gold does not parse
	Exec       *bool     `json:"exec,omitempty"`     // nil where it was not asked for, or the script ends before
	Exact      *bool     `json:"exact,omitempty"`    // the same
	Partial    []Partial `json:"partial,omitempty"`  // in the order of Parts; nil without Exact
	PredParses bool      `json:"pred_parses"`        // by Spider's grammar
	Crash      *Crash    `json:"crash,omitempty"`    // the exception with which the script ends on this pair
}

// counted reports whether the script's totals include the pair.
func (o *Outcome) counted() bool { return o != nil && o.Crash == nil && o.Hardness != "" }

// MarshalJSON writes the five numbers of a partial score as a list: acc, rec, f1, label total, pred total.
func (p Partial) MarshalJSON() ([]byte, error) {
	return json.Marshal([5]int{p.Acc, p.Rec, p.F1, p.Label, p.Pred})
}

// UnmarshalJSON reads what MarshalJSON writes.
func (p *Partial) UnmarshalJSON(data []byte) error {
	var n [5]int
	if err := json.Unmarshal(data, &n); err != nil {
		return err
	}
	*p = Partial{n[0], n[1], n[2], n[3], n[4]}
	return nil
}

// judgeTestSuite is taoyds/test-suite-sql-eval on one pair. Where the script ends before it executes, the queries are run
// all the same: execution then tells what happened here. No prediction at all is a wrong one.
func (s *Scorer) judgeTestSuite(ctx context.Context, q *pair, pred string) (Outcome, execution, error) {
	pred = strings.ReplaceAll(pred, "value", "1")
	p, out, err := s.parsePair(ctx, q, pred, false)
	if err != nil {
		return out, execution{}, err
	}
	var e execution
	if s.opts.exec() && pred == "" {
		out.Exec = new(bool)
	} else if s.opts.exec() {
		if e, err = q.execute(ctx, pred, s.opts); err != nil {
			return out, e, err
		}
		out.Exec = &e.correct
		out.end(e.crash)
	}
	if s.opts.match() && p.gold != nil {
		out.end(s.matchPair(q.db, p, &out))
	}
	return out, e, nil
}

// judgeLegacy is taoyds/spider on one pair.
func (s *Scorer) judgeLegacy(ctx context.Context, q *pair, pred string) (Outcome, execution, error) {
	p, out, err := s.parsePair(ctx, q, pred, true)
	if err != nil || p.gold == nil {
		return out, execution{}, err
	}
	if failure := s.normalizePair(q.db, p); failure != nil {
		out.end(failure)
		return out, execution{}, nil
	}
	var e execution
	if s.opts.exec() && pred == "" {
		out.Exec = new(bool)
	} else if s.opts.exec() {
		if e, err = q.legacyExecute(ctx, pred, p.gold, p.pred); err != nil {
			return out, e, err
		}
		out.Exec = &e.correct
		out.end(e.crash)
	}
	if s.opts.match() {
		out.end(matchNormalized(p, &out))
	}
	return out, e, nil
}

// end notes the first exception.
func (o *Outcome) end(c *Crash) {
	if o.Crash == nil {
		o.Crash = c
	}
}

// parsed is a pair of parsed queries: gold is nil when it does not parse; a prediction that does not parse is an empty
// query.
type parsed struct{ gold, pred *SQL }

func (s *Scorer) parsePair(ctx context.Context, q *pair, pred string, legacy bool) (p parsed, out Outcome, err error) {
	schema, failure, err := s.schema(ctx, q.database)
	if err != nil || failure != nil {
		out.end(failure)
		return p, out, err
	}
	if p.pred, failure = parse(pred, schema, legacy); failure != nil {
		p.pred = &SQL{Select: Select{Distinct: False}}
	}
	out.PredParses = failure == nil
	if p.gold, failure = parse(q.gold, schema, legacy); failure != nil {
		failure.Reason = "Spider's grammar does not cover the gold query: " + failure.Reason
		out.end(failure)
		return p, out, nil
	}
	if out.Hardness, failure = hardness(p.gold); failure != nil {
		p.gold = nil
		out.end(failure)
	}
	return p, out, nil
}

func (s *Scorer) matchPair(db string, p parsed, out *Outcome) *Crash {
	if failure := s.normalizePair(db, p); failure != nil {
		return failure
	}
	return matchNormalized(p, out)
}

func (s *Scorer) normalizePair(db string, p parsed) *Crash {
	keys, ok := s.keys[db]
	if !ok {
		return crash("KeyError", "tables.json has no database %s", db)
	}
	if failure := normalize(p.gold, keys); failure != nil {
		return failure
	}
	return normalize(p.pred, keys)
}

func matchNormalized(p parsed, out *Outcome) *Crash {
	exact, parts, failure := match(p.pred, p.gold)
	if failure == nil {
		out.Exact, out.Partial = &exact, parts
	}
	return failure
}

// schemaEntry is a database's schema, read once.
type schemaEntry struct {
	once    sync.Once
	schema  *Schema
	failure *Crash
	err     error
}

// schema reads a database's tables and columns as the scripts do. They put the tables' names into a PRAGMA without quotes;
// one that needs quotes ends them.
func (s *Scorer) schema(ctx context.Context, database string) (*Schema, *Crash, error) {
	s.mu.Lock()
	entry := s.schemas[database]
	if entry == nil {
		entry = &schemaEntry{}
		s.schemas[database] = entry
	}
	s.mu.Unlock()
	entry.once.Do(func() { entry.schema, entry.failure, entry.err = s.readSchema(ctx, database) })
	if entry.err != nil { // of the moment, not of the database
		s.mu.Lock()
		delete(s.schemas, database)
		s.mu.Unlock()
	}
	return entry.schema, entry.failure, entry.err
}

func (s *Scorer) readSchema(ctx context.Context, database string) (*Schema, *Crash, error) {
	names, failure, err := s.readColumn(ctx, database, "SELECT name FROM sqlite_master WHERE type='table'", 0)
	if err != nil || failure != nil {
		return nil, failure, err
	}
	columns := map[string][]string{}
	var tables []string
	for _, table := range names {
		if _, twice := columns[table]; !twice {
			tables = append(tables, table)
		}
		columns[table], failure, err = s.readColumn(ctx, database, "PRAGMA table_info("+table+")", 1)
		if err != nil || failure != nil {
			return nil, failure, err
		}
	}
	return newSchema(tables, columns), nil, nil
}

// readColumn runs a query and returns one column of its result as lower-case text.
func (s *Scorer) readColumn(ctx context.Context, database, sql string, column int) ([]string, *Crash, error) {
	result, err := s.exec.Gold(ctx, database, sql)
	if err = harnessError(result, err); err != nil {
		return nil, nil, err
	}
	if result.Failure != nil {
		return nil, crash("OperationalError", "the schema cannot be read: %s: %s", sql, result.Failure.Message), nil
	}
	var out []string
	for _, row := range result.Rows {
		if row[column].Kind != sqlguard.Text {
			return nil, nil, fmt.Errorf("%s on %s: a name that is no text", sql, database)
		}
		out = append(out, pytext.Lower(row[column].Data))
	}
	return out, nil, nil
}
