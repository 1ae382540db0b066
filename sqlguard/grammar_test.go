package sqlguard_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"quern/sqlguard"
)

// grammar writes random statements: reading, writing, reaching outside, nested in each other, some broken. A name in angle brackets is
// replaced by one of its texts.
var grammar = map[string][]string{
	"statement": {"<select>", "<select>", "WITH x AS (<select>) <select>", "WITH x AS (<select>) <write>", "<write>", "<define>", "<reach>", "<pragma>", "EXPLAIN <statement>",
		"<statement>; <statement>", "/* <expr> */ <statement>", "<statement> -- <expr>", "EXPLAIN QUERY PLAN <select>"},
	"select": {"SELECT <expr> FROM <from>", "SELECT DISTINCT <expr>, <expr> FROM <from> WHERE <expr> ORDER BY <expr>", "SELECT <expr>", "<select> UNION <select>", "VALUES (<expr>)",
		"SELECT <expr> FROM <from> GROUP BY <expr> HAVING <expr>", "SELECT <expr> FROM <from> LIMIT <expr>",
		"WITH RECURSIVE r(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM r LIMIT <number>) SELECT <expr> FROM r"},
	"from": {"t", "v", "secret", "t AS b", "(<select>)", "sqlite_master", "t, t AS b, t AS c", "t LEFT JOIN v ON <expr>", "json_each('[1,[2,3]]')", "pragma_table_info('t')", "pragma_<pragmaname>(<expr>)",
		"dbstat", "nowhere", "main.t", "temp.t", "x"},
	"expr": {"a", "b", "*", "1", "<number>", "'text'", "x'00ff'", "NULL", "<expr> + <expr>", "<expr> || <expr>", "<function>(<expr>)", "(<select>)", "<expr> LIKE <expr>", "<expr> IN (<select>)",
		"CASE WHEN <expr> THEN <expr> END", "count(*) OVER ()", "CAST(<expr> AS TEXT)", "\"a\"", "[b]", "?", ":p", "EXISTS (<select>)", "t.a"},
	"function": {"abs", "hex", "length", "randomblob", "zeroblob", "printf", "group_concat", "load_extension", "fts3_tokenizer", "readfile", "sum", "json", "quote", "char", "replace", "optimize", "likely", "sqlite_compileoption_get", "date"},
	"number":   {"0", "1", "-1", "1000", "100000", "10000000", "1e308", "9223372036854775807"},
	"write": {"DELETE FROM t", "UPDATE t SET a = <expr> WHERE <expr>", "INSERT INTO t SELECT a, b FROM t", "INSERT INTO t VALUES (<expr>, <expr>) RETURNING <expr>", "REPLACE INTO t VALUES (1, zeroblob(<number>))",
		"DELETE FROM sqlite_master", "UPDATE sqlite_master SET sql = <expr>"},
	"define": {"DROP TABLE t", "CREATE TABLE z(a)", "CREATE TEMP TABLE z AS <select>", "CREATE VIEW z AS <select>", "CREATE TRIGGER z AFTER INSERT ON t BEGIN <write>; END", "ALTER TABLE t ADD COLUMN z",
		"CREATE VIRTUAL TABLE z USING fts4(a)", "CREATE INDEX z ON t(<expr>)", "REINDEX", "ANALYZE", "ALTER TABLE t RENAME TO z", "DROP VIEW v"},
	"reach":  {"ATTACH '<file>' AS z", "ATTACH <expr> AS z", "DETACH main", "VACUUM INTO '<file>'", "VACUUM", "BEGIN", "COMMIT", "ROLLBACK", "SAVEPOINT s", "BEGIN EXCLUSIVE"},
	"file":   {"escaped.db", "../../escaped.db", "file:escaped.db?mode=rwc", ":memory:", "", "../escaped.db"},
	"pragma": {"PRAGMA <pragmaname>", "PRAGMA <pragmaname>=<number>", "PRAGMA <pragmaname>('<file>')", "PRAGMA main.<pragmaname>(t)"},
	"pragmaname": {"table_info", "journal_mode", "writable_schema", "query_only", "temp_store_directory", "mmap_size", "integrity_check", "user_version", "wal_checkpoint", "page_size", "hard_heap_limit",
		"trusted_schema", "temp_store", "cache_size", "foreign_key_list", "locking_mode", "optimize"},
}

func generate(r *rand.Rand, symbol string, depth int) string {
	texts := grammar[symbol]
	text := texts[r.IntN(len(texts))]
	if depth > 6 { // the first texts are the simplest
		text = texts[0]
	}
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, "<")
		b.WriteString(before)
		name, after, closed := strings.Cut(rest, ">")
		if !found || !closed || depth > 40 {
			return b.String()
		}
		b.WriteString(generate(r, name, depth+1))
		text = after
	}
}

// TestRandomStatements: whatever is asked, nothing changes outside.
func TestRandomStatements(t *testing.T) {
	const seed, statements = 20, 1500
	a := newArena(t, shop...)
	for _, policy := range []sqlguard.Policy{sqlguard.AskPolicy(), sqlguard.ScratchPolicy()} {
		policy.Limits = sqlguard.AskPolicy().Limits
		policy.Limits.Timeout, policy.Limits.Memory, policy.Limits.MaxBytes, policy.Limits.MaxCell = 200*time.Millisecond, 32<<20, 4<<20, 4<<20
		g := open(t, a.db, policy)
		r := rand.New(rand.NewPCG(seed, 0))
		verdicts := map[sqlguard.FailureKind]int{}
		for i := range statements {
			sql := generate(r, "statement", 0)
			result, err := g.Query(context.Background(), sql)
			if err != nil {
				t.Fatalf("statement %d: %s: %v", i, sql, err)
			}
			if result.Failure == nil {
				verdicts["ran"]++
			} else if verdicts[result.Failure.Kind]++; result.Failure.Kind == sqlguard.WorkerDied {
				t.Errorf("statement %d: %s: %v", i, sql, result.Failure)
			}
			if i%100 == 0 {
				a.check(t)
			}
			if t.Failed() {
				t.Fatalf("statement %d: %s", i, sql)
			}
		}
		t.Logf("scratch %v: %v", policy.Scratch, fmt.Sprint(verdicts))
	}
	a.check(t)
}
