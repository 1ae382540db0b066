package spider

import (
	"context"
	"fmt"
	"unicode/utf8"

	"quern/sqlguard"
)

// legacyExecute is the execution comparison of taoyds/spider: the results' columns, keyed by the parsed SELECT items without
// their aggregates, must be equal as lists. predSQL and goldSQL are the normalized parses. The prediction runs first, and
// the gold on the same connection after it. A prediction that fails is wrong; a gold that fails ends the script.
func (p *pair) legacyExecute(ctx context.Context, pred string, goldSQL, predSQL *SQL) (e execution, err error) {
	e.ordered = true
	var goldResult, predResult sqlguard.Result
	predResult, err = p.query(ctx, p.database, pred)
	if err == nil && refusedWrite(predResult) {
		e.wrote = true
		var results []sqlguard.Result
		if results, err = p.exec.Scratch(ctx, p.database, pred, p.gold); err == nil {
			predResult, goldResult = results[0], results[1]
		}
	} else if err == nil {
		goldResult, err = p.exec.Gold(ctx, p.database, p.gold)
	}
	if err = harnessError(predResult, err); err != nil {
		return e, err
	}
	noteLimits(&e, predResult)
	if predResult.Failure != nil || !validText(predResult) {
		return e, nil
	}
	if err = harnessError(goldResult, nil); err != nil {
		return e, err
	}
	if goldResult.Failure != nil {
		e.goldFailure = goldResult.Failure
		e.crash = crash("OperationalError", "the gold query fails: %s", goldResult.Failure.Message)
		return e, nil
	}
	if !validText(goldResult) {
		e.crash = crash("OperationalError", "the gold query returns text that is not UTF-8")
		return e, nil
	}
	e.correct, e.crash = sameItems(goldResult, predResult, goldSQL, predSQL)
	return e, nil
}

// validText reports whether Python could decode all text of a result.
func validText(r sqlguard.Result) bool {
	for _, row := range r.Rows {
		for _, v := range row {
			if v.Kind == sqlguard.Text && !utf8.ValidString(v.Data) {
				return false
			}
		}
	}
	return true
}

// sameItems compares the columns of two results by the items of the SELECT lists.
func sameItems(gold, pred sqlguard.Result, goldSQL, predSQL *SQL) (bool, *Crash) {
	goldColumns, failure := itemColumns(gold, goldSQL)
	if failure != nil {
		return false, failure
	}
	predColumns, failure := itemColumns(pred, predSQL)
	if failure != nil || len(goldColumns) != len(predColumns) {
		return false, failure
	}
	for key, column := range goldColumns {
		other, ok := predColumns[key]
		if !ok || len(other) != len(column) {
			return false, nil
		}
		for i := range column {
			if cellOf(column[i]) != cellOf(other[i]) {
				return false, nil
			}
		}
	}
	return true, nil
}

// itemColumns maps the items of a SELECT list, without the aggregates around them, to the values at their position. Of two
// items with the same key the last counts.
func itemColumns(r sqlguard.Result, sql *SQL) (map[string][]sqlguard.Value, *Crash) {
	columns := map[string][]sqlguard.Value{}
	for i, item := range sql.Select.Items {
		key := fmt.Sprint(*item.Unit.A)
		if item.Unit.B != nil {
			key = fmt.Sprint(item.Unit.Op, *item.Unit.A, *item.Unit.B)
		}
		values := []sqlguard.Value{}
		for _, row := range r.Rows {
			if i >= len(row) {
				return nil, crash("IndexError", "the result has fewer columns than the SELECT list has items")
			}
			values = append(values, row[i])
		}
		columns[key] = values
	}
	return columns, nil
}
