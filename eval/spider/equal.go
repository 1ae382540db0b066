package spider

// Equality of parsed queries, part by part, as Python compares the scripts' nested tuples and dictionaries.

func (a ColUnit) equal(b ColUnit) bool { return a == b }

func equalColUnits(a, b *ColUnit) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func (a ValUnit) equal(b ValUnit) bool {
	return a.Op == b.Op && equalColUnits(a.A, b.A) && equalColUnits(a.B, b.B)
}

func (a SelectItem) equal(b SelectItem) bool { return a.Agg == b.Agg && a.Unit.equal(b.Unit) }

func (a Operand) equal(b Operand) bool {
	switch {
	case (a.Number == nil) != (b.Number == nil), a.Text != b.Text, !equalColUnits(a.Col, b.Col):
		return false
	case a.Number != nil && *a.Number != *b.Number:
		return false
	}
	return equalSQL(a.SQL, b.SQL)
}

func (a CondUnit) equal(b CondUnit) bool {
	return a.Not == b.Not && a.Op == b.Op && a.Val.equal(b.Val) && a.V1.equal(b.V1) && a.V2.equal(b.V2)
}

func (a CondPart) equal(b CondPart) bool {
	if a.Unit == nil || b.Unit == nil {
		return a.Unit == b.Unit && a.Connector == b.Connector
	}
	return a.Unit.equal(*b.Unit)
}

func (a TableUnit) equal(b TableUnit) bool { return a.Table == b.Table && equalSQL(a.SQL, b.SQL) }

func equalLists[T interface{ equal(T) bool }](a, b []T) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !a[i].equal(b[i]) {
			return false
		}
	}
	return true
}

// equalOrderBy compares ORDER BY clauses. In a parse "no clause" and "an empty clause" differ.
func equalOrderBy(a, b *OrderBy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Direction == b.Direction && equalLists(a.Units, b.Units)
}

func equalLimit(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}

func equalSQL(a, b *SQL) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Select.Distinct == b.Select.Distinct && equalLists(a.Select.Items, b.Select.Items) &&
		equalLists(a.From.Tables, b.From.Tables) && equalLists(a.From.Conds, b.From.Conds) &&
		equalLists(a.Where, b.Where) && equalLists(a.GroupBy, b.GroupBy) && equalLists(a.Having, b.Having) &&
		equalOrderBy(a.OrderBy, b.OrderBy) && equalLimit(a.Limit, b.Limit) &&
		equalSQL(a.Intersect, b.Intersect) && equalSQL(a.Union, b.Union) && equalSQL(a.Except, b.Except)
}

// take removes the first element of list that equals x and reports whether there was one. The list is changed in place.
func take[T interface{ equal(T) bool }](list *[]T, x T) bool {
	for i, y := range *list {
		if y.equal(x) {
			*list = append((*list)[:i], (*list)[i+1:]...)
			return true
		}
	}
	return false
}
