package sqlguard_test

import (
	"bufio"
	"context"
	"crypto/sha256"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"quern/sqlguard"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker()
	if len(os.Args) == 3 && os.Args[1] == holderVerb {
		holdDatabase(os.Args[2])
		return
	}
	if len(os.Args) == 3 && os.Args[1] == parentVerb {
		parentOfWorkers(os.Args[2])
		return
	}
	os.Exit(m.Run())
}

// holdDatabase runs the statements of its standard input, one a line, on one connection, and answers each with ok.
func holdDatabase(path string) {
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		panic(err)
	}
	db.SetMaxOpenConns(1)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		if _, err := db.Exec(lines.Text()); err != nil {
			fmt.Println(strings.ReplaceAll(err.Error(), " ", "_"))
			continue
		}
		fmt.Println("ok")
	}
}

// create makes a database of its own for the test from SQL statements.
func create(t testing.TB, statements ...string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.sqlite")
	write(t, path, statements...)
	return path
}

// write runs statements on the database at path through an ordinary driver.
func write(t testing.TB, path string, statements ...string) {
	t.Helper()
	db, err := sql.Open("sqlite3", "file:"+path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	db.SetMaxOpenConns(1)
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
}

func open(t testing.TB, path string, policy sqlguard.Policy) *sqlguard.Guard {
	t.Helper()
	g, err := sqlguard.Open(context.Background(), path, policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

func query(t testing.TB, g interface {
	Query(context.Context, string) (sqlguard.Result, error)
}, sql string) sqlguard.Result {
	t.Helper()
	r, err := g.Query(context.Background(), sql)
	if err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return r
}

func hashOf(t testing.TB, path string) [32]byte {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return sha256.Sum256(b)
}
