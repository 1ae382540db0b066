package spider

import "strings"

// normalize prepares a parsed query for the comparison, in place: literals and column operands of conditions are blanked,
// columns joined by foreign keys become one, and DISTINCT is blanked. It does all this also in set-operation parts; in
// subqueries of conditions only the literals go, and subqueries in FROM stay as they are.
//
// The crash is what the scripts do with a malformed chain of conditions.
func normalize(sql *SQL, keys map[string]string) *Crash {
	if c := blankValues(sql); c != nil {
		return c
	}
	known := map[string]bool{}
	for _, unit := range sql.From.Tables {
		if unit.SQL == nil {
			known[strings.TrimSuffix(unit.Table, "__")] = true
		}
	}
	return mergeColumns(sql, func(col string) string {
		table, _, ok := strings.Cut(col, ".")
		if merged, isKey := keys[col]; ok && isKey && known[table] {
			return merged
		}
		return col
	})
}

func blankValues(sql *SQL) *Crash {
	if sql == nil {
		return nil
	}
	for _, conds := range []Condition{sql.From.Conds, sql.Having, sql.Where} {
		for i := 0; i < len(conds); i += 2 {
			unit := conds[i].Unit
			if unit == nil {
				return misplacedConnector()
			}
			unit.V1, unit.V2 = Operand{SQL: unit.V1.SQL}, Operand{SQL: unit.V2.SQL}
			if c := blankValues(unit.V1.SQL); c != nil {
				return c
			}
			if c := blankValues(unit.V2.SQL); c != nil {
				return c
			}
		}
	}
	for _, part := range []*SQL{sql.Intersect, sql.Except, sql.Union} {
		if c := blankValues(part); c != nil {
			return c
		}
	}
	return nil
}

// misplacedConnector is the scripts' end when conditions stand side by side without a connector, so that a connector comes
// to lie where a condition is expected.
func misplacedConnector() *Crash {
	return crash("ValueError", "two conditions without AND or OR between them")
}

// mergeColumns applies merge to the columns of the query and of its set-operation parts, and blanks DISTINCT there.
func mergeColumns(sql *SQL, merge func(string) string) *Crash {
	if sql == nil {
		return nil
	}
	column := func(unit *ColUnit) {
		if unit != nil {
			unit.Col, unit.Distinct = merge(unit.Col), Blank
		}
	}
	value := func(unit *ValUnit) { column(unit.A); column(unit.B) }

	sql.Select.Distinct = Blank
	for i := range sql.Select.Items {
		value(&sql.Select.Items[i].Unit)
	}
	for i := range sql.GroupBy {
		column(&sql.GroupBy[i])
	}
	if sql.OrderBy != nil {
		for i := range sql.OrderBy.Units {
			value(&sql.OrderBy.Units[i])
		}
	}
	for _, conds := range []Condition{sql.From.Conds, sql.Where, sql.Having} {
		for i := 0; i < len(conds); i += 2 {
			if conds[i].Unit == nil {
				return misplacedConnector()
			}
			value(&conds[i].Unit.Val)
		}
	}
	for _, part := range []*SQL{sql.Intersect, sql.Except, sql.Union} {
		if c := mergeColumns(part, merge); c != nil {
			return c
		}
	}
	return nil
}
