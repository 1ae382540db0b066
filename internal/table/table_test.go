package table

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
	"unicode"

	"quern/sqlguard"
)

func text1(s string) sqlguard.Value { return sqlguard.Value{Kind: sqlguard.Text, Data: s} }

func result(columns []string, rows ...[]sqlguard.Value) sqlguard.Result {
	r := sqlguard.Result{Rows: rows}
	for _, c := range columns {
		r.Columns = append(r.Columns, sqlguard.Column{Name: c})
	}
	return r
}

func render(t *testing.T, r sqlguard.Result, o Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := Write(&b, r, o); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func TestFormats(t *testing.T) {
	r := result([]string{"id", "a|b"},
		[]sqlguard.Value{{Kind: sqlguard.Integer, Int: 1}, text1("x")},
		[]sqlguard.Value{{Kind: sqlguard.Integer, Int: -20}, {}},
		[]sqlguard.Value{{}, {Kind: sqlguard.Blob, Data: strings.Repeat("\x00", 20)}},
	)
	want := map[Format]string{
		Table: "┌──────┬────────────────────────────────────────────────┐\n" +
			"│   id │ a|b                                            │\n" +
			"├──────┼────────────────────────────────────────────────┤\n" +
			"│    1 │ x                                              │\n" +
			"│  -20 │ NULL                                           │\n" +
			"│ NULL │ x'00000000000000000000000000000000…' (20 bytes) │\n" +
			"└──────┴────────────────────────────────────────────────┘\n",
		Markdown: "| id | a\\|b |\n| ---: | --- |\n| 1 | x |\n| -20 | NULL |\n| NULL | x'00000000000000000000000000000000…' (20 bytes) |\n",
		CSV:      "id,a|b\n1,x\n-20,\n,x'0000000000000000000000000000000000000000'\n",
		JSON: `{"columns":["id","a|b"],"types":["",""],"rows":[[1,"x"],[-20,null],[null,{"blob":"0000000000000000000000000000000000000000"}]],"truncated":false}` +
			"\n",
		Line: " id = 1\na|b = x\n\n id = -20\na|b = NULL\n\n id = NULL\na|b = x'00000000000000000000000000000000…' (20 bytes)\n",
	}
	for format, w := range want {
		got := render(t, r, Options{Format: format})
		if format == Table { // widths of … are the library's business
			got, w = strings.Join(strings.Fields(got), " "), strings.Join(strings.Fields(w), " ")
			got, w = strings.Trim(got, "┌─┬┐└┴┘ "), strings.Trim(w, "┌─┬┐└┴┘ ")
			got, w = strings.ReplaceAll(got, "─", ""), strings.ReplaceAll(w, "─", "")
		}
		if got != w {
			t.Errorf("%s:\n%s\nwant:\n%s", format, got, w)
		}
	}
}

func TestEmptyResultShowsItsColumns(t *testing.T) {
	for _, f := range Formats {
		if got := render(t, result([]string{"name"}), Options{Format: f}); f != Line && !strings.Contains(got, "name") {
			t.Errorf("%s: %q", f, got)
		}
	}
}

// Nothing that a terminal obeys comes through, in no format, neither from cells nor from names.
func TestControlCharactersAreVisible(t *testing.T) {
	evil := "\x1b[2J\x9b31m\u009b31m\x07\x00\r\n\x7f\u202e\u2066\u2028\x85\xff"
	r := result([]string{evil}, []sqlguard.Value{text1(evil)})
	for _, f := range Formats {
		for _, c := range render(t, r, Options{Format: f, Terminal: true}) {
			if c != '\n' && (unicode.IsControl(c) || unicode.Is(unicode.Bidi_Control, c)) {
				t.Errorf("%s lets %U through", f, c)
			}
		}
	}
}

func TestCSVKeepsBytes(t *testing.T) {
	cells := []string{"a,b", "c\"d", "line\nbreak", "=1+1", "\x1b[2J", "\xff\xfe", " x ", ""}
	for _, cell := range cells {
		got := render(t, result([]string{"c"}, []sqlguard.Value{text1(cell)}), Options{Format: CSV})
		rows, err := csv.NewReader(strings.NewReader(got)).ReadAll()
		if err != nil || len(rows) != 2 || rows[1][0] != cell {
			t.Errorf("%q came back as %q (%v)", cell, rows, err)
		}
	}
	if got := render(t, result([]string{"c"}, []sqlguard.Value{text1("=1+1")}), Options{Format: CSV, Formulas: true}); got != "c\n'=1+1\n" {
		t.Errorf("formula: %q", got)
	}
}

func TestJSONNumbersAreExact(t *testing.T) {
	r := result([]string{"a", "b", "c", "d", "e"}, []sqlguard.Value{
		{Kind: sqlguard.Integer, Int: math.MaxInt64}, {Kind: sqlguard.Real, Real: 3}, {Kind: sqlguard.Real, Real: 0.1},
		{Kind: sqlguard.Real, Real: math.Inf(-1)}, {Kind: sqlguard.Real, Real: 1e300},
	})
	got := render(t, r, Options{Format: JSON})
	if !json.Valid([]byte(got)) || !strings.Contains(got, `[9223372036854775807,3.0,0.1,{"real":"-Infinity"},1e+300]`) {
		t.Error(got)
	}
}

func TestLongCellsSayTheirLength(t *testing.T) {
	if got := Cell(text1(strings.Repeat("é", 50)), 3); got != "ééé… (50 characters)" {
		t.Error(got)
	}
}

func FuzzVisible(f *testing.F) {
	f.Add("a\x1b[2J")
	f.Fuzz(func(t *testing.T, s string) {
		v := Visible(s)
		if strings.IndexFunc(v, hidden) >= 0 {
			t.Errorf("%q became %q", s, v)
		}
		if Visible(v) != v {
			t.Errorf("%q is not stable", v)
		}
	})
}
