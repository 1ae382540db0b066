package sqlguard_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"quern/sqlguard"
)

// session opens a session on the database, in workers and in process.
func sessions(t *testing.T, path string, policy sqlguard.Policy) map[string]*sqlguard.Session {
	t.Helper()
	local, err := sqlguard.OpenInProcess(context.Background(), path, policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { local.Close() })
	out := map[string]*sqlguard.Session{}
	for name, g := range map[string]*sqlguard.Guard{"in process": local, "worker": open(t, path, policy)} {
		s, err := g.Session(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { s.Close() })
		out[name] = s
	}
	return out
}

func count(t *testing.T, s *sqlguard.Session) int64 {
	t.Helper()
	r := query(t, s, "SELECT count(*) FROM t")
	if r.Failure != nil {
		t.Fatal(r.Failure)
	}
	return r.Rows[0][0].Int
}

func ran(t *testing.T, s *sqlguard.Session, sql string) {
	t.Helper()
	if r := query(t, s, sql); r.Failure != nil {
		t.Errorf("%s: %v", sql, r.Failure)
	}
}

// Spider's script rolls DML back but not DDL; BIRD's lets a gold query see what the prediction did.
func TestScratchSession(t *testing.T) {
	ctx := context.Background()
	a := newArena(t, shop...)
	for name, s := range sessions(t, a.db, sqlguard.ScratchPolicy()) {
		t.Run(name, func(t *testing.T) {
			ran(t, s, "DELETE FROM t")
			if n := count(t, s); n != 0 {
				t.Errorf("%d rows after DELETE", n)
			}
			if err := s.Rollback(ctx); err != nil {
				t.Error(err)
			}
			if n := count(t, s); n != 3 {
				t.Errorf("%d rows after rollback", n)
			}
			ran(t, s, "WITH x AS (SELECT 1) DELETE FROM t WHERE a = 1") // to Python no DML: not in a transaction
			if err := s.Rollback(ctx); err != nil {
				t.Error(err)
			}
			if n := count(t, s); n != 2 {
				t.Errorf("%d rows", n)
			}
			ran(t, s, "CREATE TEMP TABLE u AS SELECT * FROM t")
			ran(t, s, "INSERT INTO u SELECT * FROM u")
			ran(t, s, "DROP TABLE secret")
			ran(t, s, "ALTER TABLE t ADD COLUMN c")
			if err := s.Rollback(ctx); err != nil {
				t.Error(err)
			}
			ran(t, s, "PRAGMA user_version=7")
			ran(t, s, "VACUUM")
			if r := query(t, s, "PRAGMA user_version"); r.Rows[0][0] != integer(7) {
				t.Error(r.Rows)
			}
			if err := s.Reset(ctx); err != nil {
				t.Fatal(err)
			}
			if n := count(t, s); n != 3 {
				t.Errorf("%d rows after reset", n)
			}
			if err := s.Begin(ctx); err != nil {
				t.Error(err)
			}
			ran(t, s, "DROP TABLE t")
			if err := s.Rollback(ctx); err != nil {
				t.Error(err)
			}
			if n := count(t, s); n != 3 {
				t.Errorf("%d rows after rolled back DROP", n)
			}
			r := query(t, s, "INSERT INTO t VALUES (4, 'four') RETURNING a")
			if r.Failure != nil || len(r.Rows) != 1 || r.Rows[0][0] != integer(4) {
				t.Errorf("RETURNING: %+v", r)
			}
			if r := query(t, s, "UPDATE t SET a = 0"); r.Failure != nil || len(r.Columns) != 0 {
				t.Errorf("%+v", r)
			}
		})
	}
	a.check(t)
}

func TestScratchReachesNothingOutside(t *testing.T) {
	a := newArena(t, shop...)
	policy := sqlguard.ScratchPolicy()
	policy.Limits.Memory = 64 << 20
	for name, s := range sessions(t, a.db, policy) {
		for _, sql := range []string{
			"ATTACH '" + a.dir + "/new.db' AS n", "ATTACH 'x' || 'y' AS n", "VACUUM INTO '" + a.dir + "/new.db'", "SELECT load_extension('x')", "SELECT writefile('x', 'y')",
			"PRAGMA temp_store_directory='/'", "PRAGMA temp_store=FILE", "PRAGMA writable_schema=1", "PRAGMA journal_mode=WAL", "PRAGMA mmap_size=100000", "PRAGMA hard_heap_limit=1",
			"PRAGMA trusted_schema=1", "PRAGMA cache_spill=1", "PRAGMA temp.journal_mode=DELETE", "SELECT fts3_tokenizer('a', x'00')", "ATTACH 'file:x?mode=rwc' AS y",
		} {
			if r := query(t, s, sql); r.Failure == nil {
				t.Errorf("%s: %s ran", name, sql)
			}
		}
		for _, sql := range []string{"ATTACH ':memory:' AS m", "CREATE TABLE m.x AS SELECT * FROM t", "DETACH m"} {
			ran(t, s, sql)
		}
		if r := query(t, s, "CREATE TABLE big AS WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 20) SELECT zeroblob(8000000) FROM c"); name == "worker" &&
			(r.Failure == nil || r.Failure.Kind != sqlguard.OutOfMemory && !strings.Contains(r.Failure.Message, "full")) {
			t.Errorf("%s: a copy without bound: %+v", name, r.Failure)
		}
	}
	a.check(t)
}

func TestScratchQueryStartsAnew(t *testing.T) {
	a := newArena(t, shop...)
	g := open(t, a.db, sqlguard.ScratchPolicy())
	for range 5 {
		r := query(t, g, "DELETE FROM t RETURNING a")
		if r.Failure != nil || len(r.Rows) != 3 {
			t.Errorf("%+v", r)
		}
	}
	if len(rows(t, g, "SELECT * FROM t")) != 3 {
		t.Error("a write is left over")
	}
	a.check(t)
}

func TestSessionAfterItsWorkerWasKilled(t *testing.T) {
	ctx := context.Background()
	g := open(t, create(t, shop...), sqlguard.ScratchPolicy())
	s, err := g.Session(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	ran(t, s, "DELETE FROM t")
	limits := g.Policy().Limits
	limits.Timeout = 300 * time.Millisecond
	if r, err := s.QueryLimits(ctx, endless, limits); err != nil || r.Failure == nil || r.Failure.Kind != sqlguard.TimedOut {
		t.Fatalf("%+v %v", r, err)
	}
	if n := count(t, s); n != 0 {
		t.Error("a statement that SQLite itself stopped lost the session")
	}
	if r, err := s.QueryLimits(ctx, bomb, limits); err != nil || r.Failure == nil || r.Failure.Kind != sqlguard.TimedOut {
		t.Fatalf("%+v %v", r, err)
	}
	if _, err := s.Query(ctx, "SELECT 1"); !errors.Is(err, sqlguard.ErrSessionLost) {
		t.Error(err)
	}
	if err := s.Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if n := count(t, s); n != 3 {
		t.Errorf("%d rows", n)
	}
}

func TestMoreSessionsThanWorkers(t *testing.T) {
	g := open(t, create(t, shop...), sqlguard.ScratchPolicy())
	for range 6 {
		s, err := g.Session(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ran(t, s, "DELETE FROM t")
	}
	if len(rows(t, g, "SELECT * FROM t")) != 3 {
		t.Error("sessions see each other")
	}
}
