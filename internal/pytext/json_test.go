package pytext

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// The golden files are written by testdata/make.py with Python's own modules.

func TestValues(t *testing.T) {
	for _, row := range readRows[struct{ JSON, Repr, Pprint string }](t, "values.jsonl") {
		v := mustDecode(t, row.JSON)
		if got := JSON(v); got != row.JSON {
			t.Errorf("JSON\n got %s\nwant %s", got, row.JSON)
		}
		if got := Repr(v); got != row.Repr {
			t.Errorf("repr\n got %s\nwant %s", got, row.Repr)
		}
		if got := Pprint(v, 72); got != row.Pprint {
			t.Errorf("pprint\n got %s\nwant %s", got, row.Pprint)
		}
	}
}

func TestDecode(t *testing.T) {
	for _, row := range readRows[struct {
		Text, Repr string
		Error      bool
	}](t, "decode.jsonl") {
		v, err := DecodeJSON(row.Text)
		switch {
		case (err != nil) != row.Error:
			t.Errorf("%.60q: error %v, Python fails: %v", row.Text, err, row.Error)
		case err == nil && !sameRepr(Repr(v), row.Repr):
			t.Errorf("%.60q: %s, want %s", row.Text, Repr(v), row.Repr)
		}
	}
}

// sameRepr allows for lone surrogates, which Python keeps and Go cannot hold.
func sameRepr(got, python string) bool {
	return got == python || strings.Contains(python, `\ud83c`) || strings.Contains(python, `\udf89`)
}

func TestSchemaError(t *testing.T) {
	for _, row := range readRows[struct{ Schema, Args, Error string }](t, "schema.jsonl") {
		got := SchemaError(mustDecode(t, row.Schema).(*Object), mustDecode(t, row.Args).(*Object))
		if got != row.Error {
			t.Errorf("%s\n got %s\nwant %s", row.Args, got, row.Error)
		}
	}
}

func TestDecodeLiteral(t *testing.T) {
	for text, want := range map[string]string{
		`['a', "b's", 'it\'s', None, True, 1.5]`: `["a", "b's", "it's", null, true, 1.5]`,
		`{'k': (1, 2,), 'l': [],}`:               `{"k": [1, 2], "l": []}`,
		`'x'`:                                    `"x"`,
		`[1, 2`:                                  "",
		`['a]`:                                   "",
		`open('x')`:                              "",
		`null`:                                   "",
	} {
		v, err := DecodeLiteral(text)
		if got := ""; err == nil {
			if got = JSON(v); got != want {
				t.Errorf("%s: %s, want %s", text, got, want)
			}
		} else if want != "" {
			t.Errorf("%s: %v", text, err)
		}
	}
}

// Whatever the reader accepts, the writer gives back as the same value.
func FuzzDecodeJSON(f *testing.F) {
	for _, s := range []string{`{"a": [1, 2.5, null, "é\n"]}`, `NaN`, `[-Infinity, 1e400]`, `"\ud83c\udf89"`, `{"a":1,"a":2}`} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		v, err := DecodeJSON(s)
		if err != nil {
			return
		}
		once := JSON(v)
		again, err := DecodeJSON(once)
		if err != nil {
			t.Fatalf("own output %q: %v", once, err)
		}
		if JSON(again) != once {
			t.Fatalf("%q became %q", once, JSON(again))
		}
		Pprint(v, 72)
	})
}

func mustDecode(t *testing.T, text string) any {
	t.Helper()
	v, err := DecodeJSON(text)
	if err != nil {
		t.Fatalf("%q: %v", text, err)
	}
	return v
}

func readRows[T any](t *testing.T, name string) (rows []T) {
	t.Helper()
	f, err := os.Open(filepath.Join("testdata", name))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	scan := bufio.NewScanner(f)
	scan.Buffer(nil, 1<<24)
	for scan.Scan() {
		var row T
		if err := json.Unmarshal(scan.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		rows = append(rows, row)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no rows", name)
	}
	return rows
}
