package sqlguard_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/sqlguard"
)

// slack is what a busy machine may add to a bound of time.
const slack = 2 * time.Second

// arena is a folder with one database and an empty temporary folder, of which nothing may change.
type arena struct {
	dir, tmp, db string
	before       string
}

// newArena makes the database from statements. The temporary folder is the one of workers started later.
func newArena(t testing.TB, statements ...string) *arena {
	t.Helper()
	a := &arena{dir: t.TempDir(), tmp: t.TempDir()}
	a.db = filepath.Join(a.dir, "shop.sqlite")
	write(t, a.db, statements...)
	if setter, ok := t.(interface{ Setenv(string, string) }); ok {
		setter.Setenv("TMPDIR", a.tmp)
	}
	a.before = a.state(t)
	return a
}

// state lists every file with size, time and hash.
func (a *arena) state(t testing.TB) string {
	t.Helper()
	var b strings.Builder
	for _, dir := range []string{a.dir, a.tmp} {
		err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if d.IsDir() {
				if dir == a.tmp && strings.HasPrefix(d.Name(), "Test") {
					return fs.SkipDir // another test's
				}
				return nil
			}
			info, err := d.Info()
			if err != nil {
				return err
			}
			fmt.Fprintln(&b, path, info.Size(), info.ModTime().UnixNano(), fmt.Sprintf("%x", hashOf(t, path)))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	return b.String()
}

// check fails the test when anything in the arena has changed.
func (a *arena) check(t testing.TB) {
	t.Helper()
	if after := a.state(t); after != a.before {
		t.Errorf("the folder changed:\nbefore:\n%s\nafter:\n%s", a.before, after)
	}
}

// expect fails the test unless sql is refused or fails with the kind.
func expect(t testing.TB, g *sqlguard.Guard, sql string, kind sqlguard.FailureKind) *sqlguard.Failure {
	t.Helper()
	r := query(t, g, sql)
	shown := sql
	if len(shown) > 100 {
		shown = shown[:100] + "…"
	}
	if r.Failure == nil {
		t.Errorf("%s: ran and gave %d rows, want %s", shown, len(r.Rows), kind)
		return &sqlguard.Failure{}
	}
	if r.Failure.Kind != kind {
		t.Errorf("%s: %s: %v, want %s", shown, r.Failure.Kind, r.Failure, kind)
	}
	if r.Rows != nil || r.Columns != nil {
		t.Errorf("%s: a failure with rows", shown)
	}
	return r.Failure
}

// rows fails the test when sql does, and returns its rows.
func rows(t testing.TB, g *sqlguard.Guard, sql string) [][]sqlguard.Value {
	t.Helper()
	r := query(t, g, sql)
	if r.Failure != nil {
		t.Fatalf("%s: %v", sql, r.Failure)
	}
	return r.Rows
}

func text(s string) sqlguard.Value   { return sqlguard.Value{Kind: sqlguard.Text, Data: s} }
func blob(s string) sqlguard.Value   { return sqlguard.Value{Kind: sqlguard.Blob, Data: s} }
func integer(n int64) sqlguard.Value { return sqlguard.Value{Kind: sqlguard.Integer, Int: n} }
func real(f float64) sqlguard.Value  { return sqlguard.Value{Kind: sqlguard.Real, Real: f} }

// asOrdinaryUser skips what root's powers make pointless.
func asOrdinaryUser(t *testing.T) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root may write everywhere: this needs an ordinary user")
	}
}
