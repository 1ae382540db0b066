package sqltool

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strings"

	"quern/sqlguard"
)

// Reward is Oumi's training reward: 1 when the prediction gives the gold query's rows, else 0. Rows are compared as
// Python tuples are, in order if the gold query has an ORDER BY of its own, else as a multiset; names of columns do not
// count. A prediction that fails is worth 0, a gold query that fails is an error.
func Reward(ctx context.Context, db Database, gold, prediction string) (float64, error) {
	want, err := db.Query(ctx, gold)
	if err != nil {
		return 0, err
	}
	if want.Failure != nil {
		return 0, fmt.Errorf("sqltool: the gold query fails: %s", want.Failure.Message)
	}
	got, err := db.Query(ctx, prediction)
	if err != nil {
		return 0, err
	}
	if got.Failure != nil || hasVerb(prediction, "PRAGMA") || hasVerb(prediction, "EXPLAIN") {
		return 0, nil
	}
	if sameRows(want.Rows, got.Rows, TopLevelOrderBy(gold)) {
		return 1, nil
	}
	return 0, nil
}

func sameRows(a, b [][]sqlguard.Value, ordered bool) bool {
	if len(a) != len(b) {
		return false
	}
	count := map[string]int{}
	for i := range a {
		left, right := rowKey(a[i]), rowKey(b[i])
		if ordered && left != right {
			return false
		}
		count[left]++
		count[right]--
	}
	for _, n := range count {
		if n != 0 {
			return false
		}
	}
	return true
}

// rowKey is equal for rows that are equal as Python tuples: 6 == 6.0 and 0.0 == -0.0, but '6' != 6 and bytes != str.
func rowKey(row []sqlguard.Value) string {
	var b strings.Builder
	for _, v := range row {
		switch v.Kind {
		case sqlguard.Integer:
			fmt.Fprintf(&b, "i%d,", v.Int)
		case sqlguard.Real:
			const limit = 1 << 63
			if v.Real == math.Trunc(v.Real) && -limit <= v.Real && v.Real < limit {
				fmt.Fprintf(&b, "i%d,", int64(v.Real))
			} else {
				fmt.Fprintf(&b, "f%x,", math.Float64bits(v.Real))
			}
		case sqlguard.Text:
			fmt.Fprintf(&b, "t%d:%s,", len(v.Data), v.Data)
		case sqlguard.Blob:
			fmt.Fprintf(&b, "b%d:%s,", len(v.Data), v.Data)
		default:
			b.WriteString("n,")
		}
	}
	return b.String()
}

var (
	orderBy         = regexp.MustCompile(`(?i)\border\s+by\b`)
	innermostParens = regexp.MustCompile(`\([^()]*\)`)
	quotedOrComment = regexp.MustCompile("(?s)--[^\n]*|/\\*.*?(?:\\*/|$)|'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`(?:[^`]|``)*`|\\[[^\\]]*\\]")
)

// TopLevelOrderBy says whether a query has an ORDER BY outside parentheses, quotes and comments.
func TopLevelOrderBy(sql string) bool {
	sql = quotedOrComment.ReplaceAllLiteralString(sql, " ")
	for {
		flat := innermostParens.ReplaceAllLiteralString(sql, " ")
		if flat == sql {
			return orderBy.MatchString(sql)
		}
		sql = flat
	}
}
