package sqlparse

import (
	"strings"
	"testing"
)

// The expected tokens were recorded from sqlparse 0.6.1; a bar between tokens, a middle dot for a space token.
func TestTokens(t *testing.T) {
	for _, c := range [][2]string{
		{"SELECT a, b", "SELECT|·|a|,|·|b"},
		{"count(DISTINCT x)", "count|(|DISTINCT|·|x|)"},
		{"group  by x order\tby y", "group  by|·|x|·|order\tby|·|y"},
		{"LEFT OUTER JOIN t NATURAL JOIN u", "LEFT OUTER JOIN|·|t|·|NATURAL JOIN|·|u"},
		{"left join lefty", "left join|·|lefty"},
		{"a not  like 'x'", "a|·|not  like|·|'x'"},
		{"t1.name T1 . end", "t1|.|name|·|T1|·|.|·|end"},
		{"x>=1.5 and y=-2 z=3e-5", "x|>=|1.5|·|and|·|y|=|-2|·|z|=|3e-5"},
		{"1a 1_0 .5 5. 0x1F -", "1a|·|1_0|·|.5|·|5.|·|0x1F|·|-"},
		{"'a''b' 'a\\'b' ''", "'a''b'|·|'a\\'b'|·|''"},
		{"'a'' b", "'a'|'|·|b"},
		{`"a""b" "c`, `"a""b"|·|"|c`},
		{"`a``b` [c d] x[1] [", "`a``b`|·|[c d]|·|x|[|1|]|·|["},
		{"-- c\nx /* y */ /* z", "-- c\n|x|·|/* y */|·|/|*|·|z"},
		{"a||b ->> c != d", "a||||b|·|->>|·|c|·|!=|·|d"},
		{"$$a$$ $x :y ?1 @v ##w %s", "$$a$$|·|$x|·|:y|·|?|1|·|@|v|·|##|w|·|%s"},
		{"a\r\nb", "a|\r\n|b"},
		{"", ""},
	} {
		var got []string
		for _, tok := range Tokens(c[0]) {
			if tok.Kind == Space && tok.Text == " " {
				tok.Text = "·"
			}
			got = append(got, tok.Text)
		}
		if joined := strings.Join(got, "|"); joined != c[1] {
			t.Errorf("Tokens(%q)\n got %s\nwant %s", c[0], joined, c[1])
		}
	}
}

func TestFirstStatement(t *testing.T) {
	for in, want := range map[string]string{
		"SELECT 1":                        "SELECT 1",
		"SELECT 1; SELECT 2":              "SELECT 1; ",
		"SELECT 1; -- c\nSELECT 2":        "SELECT 1; -- c\n",
		"SELECT 1;\nSELECT 2":             "SELECT 1;",
		"SELECT ';' ; x":                  "SELECT ';' ; ",
		"SELECT (1; 2); x":                "SELECT (1; 2); ",
		"BEGIN; x":                        "BEGIN; ",
		"BEGIN SELECT 1; END; x":          "BEGIN SELECT 1; END; ",
		"SELECT CASE WHEN 1 THEN 2 END;x": "SELECT CASE WHEN 1 THEN 2 END;",
		"a GO b":                          "a GO ",
		"a GO 2 b":                        "a GO 2 ",
		"a go b":                          "a go b",
		" ;x":                             " ;",
		"-- only":                         "-- only",
	} {
		tokens, ok := FirstStatement(in)
		var got strings.Builder
		for _, tok := range tokens {
			got.WriteString(tok.Text)
		}
		if !ok || got.String() != want {
			t.Errorf("FirstStatement(%q) = %q %v, want %q", in, got.String(), ok, want)
		}
	}
	for _, in := range []string{"", " ", "\n \t"} {
		if _, ok := FirstStatement(in); ok {
			t.Errorf("FirstStatement(%q): want none", in)
		}
	}
}

// The tokens joined are the text, and the first statement is its beginning.
func FuzzTokens(f *testing.F) {
	for _, s := range []string{"SELECT 'a''", "[x] $a$ b $a$", "/* */ -- x", "1.e5 GO 3", "AT TIME ZONE 'x'", "´a´ ÷ ſ"} {
		f.Add(s)
	}
	join := func(tokens []Token) string {
		var b strings.Builder
		for _, tok := range tokens {
			b.WriteString(tok.Text)
		}
		return b.String()
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "?")
		if got := join(Tokens(s)); got != s {
			t.Fatalf("%q -> %q", s, got)
		}
		first, _ := FirstStatement(s)
		if !strings.HasPrefix(s, join(first)) {
			t.Fatalf("%q begins with %q?", s, join(first))
		}
	})
}
