package sqltool_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"quern/prompts"
	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

func TestCompactText(t *testing.T) {
	db := database(t, sqlguard.AskPolicy(), "CREATE TABLE t (id INTEGER, name TEXT, price REAL, raw BLOB)",
		"INSERT INTO t VALUES (1, 'Joe', 9.5, x'00ff'), (2, ' AHD', NULL, NULL), (3, 'two'||char(10)||'lines', 1e20, zeroblob(40)), (4, '12', -0.5, NULL), (5, '', 1, NULL), (6, 'NULL', 2, NULL), (7, 'it''s (so)', 2, NULL)",
		"CREATE TABLE many (n INTEGER)", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM c WHERE n < 12000) INSERT INTO many SELECT n FROM c",
		"CREATE TABLE wide (v TEXT)", "INSERT INTO wide VALUES (printf('%.*c', 500, 'é')), ('short')")
	compact := tool(t, db, toolloop.QwenXML(), sqltool.Options{})
	for query, want := range map[string]string{
		"SELECT * FROM t": "id | name | price | raw\n1 | Joe | 9.5 | x'00ff'\n2 | ' AHD' | NULL | NULL\n3 | two\\nlines | 1e+20 | x'00000000000000000000000000000000…' (40 bytes)\n" +
			"4 | '12' | -0.5 | NULL\n5 | '' | 1.0 | NULL\n6 | 'NULL' | 2.0 | NULL\n7 | it's (so) | 2.0 | NULL\n(7 rows)",
		"SELECT name AS n, count(*) FROM t WHERE id = 1": "n | count(*)\nJoe | 1\n(1 row)",
		"SELECT id, name FROM t WHERE id > 99":           "id (INTEGER) | name (TEXT)\n(0 rows)",
		"SELECT * FROM nope":                             "Error: no such table: nope\nHint: the tables nearest in name are wide, many, t.",
		"DELETE FROM t":                                  "Error: not authorized: the statement would delete from t",
		"SELECT 1; SELECT 2":                             "Error: more than one statement",
		"SELECT v FROM wide WHERE v = 'short'":           "v\nshort\n(1 row)",
	} {
		if got := call(t, compact, query, 0).Text; !strings.HasPrefix(got, want) {
			t.Errorf("%s\n got %s\nwant %s", query, got, want)
		}
	}
	obs := call(t, compact, "SELECT n FROM many", 0)
	if !strings.HasSuffix(obs.Text, "\n50\n(truncated: the first 50 rows of more than 10000)") || obs.Rows != 10000 || obs.Full == "" {
		t.Errorf("%d rows: …%s", obs.Rows, obs.Text[max(0, len(obs.Text)-80):])
	}
	if obs = call(t, compact, "SELECT n FROM many LIMIT 100", 0); !strings.Contains(obs.Text, "(truncated: the first 50 of 100 rows)\nHint: the query's own LIMIT 100 may have left rows out.") {
		t.Error(obs.Text)
	}
	if obs = call(t, compact, "SELECT v FROM wide", 0); !strings.Contains(obs.Text, "é… (500 characters)\nshort\n(2 rows)") {
		t.Error(obs.Text)
	}
	for _, bad := range []any{nil, 5, "", "  "} {
		if obs := call(t, compact, bad, 0); obs.Failure != toolloop.FailArguments {
			t.Errorf("%v: %+v", bad, obs)
		}
	}
	small := tool(t, db, toolloop.QwenXML(), sqltool.Options{MaxTable: 30})
	if obs := call(t, small, "SELECT n FROM many LIMIT 90", 0); len(obs.Text) > 140 || !strings.Contains(obs.Text, "of 90 rows") {
		t.Error(obs.Text)
	}
}

// Advice comes where it helps, in the profile that is not bound to its training; hermes stays as trained.
func TestHints(t *testing.T) {
	db := database(t, sqlguard.AskPolicy(), "CREATE TABLE hospital (id INTEGER, name TEXT, city TEXT)", "CREATE TABLE patient (pid INTEGER, hospital_id INTEGER, first_name TEXT)",
		"INSERT INTO hospital VALUES (1, ' AHD', 'Oslo'), (2, 'UKE', 'HAMBURG'), (3, 'St. Mary', 'Paris')")
	compact := tool(t, db, toolloop.QwenXML(), sqltool.Options{})
	for _, c := range []struct {
		query   string
		repeats int
		hint    string
	}{
		{"SELECT nam FROM hospital", 0, "the columns nearest in name are hospital.name"},
		{"SELECT h.firstname FROM patient h", 0, "patient.first_name"},
		{"SELECT first_name FROM hospital", 0, "that column is in another table: patient.first_name."},
		{"SELECT * FROM hospitals", 0, "the tables nearest in name are hospital"},
		{`SELECT * FROM hospital WHERE city = "Paris"`, 0, "A text value goes in single quotes: 'Paris'."},
		{"SELECT * FROM hospital WHERE name = 'AHD'", 0, "hospital.name does not hold 'AHD' but ' AHD'."},
		{"SELECT * FROM hospital AS h WHERE h.city IN ('Bonn', 'Hamburg')", 0, "hospital.city does not hold 'Hamburg' but 'HAMBURG'."},
		{"SELECT * FROM hospital WHERE [city] == 'hamburg' AND \"name\" IS 'uke'", 0, "hospital.city does not hold 'hamburg' but 'HAMBURG'. hospital.name does not hold 'uke' but 'UKE'."},
		{"SELECT * FROM hospital WHERE name = 'UKE' AND city = 'Paris'", 0, ""},
		{"SELECT * FROM hospital WHERE city = 'Bonn'", 0, ""},
		{"SELECT * FROM hospital -- WHERE city = 'hamburg'\nWHERE id = 9", 0, ""},
		{"SELECT name FROM hospital", 1, ""},
		{"SELECT name FROM hospital", 2, "this very query has now been run 3 times"},
		{"SELECT name FROM hospital LIMIT 3", 0, "the query's own LIMIT 3 may have left rows out."},
		{"SELECT name FROM hospital LIMIT 4", 0, ""},
		{"SELECT name FROM hospital ORDER BY 1 LIMIT 1", 0, ""},
		{"SELEC 1", 0, ""},
		{"SELECT (", 0, ""},
	} {
		obs := call(t, compact, c.query, c.repeats)
		if c.hint == "" && obs.Hint != "" || !strings.Contains(obs.Hint, c.hint) || obs.Hint != "" && !strings.HasSuffix(obs.Text, "\nHint: "+obs.Hint) {
			t.Errorf("%s: hint %q, want %q; text %q", c.query, obs.Hint, c.hint, obs.Text)
		}
	}
	hermes := tool(t, db, toolloop.Hermes(), sqltool.Options{})
	if obs := call(t, hermes, "SELECT * FROM hospital WHERE name = 'AHD'", 5); obs.Hint != "" || obs.Text != `{"columns": ["id", "name", "city"], "rows": []}` {
		t.Errorf("hermes: %+v", obs)
	}
}

// shop is a database with comments, keys and many columns.
func shop(t testing.TB, tables int) *sqlguard.Guard {
	statements := []string{
		"CREATE TABLE customer (id INTEGER PRIMARY KEY, full_name TEXT, -- first and last name\n city TEXT)",
		"CREATE TABLE purchase (id INTEGER PRIMARY KEY, customer_id INTEGER REFERENCES customer(id), amount REAL /* in EUR */)",
		"INSERT INTO customer VALUES (1, 'Ann Lee', 'Oslo'), (2, 'Bo Dahl', 'Bergen')",
		"CREATE VIEW oslo AS SELECT * FROM customer WHERE city = 'Oslo'",
	}
	for i := range tables {
		columns := ""
		for j := range 10 {
			columns += fmt.Sprintf(", measure_%d_%d REAL -- number %d", i, j, j)
			columns += "\n"
		}
		statements = append(statements, fmt.Sprintf("CREATE TABLE sensor_%d (id INTEGER PRIMARY KEY%s)", i, columns))
	}
	return database(t, sqlguard.AskPolicy(), statements...)
}

func TestSchemaText(t *testing.T) {
	db := shop(t, 0)
	schema, err := sqltool.ReadSchema(context.Background(), db, toolloop.QwenXML())
	if err != nil {
		t.Fatal(err)
	}
	got := schema.Text()
	for _, want := range []string{"-- first and last name", "-- city: 'Oslo', 'Bergen'", "-- id: 1, 2", "CREATE VIEW oslo", "-- Foreign keys:\n-- purchase.customer_id = customer.id"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}

// A schema that does not fit loses sample values, then comments, then columns of the tables that the question does not
// speak of, then those tables; never what the question is about before the rest, and the budget is never passed.
func TestSchemaIsFitted(t *testing.T) {
	for _, profile := range []toolloop.Profile{toolloop.QwenXML(), toolloop.Hermes()} {
		db := shop(t, 12)
		schema, err := sqltool.ReadSchema(context.Background(), db, profile)
		if err != nil {
			t.Fatal(err)
		}
		pack, err := prompts.ForProfile(profile.Name)
		if err != nil {
			t.Fatal(err)
		}
		prompt := sqltool.Prompt{Texts: pack, Schema: schema}
		count := func(m []toolloop.Message) (int, error) { return len(m[0].Content) + len(m[1].Content), nil }
		const question = "Which customers in Oslo have a purchase above 100?"
		whole, notes, err := prompt.Messages(question, 0, nil)
		if err != nil || notes != nil {
			t.Fatal(err, notes)
		}
		size, _ := count(whole)
		stages := map[string]bool{}
		for budget := size; ; budget -= 37 {
			messages, notes, err := prompt.Messages(question, budget, count)
			if err != nil {
				if !strings.Contains(err.Error(), "does not fit") || budget > 2500 {
					t.Errorf("budget %d: %v", budget, err)
				}
				break
			}
			n, _ := count(messages)
			if n > budget {
				t.Fatalf("budget %d: %d", budget, n)
			}
			if (n < size) != (len(notes) > 0) {
				t.Fatalf("budget %d: notes %v", budget, notes)
			}
			text := messages[0].Content
			note := strings.Join(notes, "")
			if strings.Contains(text, "sensor_3") && !strings.Contains(text, "full_name") {
				t.Fatalf("budget %d: the question's own columns went first: %s", budget, note)
			}
			if strings.Contains(text, "-- city: 'Oslo'") && note != "" {
				t.Fatalf("budget %d: sample values should have gone first: %s", budget, note)
			}
			for _, stage := range []string{"no sample values", "no comments", "only key and related columns", "without the tables"} {
				if strings.Contains(note, stage) {
					stages[stage] = true
				}
			}
		}
		want := 4
		if profile.Name == toolloop.ProfileHermes {
			want = 3 // it has no sample values
		}
		if len(stages) != want {
			t.Errorf("%s: stages seen: %v", profile.Name, stages)
		}
	}
}

func FuzzSQLText(f *testing.F) {
	for _, s := range []string{"SELECT 'a''b', \"c\"\"d\", [e], `f` -- x\n/* y */ FROM t WHERE a = 'b' LIMIT 3;", "'", "/*", "SELECT x'", "(((((", "a.b IN ('c', 'd'"} {
		f.Add(s)
	}
	guard := database(f, sqlguard.AskPolicy(), "CREATE TABLE t (a TEXT, b TEXT)", "INSERT INTO t VALUES ('x', 'Y ')")
	pack, err := prompts.ForProfile(toolloop.ProfileQwenXML)
	if err != nil {
		f.Fatal(err)
	}
	compact, err := sqltool.New(guard, toolloop.QwenXML(), pack.Tool, sqltool.Options{})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, sql string) {
		sqltool.TopLevelOrderBy(sql)
		if short := sqltool.Truncate(sql, 7, sqltool.Middle); len(sql) > 60 && len(short) >= len(sql) {
			t.Errorf("cut to %q", short)
		}
		call(t, compact, sql, 2)
		call(t, compact, "SELECT * FROM t WHERE a = "+sql, 0)
	})
}
