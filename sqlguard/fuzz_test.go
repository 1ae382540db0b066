package sqlguard_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"quern/sqlguard"
)

// FuzzAdmission runs any text, read-only and on a private copy. After each: the database and its folder and the temporary folder are as
// they were, workers stayed within their memory, the answer came in time, nothing but the statement failed.
func FuzzAdmission(f *testing.F) {
	for _, sql := range []string{
		"SELECT * FROM t", "WITH a AS (SELECT 1) DELETE FROM t RETURNING *", "PRAGMA writable_schema=1", "SELECT * FROM pragma_table_info('t')", "ATTACH 'x' AS y",
		"VACUUM INTO 'x'", "VACUUM", "BEGIN; DROP TABLE t", "SELECT load_extension('x')", "CREATE TEMP TABLE z AS SELECT * FROM v", "CREATE VIRTUAL TABLE f USING fts4(x)",
		"SELECT 1\x00; SELECT 2", "EXPLAIN QUERY PLAN SELECT * FROM t ORDER BY b", "SELECT hex(randomblob(1000000000))", "SELECT printf('%.*c', 100000000, 'x')",
		endless, bomb, "SELECT count(*) FROM t, t, t, t, t, t, t, t, t, t", "SELECT json_group_array(value) FROM json_each('[1,2,3]')", "INSERT INTO t SELECT * FROM t",
		"SELECT a, sum(a) OVER (ORDER BY b) FROM t WINDOW w AS ()", "ALTER TABLE t RENAME COLUMN a TO c", "REINDEX", "ANALYZE", "DETACH main", "SAVEPOINT s", ";", "--",
		"CREATE TRIGGER tr AFTER INSERT ON t BEGIN SELECT load_extension('x'); END", "REPLACE INTO t VALUES (1, zeroblob(10000000))", "PRAGMA integrity_check", "SELECT ?",
	} {
		f.Add(sql, false)
		f.Add(sql, true)
	}
	a := newArena(f, shop...)
	var guards [2]*sqlguard.Guard
	for i, policy := range []sqlguard.Policy{sqlguard.AskPolicy(), sqlguard.ScratchPolicy()} {
		policy.Limits = sqlguard.AskPolicy().Limits
		policy.Limits.Timeout, policy.Limits.Memory, policy.Limits.MaxBytes, policy.Limits.MaxCell = 300*time.Millisecond, 32<<20, 4<<20, 4<<20
		guards[i] = open(f, a.db, policy)
	}
	f.Fuzz(func(t *testing.T, sql string, scratch bool) {
		g := guards[0]
		if scratch {
			g = guards[1]
		}
		start := time.Now()
		r, err := g.Query(context.Background(), sql)
		took := time.Since(start)
		limits := g.Policy().Limits
		if err != nil {
			t.Errorf("our side failed: %v", err)
		}
		if r.Failure != nil && r.Failure.Kind == sqlguard.WorkerDied {
			t.Errorf("it brought a worker down: %v", r.Failure)
		}
		if took > 2*limits.Timeout+500*time.Millisecond+slack { // twice, should a worker be killed by something else
			t.Errorf("took %v", took)
		}
		if len(r.Rows) > limits.MaxRows {
			t.Errorf("%d rows", len(r.Rows))
		}
		for _, pid := range sqlguard.PoolOf(g).IdleWorkers() {
			if peak := statusBytes(pid, "VmHWM"); peak > limits.Memory+workerOverhead {
				t.Errorf("a worker used %d MB", peak>>20)
			}
		}
		a.check(t)
	})
}

// workerOverhead is what a worker needs beside SQLite's memory: the program, Go's heap, a row on its way.
const workerOverhead = 96 << 20

// FuzzDatabaseFile opens any bytes as a database and reads what there is.
func FuzzDatabaseFile(f *testing.F) {
	for _, statements := range [][]string{shop, {"PRAGMA page_size=512", "CREATE TABLE t(a)", "INSERT INTO t VALUES (randomblob(2000))"}, {"PRAGMA encoding='UTF-16'", "CREATE TABLE t(a)"}} {
		content, err := os.ReadFile(create(f, statements...))
		if err != nil {
			f.Fatal(err)
		}
		f.Add(content)
	}
	dir := f.TempDir()
	pool, err := sqlguard.NewPool(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { pool.Close() })
	f.Fuzz(func(t *testing.T, content []byte) {
		path := filepath.Join(dir, "any.sqlite")
		if err := os.WriteFile(path, content, 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		policy := sqlguard.AskPolicy()
		policy.Limits.Timeout = 300 * time.Millisecond
		if g, err := pool.Open(ctx, path, policy); err == nil {
			for _, sql := range []string{"SELECT * FROM t", "SELECT sql FROM sqlite_master"} {
				if _, err := g.Query(ctx, sql); err != nil {
					t.Error(err)
				}
			}
			g.Schema(ctx, sqlguard.SchemaOptions{RowCounts: 10, Samples: 2}) // an error is what a broken catalogue deserves
			g.Close()
		} else if problem := (*sqlguard.OpenError)(nil); !errors.As(err, &problem) {
			t.Error(err)
		}
		if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, content) {
			t.Error("the file changed")
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("files appeared: %v", entries)
		}
	})
}
