package spider

import (
	"fmt"
	"slices"
	"sort"
	"strings"
)

// Parts names the partial scores, in the order in which the scripts print them.
var Parts = []string{"select", "select(no AGG)", "where", "where(no OP)", "group(no Having)", "group", "order", "and/or", "IUEN", "keywords"}

// Partial is the score of one part of a query. Acc, Rec and F1 are 1 when both queries have equally many elements and all
// match, else 0. Label and Pred count the elements of gold and prediction.
type Partial struct {
	Acc   int `json:"acc"`
	Rec   int `json:"rec"`
	F1    int `json:"f1"`
	Label int `json:"label_total"`
	Pred  int `json:"pred_total"`
}

// partial gives the scores for count elements that match.
func partial(label, pred, count int) Partial {
	p := Partial{Label: label, Pred: pred}
	if pred == label && count == pred {
		p.Acc, p.Rec, p.F1 = 1, 1, 1
	}
	return p
}

// match compares two normalized queries (Evaluator.eval_exact_match). The partial scores stand in the order of Parts. The
// crash is what the scripts do with malformed queries. The gold's SELECT list is used up on the way.
func match(pred, gold *SQL) (exact bool, parts []Partial, failure *Crash) {
	parts, failure = matchParts(pred, gold)
	if failure != nil {
		return false, nil, failure
	}
	for _, p := range parts {
		if p.F1 != 1 {
			return false, parts, nil
		}
	}
	if len(gold.From.Tables) == 0 {
		return true, parts, nil
	}
	exact, failure = sameTables(pred.From.Tables, gold.From.Tables)
	return exact, parts, failure
}

func matchParts(pred, gold *SQL) ([]Partial, *Crash) {
	sel, selNoAgg := matchSelect(pred, gold)
	where, whereNoOp, failure := matchWhere(pred, gold)
	if failure != nil {
		return nil, failure
	}
	group := matchGroup(pred, gold)
	having := matchHaving(pred, gold)
	order := matchOrder(pred, gold)
	connectors, failure := matchConnectors(pred, gold)
	if failure != nil {
		return nil, failure
	}
	nested, failure := matchSetOperations(pred, gold)
	if failure != nil {
		return nil, failure
	}
	words, failure := matchKeywords(pred, gold)
	if failure != nil {
		return nil, failure
	}
	return []Partial{sel, selNoAgg, where, whereNoOp, group, having, order, connectors, nested, words}, nil
}

// sameTables compares the sorted lists of tables. Python cannot sort two different subqueries.
func sameTables(pred, gold []TableUnit) (bool, *Crash) {
	names := func(units []TableUnit) (tables []string, sub []*SQL, failure *Crash) {
		for _, unit := range units {
			if unit.SQL != nil {
				sub = append(sub, unit.SQL)
			} else {
				tables = append(tables, unit.Table)
			}
		}
		for i := 1; i < len(sub); i++ {
			if !equalSQL(sub[i-1], sub[i]) {
				return nil, nil, crash("TypeError", "two different subqueries in FROM cannot be sorted")
			}
		}
		sort.Strings(tables)
		return tables, sub, nil
	}
	goldTables, goldSub, failure := names(gold)
	if failure != nil {
		return false, failure
	}
	predTables, predSub, failure := names(pred)
	if failure != nil {
		return false, failure
	}
	if len(goldTables) != len(predTables) || len(goldSub) != len(predSub) {
		return false, nil
	}
	for i := range goldTables {
		if goldTables[i] != predTables[i] {
			return false, nil
		}
	}
	for i := range goldSub {
		if !equalSQL(goldSub[i], predSub[i]) {
			return false, nil
		}
	}
	return true, nil
}

func matchSelect(pred, gold *SQL) (whole, noAgg Partial) {
	labels := &gold.Select.Items
	var units []ValUnit
	for _, item := range *labels {
		units = append(units, item.Unit)
	}
	labelTotal, predTotal := len(units), len(pred.Select.Items)
	count, countNoAgg := 0, 0
	for _, item := range pred.Select.Items {
		if take(labels, item, SelectItem.equal) {
			count++
		}
		if take(&units, item.Unit, ValUnit.equal) {
			countNoAgg++
		}
	}
	return partial(labelTotal, predTotal, count), partial(labelTotal, predTotal, countNoAgg)
}

func matchWhere(pred, gold *SQL) (whole, noOp Partial, failure *Crash) {
	predUnits, failure := pred.Where.units()
	if failure != nil {
		return whole, noOp, failure
	}
	goldUnits, failure := gold.Where.units()
	if failure != nil {
		return whole, noOp, failure
	}
	var values []ValUnit
	for _, unit := range goldUnits {
		values = append(values, unit.Val)
	}
	labelTotal, predTotal := len(goldUnits), len(predUnits)
	count, countNoOp := 0, 0
	for _, unit := range predUnits {
		if take(&goldUnits, unit, CondUnit.equal) {
			count++
		}
		if take(&values, unit.Val, ValUnit.equal) {
			countNoOp++
		}
	}
	return partial(labelTotal, predTotal, count), partial(labelTotal, predTotal, countNoOp), nil
}

// units are the elements at even places, which should be conditions.
func (c Condition) units() ([]CondUnit, *Crash) {
	var units []CondUnit
	for i := 0; i < len(c); i += 2 {
		if c[i].Unit == nil {
			return nil, crash("IndexError", "two conditions without AND or OR between them")
		}
		units = append(units, *c[i].Unit)
	}
	return units, nil
}

// connectors are the elements at odd places that are connectors.
func (c Condition) connectors() []string {
	var out []string
	for i := 1; i < len(c); i += 2 {
		if c[i].Unit == nil {
			out = append(out, c[i].Connector)
		}
	}
	return out
}

// columnName is a column's identifier without its table.
func columnName(id string) string {
	if parts := strings.Split(id, "."); len(parts) > 1 {
		return parts[1]
	}
	return id
}

func matchGroup(pred, gold *SQL) Partial {
	left := map[string]int{}
	for _, unit := range gold.GroupBy {
		left[columnName(unit.Col)]++
	}
	count := 0
	for _, unit := range pred.GroupBy {
		if name := columnName(unit.Col); left[name] > 0 {
			left[name]--
			count++
		}
	}
	return partial(len(gold.GroupBy), len(pred.GroupBy), count)
}

func matchHaving(pred, gold *SQL) Partial {
	predTotal, labelTotal := min(len(pred.GroupBy), 1), min(len(gold.GroupBy), 1)
	count := 0
	if predTotal == 1 && labelTotal == 1 && sameColumns(pred.GroupBy, gold.GroupBy) && slices.EqualFunc(pred.Having, gold.Having, CondPart.equal) {
		count = 1
	}
	return partial(labelTotal, predTotal, count)
}

func sameColumns(a, b []ColUnit) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].Col != b[i].Col {
			return false
		}
	}
	return true
}

func matchOrder(pred, gold *SQL) Partial {
	predTotal, labelTotal, count := 0, 0, 0
	if pred.OrderBy != nil {
		predTotal = 1
	}
	if gold.OrderBy != nil {
		labelTotal = 1
		if equalOrderBy(pred.OrderBy, gold.OrderBy) && (pred.Limit == nil) == (gold.Limit == nil) {
			count = 1
		}
	}
	return partial(labelTotal, predTotal, count)
}

// matchConnectors compares the sets of connectors of WHERE. The scripts return the counts in the other order here, with a
// score of 1 for both when the sets are equal.
func matchConnectors(pred, gold *SQL) (Partial, *Crash) {
	predSet, failure := pred.Where.connectorSet()
	if failure != nil {
		return Partial{}, failure
	}
	goldSet, failure := gold.Where.connectorSet()
	if failure != nil {
		return Partial{}, failure
	}
	same := len(predSet) == len(goldSet)
	for key := range predSet {
		same = same && goldSet[key]
	}
	if same {
		return partial(1, 1, 1), nil
	}
	return partial(len(predSet), len(goldSet), 0), nil
}

// connectorSet is the set of the elements at odd places. A condition there is an element like any other, unless it holds a
// subquery, which Python cannot put into a set.
func (c Condition) connectorSet() (map[string]bool, *Crash) {
	set := map[string]bool{}
	for i := 1; i < len(c); i += 2 {
		unit := c[i].Unit
		if unit == nil {
			set[c[i].Connector] = true
			continue
		}
		if unit.V1.SQL != nil || unit.V2.SQL != nil {
			return nil, crash("TypeError", "a condition with a subquery where a connector is expected")
		}
		set[unit.key()] = true
	}
	return set, nil
}

// key tells conditions without subqueries apart.
func (u *CondUnit) key() string {
	operand := func(o Operand) string {
		number := ""
		if o.Number != nil {
			number = fmt.Sprint(*o.Number)
		}
		return fmt.Sprintf("%q %s %v", o.Text, number, derefCol(o.Col))
	}
	return fmt.Sprintf("%v %d %d %v %v %s %s", u.Not, u.Op, u.Val.Op, derefCol(u.Val.A), derefCol(u.Val.B), operand(u.V1), operand(u.V2))
}

func derefCol(c *ColUnit) ColUnit {
	if c == nil {
		return ColUnit{}
	}
	return *c
}

func matchSetOperations(pred, gold *SQL) (Partial, *Crash) {
	predTotal, labelTotal, count := 0, 0, 0
	for _, pair := range [][2]*SQL{{pred.Intersect, gold.Intersect}, {pred.Except, gold.Except}, {pred.Union, gold.Union}} {
		if pair[0] != nil {
			predTotal++
		}
		if pair[1] != nil {
			labelTotal++
		}
		if pair[0] != nil && pair[1] != nil {
			exact, _, failure := match(pair[0], pair[1])
			if failure != nil {
				return Partial{}, failure
			}
			if exact {
				count++
			}
		}
	}
	return partial(labelTotal, predTotal, count), nil
}

func matchKeywords(pred, gold *SQL) (Partial, *Crash) {
	predWords, failure := keywords(pred)
	if failure != nil {
		return Partial{}, failure
	}
	goldWords, failure := keywords(gold)
	if failure != nil {
		return Partial{}, failure
	}
	count := 0
	for word := range predWords {
		if goldWords[word] {
			count++
		}
	}
	return partial(len(goldWords), len(predWords), count), nil
}

// keywords is the set of keywords that a query uses at its own level.
func keywords(sql *SQL) (map[string]bool, *Crash) {
	words := map[string]bool{}
	for word, used := range map[string]bool{
		"where": len(sql.Where) > 0, "group": len(sql.GroupBy) > 0, "having": len(sql.Having) > 0, "order": sql.OrderBy != nil,
		"limit": sql.Limit != nil, "except": sql.Except != nil, "union": sql.Union != nil, "intersect": sql.Intersect != nil,
	} {
		if used {
			words[word] = true
		}
	}
	if sql.OrderBy != nil {
		words[sql.OrderBy.Direction] = true
	}
	for _, conds := range []Condition{sql.From.Conds, sql.Where, sql.Having} {
		if indexOf(conds.connectors(), "or") >= 0 {
			words["or"] = true
		}
		units, failure := conds.units()
		if failure != nil {
			return nil, failure
		}
		for _, unit := range units {
			if unit.Not {
				words["not"] = true
			}
			switch unit.Op {
			case opIn:
				words["in"] = true
			case opLike:
				words["like"] = true
			}
		}
	}
	return words, nil
}
