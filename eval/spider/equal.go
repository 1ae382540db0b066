package spider

import "slices"

// Equality of parsed queries, part by part, as Python compares the scripts' nested tuples and dictionaries.

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

// equalOrderBy compares ORDER BY clauses. In a parse "no clause" and "an empty clause" differ.
func equalOrderBy(a, b *OrderBy) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.Direction == b.Direction && slices.EqualFunc(a.Units, b.Units, ValUnit.equal)
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
	return a.Select.Distinct == b.Select.Distinct && slices.EqualFunc(a.Select.Items, b.Select.Items, SelectItem.equal) &&
		slices.EqualFunc(a.From.Tables, b.From.Tables, TableUnit.equal) && slices.EqualFunc(a.From.Conds, b.From.Conds, CondPart.equal) &&
		slices.EqualFunc(a.Where, b.Where, CondPart.equal) && slices.Equal(a.GroupBy, b.GroupBy) && slices.EqualFunc(a.Having, b.Having, CondPart.equal) &&
		equalOrderBy(a.OrderBy, b.OrderBy) && equalLimit(a.Limit, b.Limit) &&
		equalSQL(a.Intersect, b.Intersect) && equalSQL(a.Union, b.Union) && equalSQL(a.Except, b.Except)
}

// take removes the first element of list that equals x and reports whether there was one. The list is changed in place.
func take[T any](list *[]T, x T, equal func(T, T) bool) bool {
	at := slices.IndexFunc(*list, func(y T) bool { return equal(y, x) })
	if at < 0 {
		return false
	}
	*list = slices.Delete(*list, at, at+1)
	return true
}
