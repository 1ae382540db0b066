package spider2

import (
	"encoding/json"
	"fmt"
	"math"
	"sort"
	"strconv"

	"quern/internal/pytext"
)

// Tolerances of a numeric comparison: Python's math.isclose with these arguments.
const (
	absTolerance = 1e-2
	relTolerance = 1e-9
)

// scriptError is what makes the official comparison count a prediction 0, in that script's words.
type scriptError string

func (e scriptError) Error() string { return string(e) }

// errScript is an exception in the comparison.
const errScript = scriptError("Python Script Error")

// compareTables reports whether every gold column, or every one listed in cond, equals some column of the prediction.
func compareTables(pred, gold *frame, cond condition, ignoreOrder bool) (bool, error) {
	selected, err := cond.apply(gold)
	if err != nil {
		return false, err
	}
	predicted := prepare(pred.vectors(), ignoreOrder)
	for _, want := range prepare(selected.vectors(), ignoreOrder) {
		found := false
		for _, have := range predicted {
			if vectorsMatch(want, have) {
				found = true
				break
			}
		}
		if !found {
			return false, nil
		}
	}
	return true, nil
}

// prepare makes missing values 0 and, where the order of rows does not count, sorts each column by the text of its values.
func prepare(vectors [][]any, ignoreOrder bool) [][]any {
	for _, v := range vectors {
		for i := range v {
			if v[i] == (missing{}) {
				v[i] = int64(0)
			}
		}
		if ignoreOrder {
			sortByText(v)
		}
	}
	return vectors
}

func sortByText(v []any) {
	type keyed struct {
		text   string
		number bool
		value  any
	}
	keys := make([]keyed, len(v))
	for i, x := range v {
		_, text := x.(string)
		keys[i] = keyed{pythonText(x), !text, x}
	}
	sort.SliceStable(keys, func(a, b int) bool {
		if keys[a].text != keys[b].text {
			return keys[a].text < keys[b].text
		}
		return !keys[a].number && keys[b].number
	})
	for i, k := range keys {
		v[i] = k.value
	}
}

func vectorsMatch(a, b []any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if !valuesMatch(a[i], b[i]) {
			return false
		}
	}
	return true
}

func valuesMatch(a, b any) bool {
	x, xNumber := number(a)
	y, yNumber := number(b)
	if xNumber && yNumber {
		return isClose(x, y)
	}
	return !xNumber && !yNumber && a == b
}

func number(v any) (float64, bool) {
	switch n := v.(type) {
	case int64:
		return float64(n), true
	case uint64:
		return float64(n), true
	case float64:
		return n, true
	case bool:
		if n {
			return 1, true
		}
		return 0, true
	}
	return 0, false
}

func isClose(a, b float64) bool {
	if a == b {
		return true
	}
	if math.IsInf(a, 0) || math.IsInf(b, 0) {
		return false
	}
	diff := math.Abs(b - a)
	return diff <= math.Abs(relTolerance*b) || diff <= math.Abs(relTolerance*a) || diff <= absTolerance
}

// pythonText is Python's str() of a value.
func pythonText(v any) string {
	switch x := v.(type) {
	case string:
		return x
	case int64:
		return strconv.FormatInt(x, 10)
	case uint64:
		return strconv.FormatUint(x, 10)
	case float64:
		return pytext.FloatRepr(x)
	case bool:
		if x {
			return "True"
		}
		return "False"
	}
	return ""
}

// compareAny reports whether the prediction equals one of several gold tables. A condition list applies to each gold when
// it is flat, and by position when it is a list of lists; with exactly one gold it is always taken by position.
func compareAny(pred *frame, golds []*frame, cond condition, ignoreOrder bool) (bool, error) {
	each := cond.spread(len(golds))
	for i, gold := range golds {
		if i >= len(each) {
			return false, fmt.Errorf("%w: list index out of range", errScript)
		}
		same, err := compareTables(pred, gold, each[i], ignoreOrder)
		if same || err != nil {
			return same, err
		}
	}
	return false, nil
}

// condition is the JSON of an instance's condition_cols: null, a number or a list, whose elements are the same.
type condition struct{ value any }

func (c *condition) UnmarshalJSON(data []byte) error { return json.Unmarshal(data, &c.value) }

// MarshalJSON gives the JSON that was read.
func (c condition) MarshalJSON() ([]byte, error) { return json.Marshal(c.value) }

// spread gives each of n gold tables its condition; the result may be shorter than n.
func (c condition) spread(n int) []condition {
	list, isList := c.value.([]any)
	if c.value == nil || isList && (len(list) == 0 || len(list) == 1 && emptyCondition(list[0])) {
		return make([]condition, n)
	}
	flat := false
	for _, x := range list {
		if _, nested := x.([]any); !nested {
			flat = true
		}
	}
	if n > 1 && (flat || !isList) {
		each := make([]condition, n)
		for i := range each {
			each[i] = c
		}
		return each
	}
	each := make([]condition, len(list))
	for i, x := range list {
		each[i] = condition{x}
	}
	return each
}

func emptyCondition(x any) bool {
	list, isList := x.([]any)
	return x == nil || isList && len(list) == 0
}

// apply selects the columns that count: all of them for an empty condition, else those at the positions listed, where a
// negative one counts from the end.
func (c condition) apply(f *frame) (*frame, error) {
	switch v := c.value.(type) {
	case nil:
		return f, nil
	case float64:
		if v == 0 {
			return f, nil
		}
		return selectColumns(f, []any{v})
	case bool:
		if !v {
			return f, nil
		}
	case []any:
		if len(v) == 0 {
			return f, nil
		}
		if mask, ok := asMask(v); ok {
			return selectMask(f, mask)
		}
		return selectColumns(f, v)
	}
	return nil, fmt.Errorf("%w: condition_cols %v select no column", errScript, c.value)
}

func selectColumns(f *frame, positions []any) (*frame, error) {
	out := &frame{}
	for _, p := range positions {
		n, ok := p.(float64)
		if !ok || n != math.Trunc(n) {
			return nil, fmt.Errorf("%w: condition_cols %v is no list of column numbers", errScript, positions)
		}
		i := int(n)
		if i < 0 {
			i += len(f.columns)
		}
		if i < 0 || i >= len(f.columns) {
			return nil, fmt.Errorf("%w: condition_cols %v: the table has %d columns", errScript, positions, len(f.columns))
		}
		out.names = append(out.names, f.names[i])
		out.columns = append(out.columns, f.columns[i])
	}
	return out, nil
}

func asMask(list []any) (mask []bool, ok bool) {
	for _, x := range list {
		b, isBool := x.(bool)
		if !isBool {
			return nil, false
		}
		mask = append(mask, b)
	}
	return mask, true
}

func selectMask(f *frame, mask []bool) (*frame, error) {
	if len(mask) != len(f.columns) {
		return nil, fmt.Errorf("%w: %d booleans in condition_cols for %d columns", errScript, len(mask), len(f.columns))
	}
	out := &frame{}
	for i, on := range mask {
		if on {
			out.names = append(out.names, f.names[i])
			out.columns = append(out.columns, f.columns[i])
		}
	}
	return out, nil
}
