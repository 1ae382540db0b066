package cli

import (
	"crypto/sha256"
	"database/sql"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
)

// shopDB makes a small database.
func shopDB(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "shop.sqlite")
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, s := range []string{"CREATE TABLE product(name TEXT, price REAL)", "INSERT INTO product VALUES ('ink', 3.5), ('=1+1', 4), ('a\x1b[2Jb', NULL)", "CREATE TABLE secret(a)"} {
		if _, err := db.Exec(s); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

func TestSQLFormats(t *testing.T) {
	db := shopDB(t)
	for format, want := range map[string]string{
		"csv":      "name,price\nink,3.5\n=1+1,4.0\n",
		"markdown": "| name | price |\n| --- | ---: |\n| ink | 3.5 |\n| =1+1 | 4.0 |\n",
		"json":     `{"columns":["name","price"],"types":["TEXT","REAL"],"rows":[["ink",3.5],["=1+1",4.0]],"truncated":false}` + "\n",
		"line":     " name = ink\nprice = 3.5\n\n name = =1+1\nprice = 4.0\n",
	} {
		stdout, stderr, code := run(t, "sql", "--db", db, "--format", format, "SELECT name, price FROM product WHERE price > 0")
		if stdout != want || stderr != "" || code != exitOK {
			t.Errorf("%s: code %d, stdout %q, stderr %q", format, code, stdout, stderr)
		}
	}
	if stdout, _, code := run(t, "sql", "--db", db, "SELECT * FROM product"); code != exitOK || !strings.Contains(stdout, `a\x1b[2Jb`) || strings.Contains(stdout, "\x1b") {
		t.Errorf("table: %q", stdout)
	}
	if stdout, _, _ := runInput(t, "SELECT count(*) AS n FROM product", "sql", "--db", db, "--format", "csv", "-"); stdout != "n\n3\n" {
		t.Errorf("from standard input: %q", stdout)
	}
}

func TestSQLOutputFile(t *testing.T) {
	db, out := shopDB(t), filepath.Join(t.TempDir(), "out.csv")
	if stdout, stderr, code := run(t, "sql", "--db", db, "-o", out, "--csv-safe", "SELECT name FROM product LIMIT 2"); stdout+stderr != "" || code != exitOK {
		t.Errorf("code %d, %q %q", code, stdout, stderr)
	}
	if got, err := os.ReadFile(out); string(got) != "name\nink\n'=1+1\n" {
		t.Errorf("%q %v", got, err)
	}
	run(t, "sql", "--db", db, "-o", out, "SELECT nope FROM product")
	if got, _ := os.ReadFile(out); !strings.HasPrefix(string(got), "name\n") {
		t.Errorf("a failure left %q", got)
	}
}

func TestSQLFailures(t *testing.T) {
	db := shopDB(t)
	for statement, want := range map[string]string{
		"DELETE FROM product":       "not authorized",
		"SELECT nmae FROM product":  "did you mean product.name?",
		"SELECT 1; SELECT 2":        "more than one statement",
		"":                          "no SQL statement",
		"SELECT zeroblob(90000000)": "--sql-max-bytes",
	} {
		stdout, stderr, code := run(t, "sql", "--db", db, statement)
		if stdout != "" || !strings.HasPrefix(stderr, "quern: ") || !strings.Contains(stderr, want) || code != exitFailed {
			t.Errorf("%s: code %d, stdout %q, stderr %q", statement, code, stdout, stderr)
		}
	}
	stdout, _, code := run(t, "sql", "--db", db, "--json", "ATTACH 'x' AS y")
	var doc sqlDocument
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil || code != exitFailed || doc.Failure == nil || doc.Failure.Rule != "attach" || doc.Failure.Object != "x" {
		t.Errorf("code %d, %s, %v", code, stdout, err)
	}
	if _, stderr, code := run(t, "sql", "--db", filepath.Join(t.TempDir(), "no.db"), "SELECT 1"); code != exitFailed || !strings.Contains(stderr, "no such file") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

func TestSQLExplain(t *testing.T) {
	db := shopDB(t)
	stdout, _, code := run(t, "sql", "--db", db, "--explain", "SELECT upper(name) FROM product")
	if code != exitOK || !strings.HasPrefix(stdout, "allowed") || !strings.Contains(stdout, "needs read product.name\n") || !strings.Contains(stdout, "needs function upper\n") {
		t.Errorf("code %d, %q", code, stdout)
	}
	stdout, _, code = run(t, "sql", "--db", db, "--explain", "DROP TABLE product")
	if code != exitFailed || !strings.Contains(stdout, "not allowed") || !strings.Contains(stdout, "  rule ") {
		t.Errorf("code %d, %q", code, stdout)
	}
	stdout, _, code = run(t, "sql", "--db", db, "--explain", "--json", "SELECT 1 AS one")
	if code != exitOK || stdout != `{"allowed":true,"failure":null,"uses":[{"action":"select"}],"columns":["one"]}`+"\n" {
		t.Errorf("code %d, %q", code, stdout)
	}
}

// Each limit is a flag, and what it stops names it.
func TestSQLLimits(t *testing.T) {
	db := shopDB(t)
	endless := "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n FROM c"
	for _, c := range []struct {
		flag, value, statement string
		code                   int
	}{
		{"--sql-max-rows", "2", "SELECT * FROM product", exitOK},
		{"--sql-max-bytes", "20", "SELECT * FROM product", exitOK},
		{"--sql-max-bytes", "1KB", "SELECT zeroblob(2000)", exitFailed},
		{"--sql-timeout", "200ms", endless + " WHERE n < 0", exitFailed},
		{"--sql-memory", "8MB", "SELECT length(printf('%.*c', 12000000, 'x'))", exitFailed},
	} {
		_, stderr, code := run(t, "sql", "--db", db, c.flag, c.value, c.statement)
		if code != c.code || !strings.Contains(stderr, c.flag) {
			t.Errorf("%s %s: code %d, %q", c.flag, c.value, code, stderr)
		}
	}
	if _, stderr, code := run(t, "sql", "--db", db, "--tables", "product", "SELECT * FROM secret"); code != exitFailed || !strings.Contains(stderr, "secret") {
		t.Errorf("code %d, %q", code, stderr)
	}
}

// One LIKE that SQLite cannot interrupt ends in time, and the file is as before.
func TestSQLBomb(t *testing.T) {
	db := shopDB(t)
	before, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	bomb := "SELECT replace(hex(zeroblob(7000000)), '00', 'a') LIKE '%" + strings.Repeat("a_", 400) + "b'"
	_, stderr, code := run(t, "sql", "--db", db, "--sql-timeout", "500ms", bomb)
	if code != exitFailed || !strings.Contains(stderr, "query exceeded 500ms and was stopped") {
		t.Errorf("code %d, %q", code, stderr)
	}
	if took := time.Since(start); took > 10*time.Second {
		t.Errorf("took %v", took)
	}
	if after, _ := os.ReadFile(db); sha256.Sum256(after) != sha256.Sum256(before) {
		t.Error("the file changed")
	}
}

func TestSQLUsage(t *testing.T) {
	for _, args := range [][]string{
		{"sql"}, {"sql", "--db", "x"}, {"sql", "--db", "x", "SELECT", "1"}, {"sql", "--db", "x", "--format", "xml", "SELECT 1"},
		{"sql", "--db", "x", "--sql-max-bytes", "many", "SELECT 1"}, {"sql", "--db", "x", "--sql-timeout", "0s", "SELECT 1"}, {"sql", "--db", "x", "--sql-max-rows", "-1", "SELECT 1"},
	} {
		if _, stderr, code := run(t, args...); code != exitUsage {
			t.Errorf("%v: code %d, %q", args, code, stderr)
		}
	}
}

func TestByteSize(t *testing.T) {
	for text, want := range map[string]int64{"1": 1, "4096": 4096, "64MB": 64 << 20, "1.5g": 3 << 29, "2 KiB": 2048, "10kb": 10240} {
		var s byteSize
		if err := s.Set(text); err != nil || int64(s) != want {
			t.Errorf("%s: %d %v", text, s, err)
		}
		var again byteSize
		if err := again.Set(s.String()); err != nil || again != s {
			t.Errorf("%s: %s does not read back", text, s.String())
		}
	}
	for _, text := range []string{"", "x", "-1", "0", "1TB", "1e99GB", "NaN", "MB"} {
		var s byteSize
		if err := s.Set(text); err == nil {
			t.Errorf("%q is %d", text, s)
		}
	}
}
