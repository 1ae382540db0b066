package spider

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"sort"
	"strings"
	"testing"

	"quern/eval"
	"quern/internal/testenv"
	"quern/sqlguard"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker()
	os.Exit(m.Run())
}

func newExecutor(t testing.TB, d eval.Deadlines) *eval.Executor {
	t.Helper()
	exec, err := eval.NewExecutor(0, d)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exec.Close() })
	return exec
}

func newScorer(t testing.TB, exec *eval.Executor, tables string, opts Options) *Scorer {
	t.Helper()
	s, err := NewScorer(exec, tables, opts)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// readRows reads a file of JSON lines and fails when there is none.
func readRows[T any](t testing.TB, path string) []T {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []T
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatalf("%s: line %d: %v", path, len(out)+1, err)
		}
		out = append(out, row)
	}
	if len(out) == 0 {
		t.Fatalf("%s has no row", path)
	}
	return out
}

// verdict is a golden one: 0, 1, or the exception with which the official run ends.
type verdict struct {
	value int
	crash string
}

func (v *verdict) UnmarshalJSON(data []byte) error {
	if json.Unmarshal(data, &v.value) == nil {
		return nil
	}
	var c struct{ Crash string }
	err := json.Unmarshal(data, &c)
	v.crash = c.Crash
	return err
}

// notCounted is how the goldens write that a blank prediction line drops the question.
const notCounted = "blank prediction line: not counted"

func verdictOf(value *bool, c *Crash) verdict {
	switch {
	case c != nil:
		return verdict{crash: c.Exception}
	case value == nil:
		return verdict{crash: "no verdict"}
	}
	return verdict{value: count(value)}
}

// goldenPair is a row of pairs.jsonl.
type goldenPair struct {
	ID, Gold, Pred string
	DB             string             `json:"db_id"`
	Hardness       string             `json:"hardness"`
	Exec           map[string]verdict `json:"exec"`
	ExecDirect     map[string]verdict `json:"exec_direct"`
	Exact          *int               `json:"exact"`
	MatchCrash     *string            `json:"match_crash"`
	Partial        map[string]goldenPartial
	GoldParse      json.RawMessage `json:"gold_parse"`
	PredParse      json.RawMessage `json:"pred_parse"`
	Legacy         struct {
		Exec        verdict
		Exact       *int
		MatchCrash  *string `json:"match_crash"`
		PartialSame bool    `json:"partial_same"`
		Partial     map[string]goldenPartial
		ParseSame   bool `json:"parse_same"`
	}
}

type goldenPartial struct {
	Acc, Rec, F1 int
	Label        int `json:"label_total"`
	Pred         int `json:"pred_total"`
}

// settings are the flags under which the goldens were made.
var settings = map[string]Options{
	"default":                  {Type: Exec},
	"keep_distinct":            {Type: Exec, KeepDistinct: true},
	"plug_value":               {Type: Exec, PlugValue: true},
	"plug_value_keep_distinct": {Type: Exec, PlugValue: true, KeepDistinct: true},
}

// Every authored pair: execution under all settings, with and without the parsing before it; exact match, partial scores,
// hardness, the parses themselves; the same by the older script.
func TestPairs(t *testing.T) {
	tables := testenv.OracleInputs(t, "eval", "spider", "tables.json")
	databases := testenv.OracleInputs(t, "eval", "spider", "database")
	before := folderHash(t, databases)
	exec := newExecutor(t, eval.Deadlines{})
	scorers := map[string]*Scorer{"match": newScorer(t, exec, tables, Options{Type: Match}), "all": newScorer(t, exec, tables, Options{Type: All, Legacy: true})}
	for name, opts := range settings {
		scorers[name] = newScorer(t, exec, tables, opts)
	}
	rows := readRows[goldenPair](t, testenv.Oracles(t, "eval", "spider", "pairs.jsonl"))
	for _, r := range rows {
		p := pairCheck{t: t, r: r, database: filepath.Join(databases, r.DB, r.DB+".sqlite"), pred: predictionOf(r.Pred)}
		for name := range settings {
			p.execution(name, scorers[name])
		}
		p.match(scorers["match"])
		p.legacy(scorers["all"])
		p.parses(scorers["match"])
	}
	t.Logf("%d pairs", len(rows))
	if folderHash(t, databases) != before {
		t.Error("a database file was changed")
	}
}

type pairCheck struct {
	t        *testing.T
	r        goldenPair
	database string
	pred     string
}

func (p *pairCheck) check(what string, got, want any) {
	if !reflect.DeepEqual(got, want) {
		p.t.Errorf("%s %s: got %+v, want %+v\n  gold %s\n  pred %s", p.r.ID, what, got, want, p.r.Gold, p.r.Pred)
	}
}

func (p *pairCheck) execution(name string, s *Scorer) {
	ctx := context.Background()
	q := s.newPair(p.r.DB, p.database, p.r.Gold)
	e, err := q.execute(ctx, p.r.Pred, s.opts)
	if err != nil {
		p.t.Errorf("%s: %v", p.r.ID, err)
		return
	}
	p.check("exec_direct "+name, verdictOf(&e.correct, e.crash), p.r.ExecDirect[name])
	out, _, err := s.judgeTestSuite(ctx, q, p.pred)
	if err != nil {
		p.t.Errorf("%s: %v", p.r.ID, err)
		return
	}
	p.check("exec "+name, p.line(verdictOf(out.Exec, out.Crash)), p.r.Exec[name])
}

// line is a verdict as it comes out of a prediction file.
func (p *pairCheck) line(v verdict) verdict {
	if p.pred == "" {
		return verdict{crash: notCounted}
	}
	return v
}

func (p *pairCheck) match(s *Scorer) {
	if p.pred == "" {
		return
	}
	out, _, err := s.judgeTestSuite(context.Background(), s.newPair(p.r.DB, p.database, p.r.Gold), p.pred)
	if err != nil {
		p.t.Errorf("%s: %v", p.r.ID, err)
		return
	}
	p.outcome("match", out, p.r.Exact, p.r.MatchCrash, p.r.Partial)
	if p.r.MatchCrash == nil {
		p.check("hardness", out.Hardness, p.r.Hardness)
	}
}

func (p *pairCheck) outcome(what string, out Outcome, exact *int, ends *string, parts map[string]goldenPartial) {
	want := verdict{}
	if ends != nil {
		want.crash = *ends
	} else if exact != nil {
		want.value = *exact
	}
	p.check(what, verdictOf(out.Exact, out.Crash), want)
	if out.Partial == nil || parts == nil {
		p.check(what+" has partial scores", out.Partial != nil, parts != nil)
		return
	}
	for i, name := range Parts {
		p.check(what+" "+name, goldenPartial(out.Partial[i]), parts[name])
	}
}

func (p *pairCheck) legacy(s *Scorer) {
	out, _, err := s.judgeLegacy(context.Background(), s.newPair(p.r.DB, p.database, p.r.Gold), p.pred)
	if err != nil {
		p.t.Errorf("%s: %v", p.r.ID, err)
		return
	}
	p.check("legacy exec", p.line(verdictOf(out.Exec, out.Crash)), p.r.Legacy.Exec)
	if p.pred == "" {
		return
	}
	parts := p.r.Legacy.Partial
	if p.r.Legacy.PartialSame {
		parts = p.r.Partial
	}
	if p.r.Legacy.MatchCrash == nil && out.Crash != nil { // execution ends where matching alone does not
		return
	}
	p.outcome("legacy match", out, p.r.Legacy.Exact, p.r.Legacy.MatchCrash, parts)
}

func (p *pairCheck) parses(s *Scorer) {
	schema, failure, err := s.schema(context.Background(), p.database)
	if err != nil {
		p.t.Fatal(err)
	}
	if failure != nil || p.pred == "" {
		return
	}
	pred := strings.ReplaceAll(p.pred, "value", "1")
	p.parse("gold", p.r.Gold, schema, p.r.GoldParse)
	p.parse("pred", pred, schema, p.r.PredParse)
	if !p.r.Legacy.ParseSame {
		return
	}
	for what, query := range map[string]string{"gold": p.r.Gold, "pred": p.pred} {
		suite, legacy := parseJSON(query, schema, false), parseJSON(query, schema, true)
		if what == "pred" {
			suite = parseJSON(pred, schema, false)
		}
		p.check("legacy parse of "+what, legacy, suite)
	}
}

func (p *pairCheck) parse(what, query string, schema *Schema, golden json.RawMessage) {
	var want any
	if json.Unmarshal(golden, &want) != nil || want == nil {
		return // the run ended before this parse
	}
	p.check("parse of "+what, parseJSON(query, schema, false), want)
}

// parseJSON is a parse, or the exception, in the form of the goldens.
func parseJSON(query string, schema *Schema, legacy bool) any {
	sql, failure := parse(query, schema, legacy)
	if failure != nil {
		return map[string]any{"error": failure.Exception}
	}
	return sqlJSON(sql)
}

func listJSON[T any](items []T, convert func(T) any) any {
	out := []any{}
	for _, item := range items {
		out = append(out, convert(item))
	}
	return out
}

func colJSON(c *ColUnit) any {
	if c == nil {
		return nil
	}
	return []any{float64(c.Agg), c.Col, c.Distinct == True}
}

func valJSON(v ValUnit) any { return []any{float64(v.Op), colJSON(v.A), colJSON(v.B)} }

func operandJSON(o Operand) any {
	switch {
	case o.Number != nil:
		return *o.Number
	case o.Text != "":
		return o.Text
	case o.Col != nil:
		return colJSON(o.Col)
	}
	return sqlJSON(o.SQL)
}

func conditionJSON(c Condition) any {
	return listJSON(c, func(part CondPart) any {
		if u := part.Unit; u != nil {
			return []any{u.Not, float64(u.Op), valJSON(u.Val), operandJSON(u.V1), operandJSON(u.V2)}
		}
		return part.Connector
	})
}

func sqlJSON(q *SQL) any {
	if q == nil {
		return nil
	}
	var limit, order any = nil, []any{}
	if q.Limit != nil {
		limit = float64(*q.Limit)
	}
	if q.OrderBy != nil {
		order = []any{q.OrderBy.Direction, listJSON(q.OrderBy.Units, valJSON)}
	}
	return map[string]any{
		"select": []any{q.Select.Distinct == True, listJSON(q.Select.Items, func(i SelectItem) any { return []any{float64(i.Agg), valJSON(i.Unit)} })},
		"from": map[string]any{"conds": conditionJSON(q.From.Conds), "table_units": listJSON(q.From.Tables, func(u TableUnit) any {
			if u.SQL != nil {
				return []any{"sql", sqlJSON(u.SQL)}
			}
			return []any{"table_unit", u.Table}
		})},
		"where": conditionJSON(q.Where), "groupBy": listJSON(q.GroupBy, func(c ColUnit) any { return colJSON(&c) }),
		"having": conditionJSON(q.Having), "orderBy": order, "limit": limit,
		"intersect": sqlJSON(q.Intersect), "union": sqlJSON(q.Union), "except": sqlJSON(q.Except),
	}
}

// folderHash is a digest of all files below a folder, names included.
func folderHash(t *testing.T, dir string) string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		list = append(list, path+"\x00"+string(data))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(list)
	return strings.Join(list, "\x00")
}
