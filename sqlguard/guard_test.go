package sqlguard_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"quern/sqlguard"
)

func TestValuesKeepTheirStorageClass(t *testing.T) {
	path := create(t, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
	local, err := sqlguard.OpenInProcess(context.Background(), path, sqlguard.AskPolicy())
	if err != nil {
		t.Fatal(err)
	}
	defer local.Close()
	for _, g := range []*sqlguard.Guard{local, open(t, path, sqlguard.AskPolicy())} {
		for sql, want := range map[string]sqlguard.Value{
			"SELECT 1":                       integer(1),
			"SELECT 1.0":                     real(1),
			"SELECT '1'":                     text("1"),
			"SELECT x'31'":                   blob("1"),
			"SELECT NULL":                    {},
			"SELECT ''":                      text(""),
			"SELECT x''":                     blob(""),
			"SELECT zeroblob(3)":             blob("\x00\x00\x00"),
			"SELECT 'a' || char(0) || 'b'":   text("a\x00b"),
			"SELECT -9223372036854775808":    integer(math.MinInt64),
			"SELECT 9223372036854775807":     integer(math.MaxInt64),
			"SELECT 9223372036854775808":     real(9223372036854775808),
			"SELECT 9e999":                   real(math.Inf(1)),
			"SELECT 5e-324":                  real(5e-324),
			"SELECT 1 = 1":                   integer(1),
			"SELECT CAST(x'ff41fe' AS TEXT)": text("\xffA\xfe"),
		} {
			got := rows(t, g, sql)
			if len(got) != 1 || got[0][0] != want {
				t.Errorf("%s: %+v, want %+v", sql, got, want)
			}
		}
		if got := rows(t, g, "SELECT -0.0"); got[0][0].Kind != sqlguard.Real {
			t.Errorf("-0.0: %+v", got)
		}
	}
}

func TestColumnsAlsoOfAnEmptyResult(t *testing.T) {
	g := open(t, create(t, `CREATE TABLE t("a b" DATE, c VARCHAR(20), d)`), sqlguard.AskPolicy())
	r := query(t, g, `SELECT "a b", c, d, c || 'x', c AS c FROM t`)
	want := []sqlguard.Column{{Name: "a b", DeclType: "DATE"}, {Name: "c", DeclType: "VARCHAR(20)"}, {Name: "d"}, {Name: "c || 'x'"}, {Name: "c", DeclType: "VARCHAR(20)"}}
	if !slices.Equal(r.Columns, want) || len(r.Rows) != 0 || r.Failure != nil {
		t.Errorf("%+v", r)
	}
}

func TestTruncatedIsExact(t *testing.T) {
	g := open(t, create(t, "CREATE TABLE t(a)"), sqlguard.AskPolicy())
	count := func(n int) string {
		return fmt.Sprintf("WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT %d) SELECT n, 'abc' FROM c", n)
	}
	const row = 9 + 5 + 3 // an integer, the head of a text, its bytes
	for _, c := range []struct {
		rows, maxRows int
		maxBytes      int64
		want          int
		cut           sqlguard.Truncation
	}{
		{10, 10, 1000, 10, sqlguard.Whole},
		{11, 10, 1000, 10, sqlguard.CutByMaxRows},
		{9, 10, 1000, 9, sqlguard.Whole},
		{1, 1, 1000, 1, sqlguard.Whole},
		{10, 100, 10 * row, 10, sqlguard.Whole},
		{11, 100, 10 * row, 10, sqlguard.CutByMaxBytes},
		{10, 100, 10*row - 1, 9, sqlguard.CutByMaxBytes},
		{100_000, 100_000, 100_000 * row, 100_000, sqlguard.Whole}, // several chunks
		{100_001, 100_000, 100_000 * row, 100_000, sqlguard.CutByMaxRows},
	} {
		limits := g.Policy().Limits
		limits.MaxRows, limits.MaxBytes = c.maxRows, c.maxBytes
		r, err := g.QueryLimits(context.Background(), count(c.rows), limits)
		if err != nil || r.Failure != nil || len(r.Rows) != c.want || r.Truncated != c.cut {
			t.Errorf("%+v: %d rows, %q, %v %v", c, len(r.Rows), r.Truncated, r.Failure, err)
			continue
		}
		for i, cells := range r.Rows {
			if cells[0] != integer(int64(i+1)) || cells[1] != text("abc") {
				t.Fatalf("row %d: %+v", i, cells)
			}
		}
	}
}

func TestFailureLeavesNoRows(t *testing.T) {
	g := open(t, create(t, "CREATE TABLE t(a)"), sqlguard.AskPolicy())
	f := expect(t, g, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 9000) SELECT CASE WHEN n < 9000 THEN 'x' ELSE abs(-9223372036854775808) END FROM c", sqlguard.SQLError)
	if f.Message != "integer overflow" {
		t.Error(f)
	}
}

func TestWorkBound(t *testing.T) {
	g := open(t, create(t, "CREATE TABLE t(a)"), sqlguard.AskPolicy())
	limits := g.Policy().Limits
	limits.MaxOps = 100_000
	for range 2 { // the same verdict each time
		r, err := g.QueryLimits(context.Background(), endless, limits)
		if err != nil || r.Failure == nil || r.Failure.Kind != sqlguard.TimedOut || r.Failure.Rule != "max_ops" {
			t.Errorf("%v %v", r.Failure, err)
		}
		r, err = g.QueryLimits(context.Background(), "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 1000) SELECT sum(n) FROM c", limits)
		if err != nil || r.Failure != nil {
			t.Errorf("%v %v", r.Failure, err)
		}
	}
}

func TestHintsNameWhatWasMeant(t *testing.T) {
	g := open(t, create(t, "CREATE TABLE singer(Singer_ID INTEGER, Name TEXT, Country TEXT)", "CREATE TABLE stadium(Name TEXT)", `CREATE TABLE "odd name"("a b")`), sqlguard.AskPolicy())
	for sql, want := range map[string]string{
		"SELECT nmae FROM singer":              "did you mean singer.Name, stadium.Name?",
		"SELECT s.SingerID FROM singer AS s":   "did you mean singer.Singer_ID?",
		"SELECT * FROM singers":                "did you mean singer?",
		"SELECT * FROM main.stadum":            "did you mean stadium?",
		"SELECT * FROM nothing_like_it_at_all": "",
		"SELECT * FORM singer":                 "",
		`SELECT "Nam" FROM singer`:             "did you mean singer.Name, stadium.Name?",
		`SELECT * FROM odd_name`:               "did you mean odd name?",
	} {
		if f := expect(t, g, sql, sqlguard.SQLError); f.Hint != want {
			t.Errorf("%s: %q, want %q", sql, f.Hint, want)
		}
	}
}

func TestExplain(t *testing.T) {
	g := open(t, create(t, shop...), sqlguard.AskPolicy())
	d, err := g.Explain(context.Background(), "SELECT a, count(*) FROM t WHERE b LIKE 'x%'")
	want := []sqlguard.Use{{Action: "select"}, {Action: "read", Object: "t.a"}, {Action: "function", Object: "count"}, {Action: "read", Object: "t.b"}, {Action: "function", Object: "like"}}
	if err != nil || d.Failure != nil || d.Writes || len(d.Columns) != 2 {
		t.Errorf("%+v %v", d, err)
	}
	for _, use := range want {
		if !slices.Contains(d.Uses, use) {
			t.Errorf("%+v misses %+v", d.Uses, use)
		}
	}
	d, err = g.Explain(context.Background(), "DROP TABLE t")
	if err != nil || d.Failure == nil || d.Failure.Rule != "drop_table" && d.Failure.Rule != "delete" {
		t.Errorf("%+v %v", d.Failure, err)
	}
	d, err = g.Explain(context.Background(), endless)
	if err != nil || d.Failure != nil {
		t.Errorf("explaining ran it: %+v %v", d, err)
	}
}

// Python: see lstrip_sql and pysqlite_statement_create in CPython 3.11's Modules/_sqlite/statement.c.
func TestPythonAdmission(t *testing.T) {
	g := open(t, create(t, "CREATE TABLE t(a)"), sqlguard.EvalPolicy())
	for _, s := range []string{"", " \n", "-- x", "/* x */", "/* open", ";", ";;"} {
		if r := query(t, g, s); r.Failure != nil || r.Columns != nil || r.Rows != nil {
			t.Errorf("%q: %+v", s, r)
		}
	}
	for _, s := range []string{"SELECT 1;", "SELECT 1; -- x", "SELECT 1; /* x", "-- x\nSELECT 1", "SELECT 1;\t\f\r\n", ";SELECT 1"} {
		rows(t, g, s)
	}
	for _, s := range []string{"SELECT 1;;", "SELECT 1; SELECT 2", "SELECT 1; x", "SELECT 1;\v"} {
		if f := expect(t, g, s, sqlguard.MultipleStatements); sqlguard.PythonMessage(f) != "You can only execute one statement at a time." {
			t.Error(sqlguard.PythonMessage(f))
		}
	}
	for sql, want := range map[string]string{
		"SELECT ?, ?":           "Incorrect number of bindings supplied. The current statement uses 2, and there are 0 supplied.",
		"SELECT 1\x00":          "the query contains a null character",
		"SELECT nope FROM t":    "no such column: nope",
		"DELETE FROM t":         "attempt to write a readonly database",
		"CREATE TABLE u(a)":     "attempt to write a readonly database",
		"BEGIN":                 "not authorized",
		"SELECT FROM":           `near "FROM": syntax error`,
		"SELECT * FROM nowhere": "no such table: nowhere",
	} {
		if r := query(t, g, sql); r.Failure == nil || sqlguard.PythonMessage(r.Failure) != want {
			t.Errorf("%q: %v, want %q", sql, r.Failure, want)
		}
	}
	if got := rows(t, g, `SELECT "x"`); got[0][0] != text("x") {
		t.Error(got)
	}
}

func TestImmutableFileThatChanges(t *testing.T) {
	path := create(t, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
	g := open(t, path, sqlguard.EvalPolicy())
	for want := int64(1); want < 5; want++ {
		if got := rows(t, g, "SELECT count(*) FROM t"); got[0][0] != integer(want) {
			t.Fatalf("%v, want %d", got, want)
		}
		write(t, path, "INSERT INTO t VALUES (1)")
		later := time.Now().Add(time.Duration(want) * time.Second)
		if err := os.Chtimes(path, later, later); err != nil { // where the clock of the file system is coarse
			t.Fatal(err)
		}
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := g.Query(context.Background(), "SELECT 1"); err == nil || !strings.Contains(err.Error(), "no such file") {
		t.Errorf("a file that is gone: %v", err)
	}
}

func TestReverseScanOrder(t *testing.T) {
	path := create(t, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1), (2), (3)")
	policy := sqlguard.EvalPolicy()
	policy.ReverseScanOrder = true
	if got := rows(t, open(t, path, policy), "SELECT a FROM t LIMIT 1"); got[0][0] != integer(3) {
		t.Error(got)
	}
	if got := rows(t, open(t, path, sqlguard.EvalPolicy()), "SELECT a FROM t LIMIT 1"); got[0][0] != integer(1) {
		t.Error(got)
	}
}

func TestOrdinaryUserReadsWhatOthersOwn(t *testing.T) {
	asOrdinaryUser(t)
	path := create(t, shop...)
	for file, mode := range map[string]os.FileMode{path: 0o400, filepath.Dir(path): 0o500} {
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
	}
	defer os.Chmod(filepath.Dir(path), 0o700)
	if len(rows(t, open(t, path, sqlguard.AskPolicy()), "SELECT * FROM t")) != 3 {
		t.Error("wrong rows")
	}
	if err := os.Chmod(path, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := sqlguard.Open(context.Background(), path, sqlguard.AskPolicy()); err == nil || !strings.Contains(err.Error(), "permission denied") {
		t.Errorf("%v", err)
	}
}

func TestFileURI(t *testing.T) {
	for _, c := range []struct{ goos, path, want string }{
		{"linux", "/a b/x?#%.db", "file:///a%20b/x%3F%23%25.db?mode=ro"},
		{"linux", "/a/b.db", "file:///a/b.db?mode=ro"},
		{"windows", `C:\x y\a#b.db`, "file:///C:/x%20y/a%23b.db?mode=ro"},
		{"windows", `\\server\share\x.db`, "file:////server/share/x.db?mode=ro"},
	} {
		if got := sqlguard.FileURI(c.path, c.goos, "mode=ro"); got != c.want {
			t.Errorf("%s: %s, want %s", c.path, got, c.want)
		}
	}
}

func TestClosedGuard(t *testing.T) {
	g := open(t, create(t, shop...), sqlguard.AskPolicy())
	for range 2 {
		if err := g.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, err := g.Query(context.Background(), "SELECT 1"); !errors.Is(err, sqlguard.ErrClosed) {
		t.Error(err)
	}
	if _, err := g.Session(context.Background()); !errors.Is(err, sqlguard.ErrClosed) {
		t.Error(err)
	}
}

func TestEngine(t *testing.T) {
	e := sqlguard.Engine()
	if !strings.HasPrefix(e.Version, "3.") || e.SourceID == "" || len(e.CompileOptions) == 0 {
		t.Errorf("%+v", e)
	}
}

// TestBuiltLikePython checks what Python's sqlite3 has and a plain build lacks.
func TestBuiltLikePython(t *testing.T) {
	if !slices.Contains(sqlguard.Engine().CompileOptions, "ENABLE_MATH_FUNCTIONS") {
		t.Skip("built without the Makefile's tags: no math functions, no FTS5, no soundex")
	}
	g := open(t, create(t, "CREATE VIRTUAL TABLE f USING fts5(x)", "INSERT INTO f VALUES ('hello world')"), sqlguard.EvalPolicy())
	for sql, want := range map[string]sqlguard.Value{
		"SELECT sqrt(4) + floor(1.5) + pow(2, 3)":      real(11),
		"SELECT soundex('Robert')":                     text("R163"),
		"SELECT count(*) FROM f WHERE f MATCH 'hello'": integer(1),
		"SELECT json_extract('{\"a\": 1}', '$.a')":     integer(1),
		"SELECT x'61' LIKE 'a'":                        integer(0),
		"SELECT count(*) > 0 FROM dbstat":              integer(1),
		"SELECT row_number() OVER ()":                  integer(1),
	} {
		if got := rows(t, g, sql); got[0][0] != want {
			t.Errorf("%s: %+v", sql, got)
		}
	}
}
