package eval

import (
	"context"
	"slices"
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
