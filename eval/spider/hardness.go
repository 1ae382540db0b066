package spider

// Levels of hardness, in the order of the printed tables.
var Levels = []string{"easy", "medium", "hard", "extra"}

// hardness is the level of a parsed gold query (Evaluator.eval_hardness). The crash is what the scripts do with conditions
// that stand side by side without a connector.
func hardness(sql *SQL) (string, *Crash) {
	clauses, failure := countClauses(sql)
	if failure != nil {
		return "", failure
	}
	nested, failure := countNested(sql)
	if failure != nil {
		return "", failure
	}
	others := countOthers(sql)
	switch {
	case clauses <= 1 && others == 0 && nested == 0:
		return "easy", nil
	case nested == 0 && (clauses <= 1 && others <= 2 || clauses <= 2 && others < 2):
		return "medium", nil
	case nested == 0 && (clauses <= 2 && others > 2 || clauses == 3 && others <= 2), clauses <= 1 && others == 0 && nested <= 1:
		return "hard", nil
	}
	return "extra", nil
}

// countClauses is component 1: WHERE, GROUP BY, ORDER BY, LIMIT, joins, OR and LIKE. HAVING is not counted.
func countClauses(sql *SQL) (int, *Crash) {
	count := 0
	for _, present := range []bool{len(sql.Where) > 0, len(sql.GroupBy) > 0, sql.OrderBy != nil, sql.Limit != nil} {
		if present {
			count++
		}
	}
	count += max(len(sql.From.Tables)-1, 0)
	for _, conds := range []Condition{sql.From.Conds, sql.Where, sql.Having} {
		for _, connector := range conds.connectors() {
			if connector == "or" {
				count++
			}
		}
		units, failure := conds.units()
		if failure != nil {
			return 0, failure
		}
		for _, unit := range units {
			if unit.Op == opLike {
				count++
			}
		}
	}
	return count, nil
}

// countNested is component 2: subqueries in conditions, and set operations.
func countNested(sql *SQL) (int, *Crash) {
	count := 0
	for _, conds := range []Condition{sql.From.Conds, sql.Where, sql.Having} {
		units, failure := conds.units()
		if failure != nil {
			return 0, failure
		}
		for _, unit := range units {
			for _, value := range []Operand{unit.V1, unit.V2} {
				if value.SQL != nil {
					count++
				}
			}
		}
	}
	for _, part := range []*SQL{sql.Intersect, sql.Except, sql.Union} {
		if part != nil {
			count++
		}
	}
	return count, nil
}

// countOthers counts which of these there are more than one of: aggregates, SELECT columns, WHERE elements, GROUP BY
// columns. Negated conditions count as aggregates, and in HAVING connectors do too: the script looks at the first field of
// whatever it is given.
func countOthers(sql *SQL) int {
	aggs := 0
	count := func(first bool) {
		if first {
			aggs++
		}
	}
	for _, item := range sql.Select.Items {
		count(item.Agg != 0)
	}
	for i := 0; i < len(sql.Where); i += 2 {
		count(sql.Where[i].Unit == nil || sql.Where[i].Unit.Not)
	}
	for _, unit := range sql.GroupBy {
		count(unit.Agg != 0)
	}
	if sql.OrderBy != nil {
		for _, unit := range sql.OrderBy.Units {
			count(unit.A != nil && unit.A.Agg != 0)
			count(unit.B != nil && unit.B.Agg != 0)
		}
	}
	for _, part := range sql.Having {
		count(part.Unit == nil || part.Unit.Not)
	}
	others := 0
	for _, n := range []int{aggs, len(sql.Select.Items), len(sql.Where), len(sql.GroupBy)} {
		if n > 1 {
			others++
		}
	}
	return others
}
