package eval

import (
	"context"
	"slices"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// Doubts are about what the data shows: each kind on a query that has it, and on one beside it that has not.
func TestGoldDoubts(t *testing.T) {
	exec, err := NewExecutor(2, Deadlines{})
	if err != nil {
		t.Fatal(err)
	}
	defer exec.Close()
	flight := testenv.Shared(t, "data", "spider", "database", "flight_2", "flight_2.sqlite")
	for _, c := range []struct {
		sql  string
		want []string
	}{
		{"SELECT count(*) FROM FLIGHTS WHERE SourceAirport = 'AHD'", []string{DoubtPadding}},
		{"SELECT count(*) FROM FLIGHTS AS T1 WHERE T1.SourceAirport = \"APG\"", []string{DoubtPadding}},
		{"SELECT Abbreviation FROM AIRLINES WHERE Airline = 'JetBlue Airways'", nil},
		{"SELECT Airline FROM AIRLINES WHERE Airline = 'nobody'", []string{DoubtEmpty}},
		{"SELECT nosuch FROM AIRLINES", []string{DoubtFails}},
		{"SELECT Airline FROM AIRLINES LIMIT 1", []string{DoubtTies}},
		{"SELECT Airline FROM AIRLINES ORDER BY uid LIMIT 1", nil},
		{"SELECT Airline FROM AIRLINES ORDER BY Country LIMIT 1", []string{DoubtTies}},
		{"SELECT Country FROM AIRLINES ORDER BY Country LIMIT 1", nil}, // equals that cannot be told apart
		{"SELECT Abbreviation FROM AIRLINES WHERE Airline = (SELECT Airline FROM AIRLINES ORDER BY Country DESC LIMIT 1)", []string{DoubtTies}},
		{"SELECT Country, count(*) FROM AIRLINES GROUP BY Country ORDER BY count(*) DESC LIMIT 1", nil},
		{"SELECT Airline FROM AIRLINES WHERE uid >= 1.5 ORDER BY length('limit') , Country", nil},
		{"SELECT Airline FROM AIRLINES", nil},
	} {
		doubts, err := GoldDoubts(context.Background(), exec, Example{Database: flight, Gold: c.sql})
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, d := range doubts {
			kinds = append(kinds, d.Kind)
			if d.Evidence == "" {
				t.Errorf("%s: %s without evidence", c.sql, d.Kind)
			}
		}
		if !slices.Equal(kinds, c.want) {
			t.Errorf("%s: doubts %v, want %v", c.sql, doubts, c.want)
		}
	}
}

func TestTextComparisons(t *testing.T) {
	got := textComparisons(`SELECT 1 FROM t WHERE a = 'x''y' AND T1.b=="z" OR c > 'no' AND 'k' = 'l' AND [d e] = 'w' AND a = 'x''y' AND f = 3`)
	want := []textComparison{{"a", "x'y"}, {"b", "z"}, {"d e", "w"}}
	if !slices.Equal(got, want) {
		t.Errorf("comparisons %v, want %v", got, want)
	}
}

func TestTieBreaks(t *testing.T) {
	up, down, ok := tieBreaks("SELECT a, b FROM t WHERE c = (SELECT d FROM u ORDER BY e >= 1.5 LIMIT 1) ORDER  BY a DESC LIMIT 3 OFFSET 1", 2)
	if want := "SELECT a, b FROM t WHERE c = (SELECT d FROM u ORDER BY e >= 1.5 , 1 DESC LIMIT 1) ORDER  BY a DESC , 1 DESC, 2 DESC LIMIT 3 OFFSET 1"; !ok || down != want {
		t.Errorf("%v\n got %s\nwant %s", ok, down, want)
	}
	if strings.ReplaceAll(up, " ASC", "") != strings.ReplaceAll(strings.ReplaceAll(down, " DESC", ""), "ORDER  BY a ", "ORDER  BY a DESC ") {
		t.Errorf("upwards: %s", up)
	}
	for _, sql := range []string{"SELECT a FROM t LIMIT 1", "SELECT a FROM t ORDER BY b", "SELECT (SELECT a FROM t ORDER BY b) FROM u LIMIT 1", "SELECT 'order by x limit 1'"} {
		if up, down, ok := tieBreaks(sql, 1); ok || up != sql || down != sql {
			t.Errorf("%s: %v, %s, %s", sql, ok, up, down)
		}
	}
}
