package toolloop

import (
	"testing"

	"quern/internal/testenv"
	"quern/toolloop/internal/looptest"
)

func TestOumiFinalSQLOracle(t *testing.T) {
	rows := looptest.Rows[struct {
		ID, Text string
		Expected string `json:"expected_sql"`
	}](t, testenv.Oracles(t, "chat", "final_sql.jsonl"))
	for _, row := range rows {
		if got := OumiFinalSQL(row.Text); got != row.Expected {
			t.Errorf("%s %q\n got %q\nwant %q", row.ID, row.Text, got, row.Expected)
		}
	}
	t.Logf("%d rows, all as the reward", len(rows))
}

func TestTurnSQL(t *testing.T) {
	for text, want := range map[string]string{
		"```sql\nSELECT 1\n```":                                     "SELECT 1",
		"```SQL\nSELECT 1\n``` done. SELECT is nice":                "SELECT 1",
		"```sqlite\nSELECT 1\n```":                                  "SELECT 1",
		"```\nselect 1\n```":                                        "select 1",
		"``` sql\nSELECT 1\n```":                                    "SELECT 1",
		"```sql SELECT 1 ```":                                       "SELECT 1",
		"```sql\n-- count\n(SELECT 1)\n```":                         "-- count\n(SELECT 1)",
		"First\n```sql\nSELECT 1\n```\nthen\n```sql\nSELECT 2\n```": "SELECT 2",
		"```sql\nSELECT 1\n```\nlike\n```python\nprint(1)\n```":     "SELECT 1",
		"```sql\nSELECT 1":                                          "SELECT 1",
		"```python\nprint(1)\n```":                                  "",
		"```sql\n```":                                               "",
		"SELECT a\nFROM t":                                          "SELECT a\nFROM t",
		"The query is:\nSELECT a\nFROM t;\nIt counts.":              "SELECT a\nFROM t;",
		"SELECT a\nFROM t\n\nThis lists a.":                         "SELECT a\nFROM t",
		"SQLQuery: SELECT 1":                                        "SELECT 1",
		"Answer: SELECT 1":                                          "SELECT 1",
		"WITH x AS (\nSELECT 1\n)\nSELECT * FROM x":                 "WITH x AS (\nSELECT 1\n)\nSELECT * FROM x",
		"There are six singers.":                                    "",
		"With luck there are six.":                                  "",
		"with t(a, b) as (VALUES (1, 2)) SELECT a FROM t":           "with t(a, b) as (VALUES (1, 2)) SELECT a FROM t",
		"I would select all rows.":                                  "",
		"":                                                          "",
	} {
		if got := TurnSQL(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
