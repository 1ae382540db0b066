package sqltool_test

import (
	"context"
	"database/sql"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"quern/internal/pytext"
	"quern/internal/testenv"
	"quern/prompts"
	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/internal/looptest"
	"quern/toolloop/sqltool"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker()
	os.Exit(m.Run())
}

// database makes a database file of the statements and guards it.
func database(t testing.TB, policy sqlguard.Policy, statements ...string) *sqlguard.Guard {
	t.Helper()
	path := filepath.Join(t.TempDir(), "test.sqlite")
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range statements {
		if _, err := db.Exec(s); err != nil {
			t.Fatalf("%s: %v", s, err)
		}
	}
	db.Close()
	guard, err := sqlguard.Open(context.Background(), path, policy)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { guard.Close() })
	return guard
}

// databases makes each database once for the rows that share it.
type databases map[string]*sqlguard.Guard

func (d databases) get(t testing.TB, schema, seed string) *sqlguard.Guard {
	if d[schema+seed] == nil {
		d[schema+seed] = database(t, sqltool.GuardPolicy(sqlguard.EvalPolicy(), toolloop.Hermes()), schema, seed)
	}
	return d[schema+seed]
}

func tool(t testing.TB, db sqltool.Database, profile toolloop.Profile, opts sqltool.Options) *sqltool.Tool {
	t.Helper()
	pack, err := prompts.ForProfile(profile.Name)
	if err != nil {
		t.Fatal(err)
	}
	tool, err := sqltool.New(db, profile, pack.Tool, opts)
	if err != nil {
		t.Fatal(err)
	}
	return tool
}

func call(t testing.TB, tool *sqltool.Tool, query any, repeats int) toolloop.Observation {
	t.Helper()
	args := &toolloop.Object{Members: []toolloop.Member{{Key: "query", Value: query}}}
	obs, err := tool.Call(context.Background(), toolloop.Invocation{Arguments: args, Repeats: repeats})
	if err != nil {
		t.Fatalf("%v: %v", query, err)
	}
	return obs
}

// versionFunction matches what SQLite computes in another way since the version of the goldens: days that do not exist
// (3.46), rounding and the digits of floats (3.43), its own version.
var versionFunction = regexp.MustCompile(`(?i)\b(?:(?:date|datetime|julianday|strftime|unixepoch|round|printf|format|sum|avg|total|sqlite_version|sqlite_source_id)\s*\(|cast\s*\(.*\bas\s+text)`)

// knownDeviation is why a tool text may differ from the reference's; "" when it may not.
func knownDeviation(query, referenceVersion, ours string) string {
	verb := strings.ToUpper(strings.Fields(query + " x")[0])
	switch {
	case strings.HasPrefix(ours, `{"error"`) && slices.Contains([]string{"ATTACH", "DETACH", "PRAGMA", "SAVEPOINT", "RELEASE", "ANALYZE", "REINDEX"}, verb):
		return "the guard refuses " + verb + " before SQLite looks at it"
	case referenceVersion != sqlguard.Engine().Version && (versionFunction.MatchString(query) || verb == "EXPLAIN"):
		return "SQLite " + sqlguard.Engine().Version + " computes dates, rounding, digits and plans in another way than " + referenceVersion
	}
	return ""
}

func TestToolResultsOracle(t *testing.T) {
	rows := looptest.Rows[struct {
		ID, Query string
		Schema    string `json:"schema_sql"`
		Seed      string `json:"seed_sql"`
		Text      string `json:"tool_text"`
		Text256   string `json:"tool_text_256"`
		Version   string `json:"sqlite_version"`
	}](t, testenv.Oracles(t, "chat", "tool_results.jsonl"))
	dbs := databases{}
	same := 0
	for _, row := range rows {
		obs := call(t, tool(t, dbs.get(t, row.Schema, row.Seed), toolloop.Hermes(), sqltool.Options{}), row.Query, 0)
		full := obs.Full
		if full == "" {
			full = obs.Text
		}
		switch {
		case full == row.Text && obs.Text == row.Text256:
			same++
		case knownDeviation(row.Query, row.Version, full) != "":
			t.Logf("known deviation, %s %q: %s", row.ID, row.Query, knownDeviation(row.Query, row.Version, full))
		default:
			t.Errorf("%s %q\n got %s\nwant %s", row.ID, row.Query, full, row.Text)
		}
	}
	t.Logf("%d of %d rows byte for byte", same, len(rows))
}

func TestTruncateOracle(t *testing.T) {
	rows := looptest.Rows[struct {
		ID, Side, Text, Expected string
		Limit                    int
	}](t, testenv.Oracles(t, "chat", "truncate.jsonl"))
	for _, row := range rows {
		if got := sqltool.Truncate(row.Text, row.Limit, sqltool.Side(row.Side)); got != row.Expected {
			t.Errorf("%s\n got %q\nwant %q", row.ID, got, row.Expected)
		}
	}
	t.Logf("%d rows, all as verl", len(rows))
}

func TestOrderByOracle(t *testing.T) {
	rows := looptest.Rows[struct {
		ID, SQL string
		Want    bool `json:"top_level_order_by"`
	}](t, testenv.Oracles(t, "chat", "order_by.jsonl"))
	for _, row := range rows {
		if got := sqltool.TopLevelOrderBy(row.SQL); got != row.Want {
			t.Errorf("%s %q: %v", row.ID, row.SQL, got)
		}
	}
}

func TestRewardOracle(t *testing.T) {
	rows := looptest.Rows[struct {
		ID, Gold, Pred string
		Schema         string `json:"schema_sql"`
		Seed           string `json:"seed_sql"`
		Expect         struct {
			Reward float64
			Error  string
		}
	}](t, testenv.Oracles(t, "chat", "reward.jsonl"))
	dbs := databases{}
	for _, row := range rows {
		got, err := sqltool.Reward(context.Background(), dbs.get(t, row.Schema, row.Seed), row.Gold, row.Pred)
		if got != row.Expect.Reward || (err != nil) != (row.Expect.Error != "") {
			t.Errorf("%s %q for %q: %v, %v; want %+v", row.ID, row.Pred, row.Gold, got, err, row.Expect)
		}
	}
	t.Logf("%d rows, all as the reward", len(rows))
}

// Values of every storage class come back as Python wrote them, and the text is JSON that reads back.
func TestHermesValues(t *testing.T) {
	db := database(t, sqltool.GuardPolicy(sqlguard.EvalPolicy(), toolloop.Hermes()), "CREATE TABLE t (d DATE, b BOOLEAN)",
		"INSERT INTO t VALUES ('0000-00-00', 2), ('2020-1-5', 'yes'), (20200105, NULL), (CAST(x'ff41' AS TEXT), x'00FF')")
	got := call(t, tool(t, db, toolloop.Hermes(), sqltool.Options{MaxText: 10000}), "SELECT d, b, -9223372036854775808 FROM t", 0).Text
	want := `{"columns": ["d", "b", "-9223372036854775808"], "rows": [["0000-00-00", 2, -9223372036854775808], ["2020-1-5", "yes", -9223372036854775808], [20200105, null, -9223372036854775808], ["\\xffA", "00ff", -9223372036854775808]]}`
	if got != want {
		t.Errorf("\n got %s\nwant %s", got, want)
	}
	if _, err := pytext.DecodeJSON(got); err != nil {
		t.Error(err)
	}
}

func TestHermesArguments(t *testing.T) {
	db := database(t, sqlguard.AskPolicy(), "CREATE TABLE t (a)")
	hermes := tool(t, db, toolloop.Hermes(), sqltool.Options{MaxText: 10000})
	for _, c := range []struct {
		query any
		want  string
	}{
		{nil, "Tool error: 'query' is a required property\n"},
		{1.5, "Tool error: 1.5 is not of type 'string'\n"},
		{true, "Tool error: True is not of type 'string'\n"},
		{[]any{"SELECT 1"}, "Tool error: ['SELECT 1'] is not of type 'string'\n"},
		{"", `{"columns": [], "rows": []}`},
		{" -- nothing", `{"columns": [], "rows": []}`},
		{"SELECT a FROM t", `{"columns": ["a"], "rows": []}`},
		{"SELECT 1; SELECT 2", `{"error": "You can only execute one statement at a time."}`},
		{"DELETE FROM t", `{"error": "attempt to write a readonly database"}`},
		{"VACUUM", `{"error": "cannot VACUUM from within a transaction"}`},
	} {
		obs := call(t, hermes, c.query, 0)
		if !strings.HasPrefix(obs.Text, c.want) {
			t.Errorf("%v: %q, want %q", c.query, obs.Text, c.want)
		}
		if strings.Contains(c.want, "rror") != (obs.Failure != "") {
			t.Errorf("%v: failure %q", c.query, obs.Failure)
		}
	}
}

// The schema text of the hermes prompt is what its own query on sqlite_master gives.
func TestHermesSchemaAsTrained(t *testing.T) {
	statements := []string{
		"CREATE TABLE b (x)", "  CREATE TABLE a (\n  x INT -- a comment\n)", "CREATE VIEW v AS SELECT 1", "CREATE INDEX i ON b(x)",
		"CREATE TABLE Z (x INTEGER PRIMARY KEY AUTOINCREMENT)", "CREATE TABLE \"odd name\" (\"a b\")", "CREATE TABLE sqlitex1 (hidden)",
		"CREATE VIRTUAL TABLE f USING fts5(body)", "CREATE TABLE \"é\" (x)", "INSERT INTO Z VALUES (1)",
	}
	db := database(t, sqlguard.AskPolicy(), statements...)
	schema, err := sqltool.ReadSchema(context.Background(), db, toolloop.Hermes())
	if err != nil {
		t.Fatal(err)
	}
	result, err := db.Query(context.Background(), "SELECT sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql IS NOT NULL ORDER BY name")
	if err != nil || result.Failure != nil {
		t.Fatal(err, result.Failure)
	}
	var want []string
	for _, row := range result.Rows {
		want = append(want, strings.TrimSpace(row[0].Data))
	}
	if got := schema.Text(); got != strings.Join(want, "\n\n") {
		t.Errorf("\n got %s\nwant %s", got, strings.Join(want, "\n\n"))
	}
}
