package nltk

import (
	"strings"
	"testing"
)

// The expected words were recorded from NLTK 3.10.4 with its English model; one space between words.
func TestWords(t *testing.T) {
	for _, c := range [][2]string{
		{"SELECT a,b FROM t WHERE x>=1", "SELECT a , b FROM t WHERE x > =1"},
		{"WHERE a IN (1,2, 3)", "WHERE a IN ( 1,2 , 3 )"},
		{"SELECT cannot FROM t", "SELECT can not FROM t"},
		{"select t1.cannot", "select t1. can not"},
		{"x != 1 AND y!=2", "x ! = 1 AND y ! =2"},
		{"SELECT count(*)FROM t;", "SELECT count ( * ) FROM t ;"},
		{"WHERE x > 21.", "WHERE x > 21 ."},
		{"WHERE x > 21. AND y", "WHERE x > 21 . AND y"},
		{"WHERE x > 21. and y", "WHERE x > 21. and y"},
		{"WHERE (x > 21.) AND y", "WHERE ( x > 21 . ) AND y"},
		{"T1. name", "T1 . name"},
		{"t. name", "t. name"},
		{"T1 . name", "T1 . name"},
		{"a--b", "a -- b"},
		{"`a b` x", "` a b ` x"},
		{"```a", "`` ` a"},
		{"[a] {b} $1 a%b c#d e@f g&h", "[ a ] { b } $ 1 a % b c # d e @ f g & h"},
		{"a...b", "a ... b"},
		{"a:1 b:c ,,", "a:1 b : c , ,"},
		{"__val_1_5__", "__val_1_5__"},
		{"", ""},
		{" \t\n", ""},
		{"a\u00a0b“c”", "a b “ c ”"},
		{"gimme gotta wanna wanna", "gim me got ta wan na wan na"},
	} {
		if got := strings.Join(Words(c[0]), " "); got != c[1] {
			t.Errorf("Words(%q)\n got %s\nwant %s", c[0], got, c[1])
		}
	}
}

// Splitting loses white space and nothing else.
func FuzzWords(f *testing.F) {
	for _, s := range []string{"SELECT a. b", "x.)", "``", "cannot,1", "21.\n)--"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		s = strings.ToValidUTF8(s, "")
		want := strings.Join(strings.FieldsFunc(s, func(r rune) bool { return strings.TrimSpace(string(r)) == "" || r >= 0x1c && r <= 0x1f }), "")
		if got := strings.Join(Words(s), ""); got != want {
			t.Fatalf("%q -> %q", s, Words(s))
		}
	})
}
