package pytext

import (
	"math"
	"testing"
	"unicode/utf8"
)

func TestFloatRepr(t *testing.T) {
	for f, want := range map[float64]string{
		0: "0.0", 1: "1.0", 0.1: "0.1", 1e16: "1e+16", 1e15: "1000000000000000.0", 123456789012345680: "1.2345678901234568e+17",
		0.0001: "0.0001", 0.00001: "1e-05", 1e22: "1e+22", 2.5: "2.5", sum(0.1, 0.2): "0.30000000000000004", math.Inf(1): "inf",
		math.Inf(-1): "-inf", 9007199254740992: "9007199254740992.0", 1e100: "1e+100", 5e-324: "5e-324", 1.5e-7: "1.5e-07",
		math.MaxFloat64: "1.7976931348623157e+308", 3: "3.0",
	} {
		if got := FloatRepr(f); got != want {
			t.Errorf("FloatRepr(%v) = %s, want %s", f, got, want)
		}
	}
	if got := FloatRepr(math.Copysign(0, -1)); got != "-0.0" {
		t.Errorf("negative zero: %s", got)
	}
}

func TestBytesRepr(t *testing.T) {
	for in, want := range map[string]string{
		"a": "b'a'", "": "b''", "\x00\xff": `b'\x00\xff'`, "'": `b"'"`, `'"`: `b'\'"'`, "\\\n": `b'\\\n'`, "\x7f~": `b'\x7f~'`,
	} {
		if got := BytesRepr([]byte(in)); got != want {
			t.Errorf("BytesRepr(%q) = %s, want %s", in, got, want)
		}
	}
}

func TestParseFloat(t *testing.T) {
	for in, want := range map[string]float64{"1": 1, " 2.5\n": 2.5, "1e3": 1000, "1_000": 1000, "+.5": .5, "5.": 5, "inf": math.Inf(1), "-Infinity": math.Inf(-1), "1e999": math.Inf(1), "٣": 3} {
		if got, ok := ParseFloat(in); !ok || got != want {
			t.Errorf("ParseFloat(%q) = %v %v, want %v", in, got, ok, want)
		}
	}
	for _, in := range []string{"", "a", "1,2", "0x1F", "1__0", "_1", "1_", "--1", "1e", "1_e5", "0x1p-2", "+-1"} {
		if got, ok := ParseFloat(in); ok {
			t.Errorf("ParseFloat(%q) = %v, want none", in, got)
		}
	}
	if got, ok := ParseFloat("NaN"); !ok || !math.IsNaN(got) {
		t.Errorf("nan: %v %v", got, ok)
	}
}

func TestText(t *testing.T) {
	if got := DecodeIgnore([]byte("\xffA\xfe\xed\xa0\x80é\xe2\x82")); got != "Aé" {
		t.Errorf("DecodeIgnore: %q", got)
	}
	if got := Strip("\x1f\u00a0 a b\u2003\x0b"); got != "a b" {
		t.Errorf("Strip: %q", got)
	}
	if got := Lower("ΑΣ ÜNÏ İ"); got != "ας ünï i̇" {
		t.Errorf("Lower: %q", got)
	}
	if got := Lines("a\r\nb\rc\n\nd"); len(got) != 5 || got[3] != "" || got[4] != "d" {
		t.Errorf("Lines: %q", got)
	}
	if got := Lines(""); len(got) != 0 {
		t.Errorf("Lines of nothing: %q", got)
	}
}

func FuzzDecodeIgnore(f *testing.F) {
	f.Add([]byte("\xffA\xfe"))
	f.Fuzz(func(t *testing.T, data []byte) {
		text := DecodeIgnore(data)
		if !utf8.ValidString(text) || len(text) > len(data) || DecodeIgnore([]byte(text)) != text {
			t.Fatalf("%q -> %q", data, text)
		}
	})
}

func sum(a, b float64) float64 { return a + b } // not a constant expression, which would be exact
