package spider

import (
	"strings"

	"quern/internal/pytext"
)

// SQL is a query as Spider's grammar understands it (process_sql.py of either repository).
type SQL struct {
	Select  Select
	From    From
	Where   Condition
	GroupBy []ColUnit
	Having  Condition
	OrderBy *OrderBy // nil without ORDER BY
	Limit   *int64   // nil without LIMIT; 1 for any number in the test-suite scripts

	Intersect, Union, Except *SQL // at most one of them is set
}

// Select is the SELECT list.
type Select struct {
	Distinct Flag
	Items    []SelectItem
}

// SelectItem is one item of a SELECT list, with the aggregate around the whole of it.
type SelectItem struct {
	Agg  int // index into aggregates
	Unit ValUnit
}

// From is the FROM clause. Conds are all ON conditions, joined by "and".
type From struct {
	Tables []TableUnit
	Conds  Condition
}

// TableUnit is a table by its identifier, or a subquery.
type TableUnit struct {
	Table string
	SQL   *SQL
}

// ColUnit is a column, perhaps inside an aggregate.
type ColUnit struct {
	Agg      int
	Col      string // identifier, such as "__t.c__"
	Distinct Flag
}

// ValUnit is a column or an operation on two.
type ValUnit struct {
	Op   int // index into unitOps; 0 is none, and then B is nil
	A, B *ColUnit
}

// Condition is a WHERE, HAVING or ON clause: conditions and connectors in the order of the text. They alternate, except in
// malformed texts that the grammar lets through.
type Condition []CondPart

// CondPart is a connector, "and" or "or", or else a condition.
type CondPart struct {
	Connector string
	Unit      *CondUnit
}

// CondUnit is one comparison.
type CondUnit struct {
	Not    bool
	Op     int // index into whereOps
	Val    ValUnit
	V1, V2 Operand
}

// Operand is the right side of a comparison: at most one field is set.
type Operand struct {
	Number *float64
	Text   string // with its quotes
	Col    *ColUnit
	SQL    *SQL
}

// OrderBy is the ORDER BY clause. There is one direction for the whole list, the last that was written.
type OrderBy struct {
	Direction string // "asc" or "desc"
	Units     []ValUnit
}

// Flag is a boolean that the comparison can blank out, after which it equals every other blank one.
type Flag uint8

// Values of a Flag.
const (
	Blank Flag = iota
	False
	True
)

func flagOf(b bool) Flag {
	if b {
		return True
	}
	return False
}

var (
	clauseKeywords = []string{"select", "from", "where", "group", "order", "limit", "intersect", "union", "except"}
	joinKeywords   = []string{"join", "on", "as"}
	whereOps       = []string{"not", "between", "=", ">", "<", ">=", "<=", "!=", "in", "like", "is", "exists"}
	unitOps        = []string{"none", "-", "+", "*", "/"}
	aggregates     = []string{"none", "max", "min", "count", "sum", "avg"}
)

const (
	opBetween = 1
	opIn      = 8
	opLike    = 9
)

func indexOf(list []string, s string) int {
	for i, x := range list {
		if x == s {
			return i
		}
	}
	return -1
}

// maxDepth is how deep queries may nest before Python's recursion limit ends the scripts' parser.
const maxDepth = 190

// parse reads a query by Spider's grammar. What is left over behind a complete query is ignored. legacy is the older
// script's grammar, which wants a number after LIMIT.
func parse(query string, schema *Schema, legacy bool) (sql *SQL, failure *Crash) {
	tokens, failure := tokenize(query)
	if failure != nil {
		return nil, failure
	}
	p := &parser{tokens: tokens, schema: schema, legacy: legacy}
	// The grammar's rules end in the exception that Python would raise, wherever they are; it is caught here.
	defer func() {
		if r := recover(); r != nil {
			c, ours := r.(*Crash)
			if !ours {
				panic(r)
			}
			sql, failure = nil, c
		}
	}()
	p.readAliases()
	sql, _ = p.query(0)
	return sql, nil
}

// parser follows the scripts' functions one by one. Each takes the position of its first token and returns the position
// behind its last.
type parser struct {
	tokens []string
	schema *Schema
	legacy bool
	alias  map[string]string // alias or table name -> table name
	depth  int
}

func (p *parser) fail(exception, format string, args ...any) {
	panic(crash(exception, format, args...))
}

func (p *parser) assert(ok bool, format string, args ...any) {
	if !ok {
		p.fail("AssertionError", format, args...)
	}
}

// tok is the token at i, which the scripts read without looking whether there is one.
func (p *parser) tok(i int) string {
	if i >= len(p.tokens) {
		p.fail("IndexError", "the query ends too early")
	}
	return p.tokens[i]
}

// is reports whether there is a token at i that equals s.
func (p *parser) is(i int, s string) bool { return i < len(p.tokens) && p.tokens[i] == s }

func (p *parser) isOneOf(i int, list []string) bool {
	return i < len(p.tokens) && indexOf(list, p.tokens[i]) >= 0
}

// ends reports whether a clause ends at i, before the token there.
func (p *parser) ends(i int) bool {
	return p.isOneOf(i, clauseKeywords) || p.is(i, ")") || p.is(i, ";")
}

func (p *parser) expect(i int, s string) int {
	p.assert(p.tok(i) == s, "%q where %q is expected", p.tok(i), s)
	return i + 1
}

// readAliases takes the words around every "as" of the text as alias and table; the last one wins. No alias may be named
// like a table of the schema.
func (p *parser) readAliases() {
	p.alias = map[string]string{}
	for i, tok := range p.tokens {
		if tok != "as" {
			continue
		}
		before := i - 1
		if before < 0 {
			before = len(p.tokens) - 1 // Python's index -1
		}
		p.alias[p.tok(i+1)] = p.tokens[before]
	}
	for _, table := range p.schema.tables {
		_, taken := p.alias[table]
		p.assert(!taken, "the alias %s is also the name of a table", table)
	}
	for _, table := range p.schema.tables {
		p.alias[table] = table
	}
}

func (p *parser) table(alias string) string {
	table, ok := p.alias[alias]
	if !ok {
		p.fail("KeyError", "no table or alias %s", alias)
	}
	return table
}

func (p *parser) id(name string) string {
	id, ok := p.schema.ids[name]
	if !ok {
		p.fail("KeyError", "no table or column %s", name)
	}
	return id
}

func (p *parser) query(start int) (*SQL, int) {
	if p.depth++; p.depth > maxDepth {
		p.fail("RecursionError", "queries nested too deeply")
	}
	defer func() { p.depth-- }()

	sql := &SQL{}
	i := start
	block := p.tok(i) == "("
	if block {
		i++
	}
	var tables []string // of this FROM clause, for columns without a prefix
	var fromEnd int
	sql.From, tables, fromEnd = p.from(start)
	sql.Select = p.selectList(i, tables)
	i = fromEnd
	if p.is(i, "where") {
		sql.Where, i = p.condition(i+1, tables)
	}
	sql.GroupBy, i = p.groupBy(i, tables)
	if p.is(i, "having") {
		sql.Having, i = p.condition(i+1, tables)
	}
	sql.OrderBy, i = p.orderBy(i, tables)
	sql.Limit, i = p.limit(i)
	i = p.skipSemicolons(i)
	if block {
		i = p.expect(i, ")")
	}
	i = p.skipSemicolons(i)
	return sql, p.setOperation(sql, i)
}

func (p *parser) setOperation(sql *SQL, i int) int {
	for op, part := range map[string]**SQL{"intersect": &sql.Intersect, "union": &sql.Union, "except": &sql.Except} {
		if p.is(i, op) {
			*part, i = p.query(i + 1)
			return i
		}
	}
	return i
}

func (p *parser) skipSemicolons(i int) int {
	for p.is(i, ";") {
		i++
	}
	return i
}

// from looks for the first "from" at or after start, and reads the tables and joins behind it.
func (p *parser) from(start int) (from From, tables []string, i int) {
	i = start
	for i < len(p.tokens) && p.tokens[i] != "from" {
		i++
	}
	p.assert(i < len(p.tokens), "no FROM")
	i++
	for i < len(p.tokens) {
		block := p.tokens[i] == "("
		if block {
			i++
		}
		if p.tok(i) == "select" {
			var sub *SQL
			sub, i = p.query(i)
			from.Tables = append(from.Tables, TableUnit{SQL: sub})
		} else {
			if p.is(i, "join") {
				i++
			}
			table := p.table(p.tok(i))
			if p.is(i+1, "as") {
				i += 2
			}
			i++
			from.Tables = append(from.Tables, TableUnit{Table: p.id(table)})
			tables = append(tables, table)
		}
		if p.is(i, "on") {
			var conds Condition
			conds, i = p.condition(i+1, tables)
			if len(from.Conds) > 0 {
				from.Conds = append(from.Conds, CondPart{Connector: "and"})
			}
			from.Conds = append(from.Conds, conds...)
		}
		if block {
			i = p.expect(i, ")")
		}
		if p.ends(i) {
			break
		}
	}
	return from, tables, i
}

func (p *parser) selectList(i int, tables []string) Select {
	i = p.expect(i, "select")
	distinct := p.is(i, "distinct")
	if distinct {
		i++
	}
	list := Select{Distinct: flagOf(distinct)}
	for i < len(p.tokens) && !p.isOneOf(i, clauseKeywords) {
		var item SelectItem
		if agg := indexOf(aggregates, p.tokens[i]); agg >= 0 {
			item.Agg = agg
			i++
		}
		item.Unit, i = p.valUnit(i, tables)
		list.Items = append(list.Items, item)
		if p.is(i, ",") {
			i++
		}
	}
	return list
}

func (p *parser) groupBy(i int, tables []string) ([]ColUnit, int) {
	if !p.is(i, "group") {
		return nil, i
	}
	i = p.expect(i+1, "by")
	var units []ColUnit
	for i < len(p.tokens) && !p.ends(i) {
		var unit ColUnit
		unit, i = p.colUnit(i, tables)
		units = append(units, unit)
		if !p.is(i, ",") {
			break
		}
		i++
	}
	return units, i
}

func (p *parser) orderBy(i int, tables []string) (*OrderBy, int) {
	if !p.is(i, "order") {
		return nil, i
	}
	i = p.expect(i+1, "by")
	order := &OrderBy{Direction: "asc"}
	for i < len(p.tokens) && !p.ends(i) {
		var unit ValUnit
		unit, i = p.valUnit(i, tables)
		order.Units = append(order.Units, unit)
		if p.is(i, "asc") || p.is(i, "desc") {
			order.Direction = p.tokens[i]
			i++
		}
		if !p.is(i, ",") {
			break
		}
		i++
	}
	return order, i
}

func (p *parser) limit(i int) (*int64, int) {
	if !p.is(i, "limit") {
		return nil, i
	}
	tok, n := p.tok(i+1), int64(1)
	if p.legacy {
		var ok bool
		if n, ok = pytext.ParseInt(tok); !ok {
			p.fail("ValueError", "LIMIT %s is no number", tok)
		}
	}
	return &n, i + 2
}

func (p *parser) condition(i int, tables []string) (Condition, int) {
	var conds Condition
	for i < len(p.tokens) {
		unit := &CondUnit{}
		unit.Val, i = p.valUnit(i, tables)
		if p.tok(i) == "not" {
			unit.Not = true
			i++
		}
		unit.Op = indexOf(whereOps, p.tok(i))
		p.assert(unit.Op >= 0, "%q where an operator is expected", p.tok(i))
		i++
		unit.V1, i = p.operand(i, tables)
		if unit.Op == opBetween {
			i = p.expect(i, "and")
			unit.V2, i = p.operand(i, tables)
		}
		conds = append(conds, CondPart{Unit: unit})
		if p.ends(i) || p.isOneOf(i, joinKeywords) {
			break
		}
		if p.is(i, "and") || p.is(i, "or") {
			conds = append(conds, CondPart{Connector: p.tokens[i]})
			i++
		}
	}
	return conds, i
}

func (p *parser) operand(start int, tables []string) (value Operand, i int) {
	i = start
	block := p.tok(i) == "("
	if block {
		i++
	}
	switch tok := p.tok(i); {
	case tok == "select":
		value.SQL, i = p.query(i)
	case strings.Contains(tok, `"`):
		value.Text = tok
		i++
	default:
		if number, ok := pytext.ParseFloat(tok); ok {
			value.Number = &number
			i++
		} else {
			value.Col, i = p.columnOperand(start, i, tables)
		}
	}
	if block {
		i = p.expect(i, ")")
	}
	return value, i
}

// columnOperand reads a column up to where the operand must end. It sees only the tokens from start to there.
func (p *parser) columnOperand(start, i int, tables []string) (*ColUnit, int) {
	end := i
	for end < len(p.tokens) && !p.is(end, ",") && !p.is(end, ")") && !p.is(end, "and") && !p.isOneOf(end, clauseKeywords) && !p.isOneOf(end, joinKeywords) {
		end++
	}
	part := &parser{tokens: p.tokens[start:end], schema: p.schema, alias: p.alias}
	unit, _ := part.colUnit(0, tables)
	return &unit, end
}

func (p *parser) valUnit(i int, tables []string) (unit ValUnit, end int) {
	block := p.tok(i) == "("
	if block {
		i++
	}
	var a ColUnit
	a, i = p.colUnit(i, tables)
	unit.A = &a
	if op := -1; i < len(p.tokens) {
		if op = indexOf(unitOps, p.tokens[i]); op >= 0 {
			var b ColUnit
			b, i = p.colUnit(i+1, tables)
			unit.Op, unit.B = op, &b
		}
	}
	if block {
		i = p.expect(i, ")")
	}
	return unit, i
}

func (p *parser) colUnit(i int, tables []string) (unit ColUnit, end int) {
	block := p.tok(i) == "("
	if block {
		i++
	}
	if agg := indexOf(aggregates, p.tok(i)); agg >= 0 {
		unit.Agg = agg
		i++
		p.assert(p.is(i, "("), "no parenthesis after %s", aggregates[agg])
		i++
		distinct := p.tok(i) == "distinct"
		if distinct {
			i++
		}
		unit.Distinct = flagOf(distinct)
		unit.Col, i = p.column(i, tables)
		p.assert(p.is(i, ")"), "no closing parenthesis after %s", unit.Col)
		return unit, i + 1 // a parenthesis opened before the aggregate stays open
	}
	distinct := p.tok(i) == "distinct"
	if distinct {
		i++
	}
	unit.Distinct = flagOf(distinct)
	unit.Col, i = p.column(i, tables)
	if block {
		i = p.expect(i, ")")
	}
	return unit, i
}

// column reads a column. One without a prefix belongs to the first table of the FROM clause that has it.
func (p *parser) column(i int, tables []string) (id string, end int) {
	tok := p.tok(i)
	if tok == "*" {
		return p.schema.ids["*"], i + 1
	}
	if strings.Contains(tok, ".") {
		parts := strings.Split(tok, ".")
		if len(parts) != 2 {
			p.fail("ValueError", "%s has more than one period", tok)
		}
		return p.id(p.table(parts[0]) + "." + parts[1]), i + 1
	}
	p.assert(len(tables) > 0, "no table for column %s", tok)
	for _, name := range tables {
		table := p.table(name)
		if _, ok := p.schema.columns[table]; !ok {
			p.fail("KeyError", "no table %s", table)
		}
		if p.schema.hasColumn(table, tok) {
			return p.id(table + "." + tok), i + 1
		}
	}
	p.fail("AssertionError", "no column %s", tok)
	return "", 0
}
