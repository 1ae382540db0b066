package sqlguard_test

import (
	"context"
	"testing"
	"time"

	"quern/sqlguard"
)

func TestSmoke(t *testing.T) {
	path := create(t, "CREATE TABLE t(a INTEGER, b TEXT, c DATE)", "INSERT INTO t VALUES (1,'x','0000-00-00'),(2.5,x'00ff',20200105),(NULL,'é','bad')")
	g := open(t, path, sqlguard.AskPolicy())
	for _, q := range []string{"SELECT * FROM t", "SELECT nmae FROM t", "DELETE FROM t", "SELECT 1; SELECT 2", "ATTACH 'x' AS y", "", "SELECT load_extension('x')", "PRAGMA table_info(t)", "PRAGMA journal_mode=delete", "SELECT * FROM pragma_journal_mode('delete')", "SELECT hex(randomblob(200000000))", "VACUUM INTO 'x'"} {
		t.Logf("%s: %+v", q, query(t, g, q))
	}
	l := g.Policy().Limits
	l.Timeout = 300 * time.Millisecond
	start := time.Now()
	r, err := g.QueryLimits(context.Background(), "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n FROM c WHERE n < 0", l)
	t.Log(r, r.Failure, err, time.Since(start))
	start = time.Now()
	r, err = g.QueryLimits(context.Background(), "SELECT replace(hex(zeroblob(2000000)), '0', 'ab') LIKE '%a%a%a%a%a%a%a%a%a%a%a%ac%'", l)
	t.Log(r, r.Failure, err, time.Since(start))
	s, err := g.Schema(context.Background(), sqlguard.SchemaOptions{RowCounts: 100, Samples: 3})
	t.Logf("%+v %v", s, err)
	d, err := g.Explain(context.Background(), "SELECT count(*) FROM t")
	t.Logf("%+v %v", d, err)
}
