package bird

import (
	"quern/eval"
	"quern/sqlguard"
)

// softF1 is mini-dev's soft F1 (evaluation_f1.py, calculate_f1_score). Repeated rows are dropped; rows are then compared by
// position, so their order matters; within a row each predicted cell counts that is anywhere in the gold row, and all three
// shares are divided by the gold's width, so that surplus cells can push a share past 1.
func softF1(predicted, gold [][]sqlguard.Value) float64 {
	if len(predicted) == 0 && len(gold) == 0 {
		return 1
	}
	pred, want := distinctRows(predicted), distinctRows(gold)
	var tp, fp, fn float64
	for i, row := range want {
		if i >= len(pred) {
			fn++
			continue
		}
		match, predOnly, goldOnly := rowMatch(pred[i], row)
		tp += match
		fp += predOnly
		fn += goldOnly
	}
	if surplus := len(pred) - len(want); surplus > 0 {
		fp += float64(surplus)
	}
	return f1(share(tp, tp+fp), share(tp, tp+fn))
}

func share(part, whole float64) float64 {
	if whole > 0 {
		return part / whole
	}
	return 0
}

func f1(precision, recall float64) float64 {
	if precision+recall > 0 {
		return 2 * precision * recall / (precision + recall)
	}
	return 0
}

// cells are one row's values as comparable texts.
type cells []string

// distinctRows keeps the first of equal rows.
func distinctRows(rows [][]sqlguard.Value) []cells {
	seen := map[string]bool{}
	var out []cells
	for _, row := range rows {
		key := eval.RowKey(row)
		if seen[key] {
			continue
		}
		seen[key] = true
		var c cells
		for _, v := range row {
			c = append(c, string(eval.AppendKey(nil, v)))
		}
		out = append(out, c)
	}
	return out
}

func rowMatch(pred, gold cells) (match, predOnly, goldOnly float64) {
	width := float64(len(gold))
	for _, v := range pred {
		if gold.has(v) {
			match++
		} else {
			predOnly++
		}
	}
	for _, v := range gold {
		if !pred.has(v) {
			goldOnly++
		}
	}
	return match / width, predOnly / width, goldOnly / width
}

func (c cells) has(v string) bool {
	for _, x := range c {
		if x == v {
			return true
		}
	}
	return false
}
