package spider2

import (
	"math"
	"slices"
	"strings"

	"quern/eval"
	"quern/internal/pytext"
)

// strictMatch is the comparison by plain rules: each gold column that counts is a column of its own of the prediction, rows
// stay rows, a missing value equals only a missing value, and numbers are close within tolerance of each other however they
// sort. Surplus predicted columns are free, as the task says.
func strictMatch(pred, gold *frame, ordered bool, close func(a, b float64) bool) bool {
	want, have := gold.vectors(), pred.vectors()
	if len(want) == 0 || len(have) < len(want) || len(have[0]) != len(want[0]) {
		return false
	}
	match := matcher{want: rowsOf(want, identity(len(want))), have: have, ordered: ordered, close: close, tries: maxTries}
	for _, g := range want {
		match.candidates = append(match.candidates, match.columnsLike(g))
	}
	return match.assign(nil)
}

// maxTries bounds the search for an assignment of columns.
const maxTries = 2000

type matcher struct {
	want       [][]any
	have       [][]any
	candidates [][]int
	ordered    bool
	close      func(a, b float64) bool
	tries      int
}

// columnsLike are the predicted columns that could be the gold column g.
func (m *matcher) columnsLike(g []any) []int {
	var out []int
	for k, column := range m.have {
		if m.sameRows(rowsOf([][]any{g}, []int{0}), rowsOf([][]any{column}, []int{0})) {
			out = append(out, k)
		}
	}
	return out
}

func (m *matcher) assign(chosen []int) bool {
	if len(chosen) == len(m.candidates) {
		m.tries--
		return m.sameRows(m.want, rowsOf(m.have, chosen))
	}
	for _, k := range m.candidates[len(chosen)] {
		if m.tries > 0 && !slices.Contains(chosen, k) && m.assign(append(slices.Clone(chosen), k)) {
			return true
		}
	}
	return false
}

func (m *matcher) sameRows(a, b [][]any) bool {
	if !m.ordered {
		a, b = sortedRows(a), sortedRows(b)
	}
	for i := range a {
		for j := range a[i] {
			if !m.sameValue(a[i][j], b[i][j]) {
				return false
			}
		}
	}
	return true
}

func (m *matcher) sameValue(a, b any) bool {
	x, xNumber := number(a)
	y, yNumber := number(b)
	if xNumber && yNumber {
		return x == y || m.close(x, y)
	}
	return a == b
}

func identity(n int) []int {
	out := make([]int, n)
	for i := range out {
		out[i] = i
	}
	return out
}

// rowsOf are the rows of the chosen columns.
func rowsOf(vectors [][]any, chosen []int) [][]any {
	if len(vectors) == 0 || len(chosen) == 0 {
		return nil
	}
	rows := make([][]any, len(vectors[0]))
	for r := range rows {
		for _, c := range chosen {
			rows[r] = append(rows[r], vectors[c][r])
		}
	}
	return rows
}

// sortedRows sorts text before numbers within a cell's place, so that numbers that differ a little do not decide first.
func sortedRows(rows [][]any) [][]any {
	out := slices.Clone(rows)
	slices.SortStableFunc(out, func(a, b []any) int {
		for _, numbers := range []bool{false, true} {
			for j := range a {
				if c := compareValues(a[j], b[j], numbers); c != 0 {
					return c
				}
			}
		}
		return 0
	})
	return out
}

// compareValues orders missing values before numbers before texts; with numbers unset all numbers are alike.
func compareValues(a, b any, numbers bool) int {
	x, xNumber := number(a)
	y, yNumber := number(b)
	switch {
	case xNumber && yNumber && numbers:
		return compareFloats(x, y)
	case xNumber && yNumber:
		return 0
	}
	if c := rank(a) - rank(b); c != 0 {
		return c
	}
	s, _ := a.(string)
	t, _ := b.(string)
	return strings.Compare(s, t)
}

func rank(v any) int {
	switch v.(type) {
	case missing:
		return 0
	case string:
		return 2
	}
	return 1
}

func compareFloats(a, b float64) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// closeRelative is the wider tolerance of a near miss: one in a thousand.
func closeRelative(a, b float64) bool {
	return isClose(a, b) || math.Abs(a-b) <= 1e-3*max(math.Abs(a), math.Abs(b))
}

// shownFrame keeps the first rows of a frame for a reader.
func shownFrame(f *frame) *eval.Table {
	vectors := f.vectors()
	t := &eval.Table{Columns: f.names, Rows: [][]any{}}
	if len(vectors) > 0 {
		t.Total = len(vectors[0])
	}
	for r := range min(t.Total, eval.ShownRows) {
		var row []any
		for _, vector := range vectors {
			row = append(row, shownValue(vector[r]))
		}
		t.Rows = append(t.Rows, row)
	}
	return t
}

func shownValue(v any) any {
	switch x := v.(type) {
	case missing:
		return nil
	case float64:
		if math.IsInf(x, 0) || math.IsNaN(x) {
			return pytext.FloatRepr(x)
		}
	case bool:
		return pythonText(x)
	}
	return v
}
