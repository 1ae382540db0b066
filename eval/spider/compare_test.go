package spider

import (
	"math"
	"math/rand"
	"testing"
	"time"

	"quern/sqlguard"
)

func integer(n int64) sqlguard.Value                { return sqlguard.Value{Kind: sqlguard.Integer, Int: n} }
func realv(f float64) sqlguard.Value                { return sqlguard.Value{Kind: sqlguard.Real, Real: f} }
func text(s string) sqlguard.Value                  { return sqlguard.Value{Kind: sqlguard.Text, Data: s} }
func blob(s string) sqlguard.Value                  { return sqlguard.Value{Kind: sqlguard.Blob, Data: s} }
func null() sqlguard.Value                          { return sqlguard.Value{} }
func rows(r ...[]sqlguard.Value) [][]sqlguard.Value { return r }
func row(v ...sqlguard.Value) []sqlguard.Value      { return v }

func TestCompareResults(t *testing.T) {
	for name, c := range map[string]struct {
		gold, pred [][]sqlguard.Value
		ordered    bool
		want       bool
	}{
		"both empty":             {nil, nil, true, true},
		"more rows":              {rows(row(integer(1))), rows(row(integer(1)), row(integer(1))), false, false},
		"more columns":           {rows(row(integer(1))), rows(row(integer(1), integer(1))), false, false},
		"int and real":           {rows(row(integer(1))), rows(row(realv(1))), false, true},
		"big int and real":       {rows(row(integer(1<<53 + 1))), rows(row(realv(1 << 53))), false, false},
		"number and text":        {rows(row(integer(1))), rows(row(text("1"))), false, false},
		"text and blob":          {rows(row(text("a"))), rows(row(blob("a"))), false, false},
		"null":                   {rows(row(null())), rows(row(null())), false, true},
		"negative zero":          {rows(row(realv(0))), rows(row(integer(0))), false, true},
		"broken text":            {rows(row(text("\xffA\xfe"))), rows(row(text("A"))), false, true},
		"columns swapped":        {rows(row(integer(1), text("a")), row(integer(2), text("b"))), rows(row(text("b"), integer(2)), row(text("a"), integer(1))), false, true},
		"same, in order":         {rows(row(integer(1), text("a")), row(integer(2), text("b"))), rows(row(text("b"), integer(2)), row(text("a"), integer(1))), true, false},
		"rows crossed":           {rows(row(integer(1), integer(2)), row(integer(2), integer(1))), rows(row(integer(1), integer(1)), row(integer(2), integer(2))), false, false},
		"duplicates count":       {rows(row(integer(1)), row(integer(1)), row(integer(2))), rows(row(integer(1)), row(integer(2)), row(integer(2))), false, false},
		"quick rejection errs":   {rows(row(integer(1), text("1.5"))), rows(row(realv(1), text("1.5"))), false, false},
		"zeros of both signs":    {rows(row(realv(math.Copysign(0, -1)), integer(-1), realv(0))), rows(row(realv(0), integer(-1), realv(math.Copysign(0, -1)))), false, true},
		"and errs not otherwise": {rows(row(integer(1), text("x"))), rows(row(realv(1), text("x"))), false, true},
	} {
		if got := compareResults(c.gold, c.pred, c.ordered); got.equal != c.want {
			t.Errorf("%s: %v, want %v", name, got.equal, c.want)
		}
	}
}

// bruteForce is the comparison by definition: every order of the columns.
func bruteForce(gold, pred [][]sqlguard.Value, ordered bool) bool {
	var cells interner
	g, p := cells.columns(gold), cells.columns(pred)
	n := len(g)
	perm := make([]int, n)
	var try func(k int, used int) bool
	try = func(k, used int) bool {
		if k == n {
			count := map[string]int{}
			key := func(cols [][]int32, order []int, i int) string {
				s := ""
				for c := range cols {
					s += string(rune(cols[order[c]][i])) + ","
				}
				if ordered {
					s += string(rune(i))
				}
				return s
			}
			id := make([]int, n)
			for i := range id {
				id[i] = i
			}
			for i := range gold {
				count[key(g, id, i)]++
				count[key(p, perm, i)]--
			}
			for _, c := range count {
				if c != 0 {
					return false
				}
			}
			return true
		}
		for j := 0; j < n; j++ {
			if used&(1<<j) == 0 {
				perm[k] = j
				if try(k+1, used|1<<j) {
					return true
				}
			}
		}
		return false
	}
	return try(0, 0)
}

// The search and the definition agree on small random tables, most of which are equal under some order or nearly so.
func TestCompareAgainstBruteForce(t *testing.T) {
	rng := rand.New(rand.NewSource(1))
	equal := 0
	for n := 0; n < 5000; n++ {
		width, height, values := 1+rng.Intn(5), 1+rng.Intn(6), 1+rng.Intn(3)
		gold := make([][]sqlguard.Value, height)
		for i := range gold {
			for j := 0; j < width; j++ {
				gold[i] = append(gold[i], integer(int64(rng.Intn(values))))
			}
		}
		perm := rng.Perm(width)
		pred := make([][]sqlguard.Value, height)
		for i := range gold {
			for j := range perm {
				pred[i] = append(pred[i], gold[i][perm[j]])
			}
		}
		ordered := rng.Intn(2) == 0
		if !ordered {
			rng.Shuffle(height, func(i, j int) { pred[i], pred[j] = pred[j], pred[i] })
		}
		for k := rng.Intn(3); k > 0; k-- {
			a, b, c := rng.Intn(height), rng.Intn(height), rng.Intn(width)
			pred[a][c], pred[b][c] = pred[b][c], pred[a][c]
		}
		got, want := compareResults(gold, pred, ordered).equal, bruteForce(gold, pred, ordered)
		if got != want {
			t.Fatalf("ordered %v\ngold %v\npred %v\n got %v, want %v", ordered, gold, pred, got, want)
		}
		if want {
			equal++
		}
	}
	t.Logf("%d of 5000 tables equal", equal)
}

// Many alike columns end at once, and are known to be more than the script can walk through.
func TestCompareManyColumns(t *testing.T) {
	start := time.Now()
	gold, pred := make([][]sqlguard.Value, 4), make([][]sqlguard.Value, 4)
	for i := range gold {
		for j := 0; j < 30; j++ {
			gold[i] = append(gold[i], integer(int64(j/15*i)))
			pred[i] = append(pred[i], integer(int64((1-j%2)*i)))
		}
	}
	got := compareResults(gold, pred, false)
	if !got.equal || got.tried < patience {
		t.Errorf("%+v, want equal after more than %g orders", got, float64(patience))
	}
	pred[0][0], pred[1][0] = integer(7), integer(7)
	if got := compareResults(gold, pred, false); got.equal {
		t.Error("want unequal")
	}
	if took := time.Since(start); took > 20*time.Second {
		t.Errorf("took %s", took)
	}
}
