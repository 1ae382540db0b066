package engine

import (
	"math/rand/v2"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestTextIsWhole cuts texts into pieces anywhere, also inside characters, and checks that each event's text is valid
// UTF-8, that together they are the text up to the first stop text, and that none of it comes too early.
func TestTextIsWhole(t *testing.T) {
	texts := []string{"", "plain", "emoji 🎸🎤 and 한국어 and é", "```sql\nSELECT 1\n```", "a\xffb\xf0\x9f", "aaaaabaaaab", "🎸"}
	stops := [][]string{nil, {"```"}, {"🎤"}, {"aab", "ab"}, {"SELECT", "\n"}}
	r := rand.New(rand.NewPCG(1, 2))
	for range 2000 {
		text, stop := texts[r.IntN(len(texts))], stops[r.IntN(len(stops))]
		a := assembler{stops: stop}
		scan := newStopScanner(stop)
		var got strings.Builder
		stopped := false
		for rest := text; rest != "" && !stopped; {
			n := 1 + r.IntN(min(len(rest), 5))
			out := a.add(rest[:n])
			if !utf8.ValidString(out) {
				t.Fatalf("%q: %q is not whole", text, out)
			}
			got.WriteString(out)
			stopped = scan != nil && scan.add(rest[:n])
			rest = rest[n:]
			if stopped != a.stopped {
				t.Fatalf("%q, stops %q: the scanner says %v, the assembler %v", text, stop, stopped, a.stopped)
			}
		}
		a.end()
		got.WriteString(a.rest)
		want := text
		if stopped {
			want, _ = cutFirst(text, stop)
		}
		if want = strings.ToValidUTF8(want, "\uFFFD"); strings.ToValidUTF8(got.String(), "\uFFFD") != want && !strings.Contains(want, "\uFFFD") || a.all.String() != got.String() {
			t.Fatalf("%q, stops %q: got %q (%q in all), want %q", text, stop, got.String(), a.all.String(), want)
		}
	}
}

// cutFirst is the text before the stop text that is complete first.
func cutFirst(text string, stops []string) (string, bool) {
	for end := range len(text) + 1 {
		best := -1
		for _, stop := range stops {
			if i := strings.Index(text[:end], stop); i >= 0 && (best < 0 || i < best) {
				best = i
			}
		}
		if best >= 0 {
			return text[:best], true
		}
	}
	return text, false
}

func FuzzAssembler(f *testing.F) {
	f.Add("héllo 🎸", "llo", uint64(3))
	f.Fuzz(func(t *testing.T, text, stop string, seed uint64) {
		a := assembler{}
		if stop != "" {
			a.stops = []string{stop}
		}
		r := rand.New(rand.NewPCG(seed, 0))
		for rest := text; rest != ""; {
			n := 1 + r.IntN(len(rest))
			if out := a.add(rest[:n]); !utf8.ValidString(out) {
				t.Fatalf("%q is not whole", out)
			}
			rest = rest[n:]
		}
		a.end()
		if want, _, found := strings.Cut(text, stop); stop != "" && found && utf8.ValidString(text) && a.all.String() != want {
			t.Fatalf("%q, want %q", a.all.String(), want)
		}
	})
}
