package spider

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"quern/internal/pytext"
	"quern/sqlguard"
)

// Results are compared as the test-suite script compares them (exec_eval.result_eq): equal as lists or as multisets of
// rows under some order of the prediction's columns. The script walks through the orders; here the order is searched column
// by column, which gives the same verdict in a time that does not explode, and from the order found follows how many the
// script would have tried.

// patience is the number of column orders after which the script counts as hanging: at some 10⁶ a second, a quarter of an
// hour.
const patience = 1e9

// comparison is the outcome of comparing two results.
type comparison struct {
	equal bool
	tried float64 // column orders the script tries until it knows
	gave  bool    // the search was given up: no order found within its bounds, so equal is false
}

// compareResults compares the gold's rows with the prediction's.
func compareResults(gold, pred [][]sqlguard.Value, ordered bool) comparison {
	switch {
	case len(gold) == 0 && len(pred) == 0:
		return comparison{equal: true}
	case len(gold) != len(pred), len(gold[0]) != len(pred[0]):
		return comparison{}
	}
	var cells interner
	t := &tables{gold: cells.columns(gold), pred: cells.columns(pred), rows: len(gold), ordered: ordered}
	if cells.ambiguous && !sameUnordered(gold, pred, &cells, ordered) {
		return comparison{}
	}
	order := t.search()
	return comparison{equal: order != nil, tried: t.tried(order), gave: t.steps < 0}
}

// interner numbers cells so that two have the same number exactly when Python calls them equal.
type interner struct {
	numbers map[cell]int32
	forms   map[int32]form
	// ambiguous is set when two cells are equal and yet written differently, such as 1 and 1.0. Only then can the script's
	// quick rejection err.
	ambiguous bool
}

// cell is a value as Python compares it: a real with an integer value is that integer, text has lost its broken bytes.
type cell struct {
	kind sqlguard.Kind
	bits uint64
	data string
}

// form is how a number is written: equal cells of different forms have different texts.
type form struct {
	kind sqlguard.Kind
	bits uint64
}

func cellOf(v sqlguard.Value) cell {
	switch v.Kind {
	case sqlguard.Integer:
		return cell{kind: sqlguard.Integer, bits: uint64(v.Int)}
	case sqlguard.Real:
		if v.Real == math.Trunc(v.Real) && v.Real >= -(1<<63) && v.Real < 1<<63 {
			return cell{kind: sqlguard.Integer, bits: uint64(int64(v.Real))}
		}
		return cell{kind: sqlguard.Real, bits: math.Float64bits(v.Real)}
	case sqlguard.Text:
		return cell{kind: sqlguard.Text, data: pytext.DecodeIgnore([]byte(v.Data))}
	}
	return cell{kind: v.Kind, data: v.Data}
}

func (in *interner) number(v sqlguard.Value) int32 {
	if in.numbers == nil {
		in.numbers, in.forms = map[cell]int32{}, map[int32]form{}
	}
	c := cellOf(v)
	n, known := in.numbers[c]
	if !known {
		n = int32(len(in.numbers))
		in.numbers[c] = n
	}
	if c.kind == sqlguard.Integer {
		f := form{v.Kind, uint64(v.Int)}
		if v.Kind == sqlguard.Real {
			f.bits = math.Float64bits(v.Real)
		}
		if first, seen := in.forms[n]; seen && first != f {
			in.ambiguous = true
		} else {
			in.forms[n] = f
		}
	}
	return n
}

// columns numbers the cells of rows, column by column.
func (in *interner) columns(rows [][]sqlguard.Value) [][]int32 {
	columns := make([][]int32, len(rows[0]))
	flat := make([]int32, len(rows)*len(columns))
	for i := range columns {
		columns[i] = flat[i*len(rows) : (i+1)*len(rows)]
	}
	for i, row := range rows {
		for j, v := range row {
			columns[j][i] = in.number(v)
		}
	}
	return columns
}

// sameUnordered is the script's quick rejection: the cells of each row sorted by their text and type, then the rows
// compared as a list or as a set. Equal numbers of different type may be sorted differently, and then a right answer is
// rejected here.
func sameUnordered(gold, pred [][]sqlguard.Value, in *interner, ordered bool) bool {
	sorted := func(rows [][]sqlguard.Value) []string {
		keys := make([]string, len(rows))
		for i, row := range rows {
			keys[i] = sortedRow(row, in)
		}
		return keys
	}
	a, b := sorted(gold), sorted(pred)
	if ordered {
		return slices.Equal(a, b)
	}
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(slices.Compact(a), slices.Compact(b))
}

// sortedRow is a row's cell numbers in the order of their texts.
func sortedRow(row []sqlguard.Value, in *interner) string {
	type written struct {
		text   string
		number int32
	}
	cells := make([]written, len(row))
	for i, v := range row {
		cells[i] = written{pythonText(v), in.number(v)}
	}
	slices.SortStableFunc(cells, func(a, b written) int { return strings.Compare(a.text, b.text) })
	var key []byte
	for _, c := range cells {
		key = strconv.AppendInt(key, int64(c.number), 32)
		key = append(key, ' ')
	}
	return string(key)
}

// pythonText is str(x) + str(type(x)).
func pythonText(v sqlguard.Value) string {
	switch v.Kind {
	case sqlguard.Integer:
		return strconv.FormatInt(v.Int, 10) + "<class 'int'>"
	case sqlguard.Real:
		return pytext.FloatRepr(v.Real) + "<class 'float'>"
	case sqlguard.Text:
		return pytext.DecodeIgnore([]byte(v.Data)) + "<class 'str'>"
	case sqlguard.Blob:
		return pytext.BytesRepr([]byte(v.Data)) + "<class 'bytes'>"
	}
	return "None<class 'NoneType'>"
}

// tables are two results of the same shape, column by column.
type tables struct {
	gold, pred [][]int32
	rows       int
	ordered    bool
	steps      int // cells that the search may still look at; negative when it gave up
}

// searchBound is how many cells the search looks at before it gives up: seconds.
const searchBound = 1 << 27

// search finds the first order of the prediction's columns, as the script walks through them, that makes the results
// equal; nil when there is none.
func (t *tables) search() []int {
	t.steps = searchBound
	same := make([][]int, len(t.gold)) // for each gold column the prediction's columns with the same cells, in any order
	goldBags, predBags := t.bags(t.gold), t.bags(t.pred)
	for i := range t.gold {
		for j := range t.pred {
			if slices.Equal(goldBags[i], predBags[j]) {
				same[i] = append(same[i], j)
			}
		}
		if same[i] == nil {
			return nil
		}
	}
	start := make([]int32, t.rows)
	return t.extend(make([]int, 0, len(t.gold)), make([]bool, len(t.pred)), same, start, start)
}

// bags are the columns as the search tells them apart at first sight: as they are when order matters, else sorted.
func (t *tables) bags(columns [][]int32) [][]int32 {
	if t.ordered {
		return columns
	}
	bags := make([][]int32, len(columns))
	for i, column := range columns {
		bags[i] = slices.Clone(column)
		slices.Sort(bags[i])
	}
	return bags
}

// extend puts a prediction's column beside the next gold column, so that the rows cut off behind it are the same multiset.
// goldRows and predRows number the rows so cut off: equal ones have the same number.
func (t *tables) extend(order []int, used []bool, same [][]int, goldRows, predRows []int32) []int {
	depth := len(order)
	if depth == len(t.gold) {
		return order
	}
	for at, j := range same[depth] {
		if used[j] || t.triedTwin(same[depth][:at], used, j) {
			continue
		}
		if t.steps -= 2 * t.rows; t.steps < 0 {
			return nil
		}
		nextGold, nextPred, ok := goldRows, predRows, true
		if !t.ordered { // in order, equal columns are all that is asked for
			nextGold, nextPred, ok = refine(goldRows, t.gold[depth], predRows, t.pred[j])
		}
		if !ok {
			continue
		}
		used[j] = true
		if found := t.extend(append(order, j), used, same, nextGold, nextPred); found != nil {
			return found
		}
		used[j] = false
	}
	return nil
}

// triedTwin reports whether a column that equals column j was tried at this place before: it would fail again.
func (t *tables) triedTwin(before []int, used []bool, j int) bool {
	for _, k := range before {
		if !used[k] && slices.Equal(t.pred[k], t.pred[j]) {
			return true
		}
	}
	return false
}

// refine numbers the rows anew after one more cell of each; ok is false when the two multisets of rows differ.
func refine(goldRows, goldColumn, predRows, predColumn []int32) (nextGold, nextPred []int32, ok bool) {
	numbers := make(map[[2]int32]int32, len(goldRows))
	var count []int32
	nextGold, nextPred = make([]int32, len(goldRows)), make([]int32, len(predRows))
	for i := range goldRows {
		key := [2]int32{goldRows[i], goldColumn[i]}
		n, known := numbers[key]
		if !known {
			n = int32(len(count))
			numbers[key] = n
			count = append(count, 0)
		}
		count[n]++
		nextGold[i] = n
	}
	for i := range predRows {
		n, known := numbers[[2]int32{predRows[i], predColumn[i]}]
		if !known || count[n] == 0 {
			return nil, nil, false
		}
		count[n]--
		nextPred[i] = n
	}
	return nextGold, nextPred, true
}

// tried is how many orders the script walks through until it comes to the one given, or through all when it is nil. With
// more than three columns it tries, for each gold column, those of the prediction's columns whose cells all occur in it;
// the walk includes orders in which a column stands twice.
func (t *tables) tried(order []int) float64 {
	candidates := make([][]int, len(t.gold))
	for i, column := range t.gold {
		occurs := map[int32]bool{}
		for _, n := range column {
			occurs[n] = true
		}
		for j := range t.pred {
			if len(t.gold) <= 3 || !slices.ContainsFunc(t.pred[j], func(n int32) bool { return !occurs[n] }) {
				candidates[i] = append(candidates[i], j)
			}
		}
	}
	count := 0.0
	for i := range candidates {
		count *= float64(len(candidates[i]))
		if order != nil {
			count += float64(slices.Index(candidates[i], order[i]))
		}
	}
	if order != nil {
		return count + 1
	}
	count = 1
	for i := range candidates {
		count *= float64(len(candidates[i]))
	}
	return count
}
