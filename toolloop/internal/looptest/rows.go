// Package looptest holds what the loop's tests share: rows of golden files, a model that follows a script.
package looptest

import (
	"bufio"
	"encoding/json"
	"math"
	"os"
	"testing"

	"quern/internal/pytext"
)

// Rows reads a JSON Lines file. It fails when there is no row.
func Rows[T any](t testing.TB, path string) (rows []T) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<26)
	for lines.Scan() {
		var row T
		if err := json.Unmarshal(standardJSON(t, lines.Bytes()), &row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		rows = append(rows, row)
	}
	if err := lines.Err(); err != nil {
		t.Fatal(err)
	}
	if len(rows) == 0 {
		t.Fatalf("%s has no row", path)
	}
	return rows
}

// standardJSON replaces the values that Python writes and JSON does not have: NaN becomes "NaN".
func standardJSON(t testing.TB, line []byte) []byte {
	if json.Valid(line) {
		return line
	}
	v, err := pytext.DecodeJSON(string(line))
	if err != nil {
		t.Fatal(err)
	}
	return pytext.AppendJSON(nil, Finite(v))
}

// Finite replaces numbers that JSON cannot hold by their names.
func Finite(v any) any {
	switch v := v.(type) {
	case float64:
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return pytext.JSON(v)
		}
	case []any:
		for i := range v {
			v[i] = Finite(v[i])
		}
	case *pytext.Object:
		for i := range v.Members {
			v.Members[i].Value = Finite(v.Members[i].Value)
		}
	}
	return v
}
