package sqlguard_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/internal/testenv"
	"quern/sqlguard"
)

func schemaOf(t testing.TB, g *sqlguard.Guard, o sqlguard.SchemaOptions) map[string]sqlguard.Table {
	t.Helper()
	s, err := g.Schema(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	tables := map[string]sqlguard.Table{}
	for _, table := range s.Tables {
		tables[table.Name] = table
	}
	if !slices.IsSortedFunc(s.Tables, func(a, b sqlguard.Table) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("tables are not in order")
	}
	return tables
}

func TestSchema(t *testing.T) {
	statements := []string{
		"CREATE TABLE parent(x INTEGER, y TEXT NOT NULL DEFAULT 'd''oh', z REAL GENERATED ALWAYS AS (x * 2), PRIMARY KEY (y, x))",
		"CREATE TABLE child(id INTEGER PRIMARY KEY, px, py, FOREIGN KEY (px, py) REFERENCES parent(x, y), other REFERENCES child)",
		"CREATE VIEW w AS SELECT id, px FROM child",
		"CREATE VIEW broken AS SELECT * FROM w",
		"CREATE VIRTUAL TABLE docs USING fts4(body)",
		"CREATE TABLE \"Zeta\"(b BLOB, t TEXT)",
	}
	statements[1] = "CREATE TABLE child(id INTEGER PRIMARY KEY, px, py, other REFERENCES child, FOREIGN KEY (px, py) REFERENCES parent(x, y))"
	for i := range 20 {
		statements = append(statements, fmt.Sprintf("INSERT INTO parent(x, y) VALUES (%d, 'y%d')", i%5, i))
	}
	statements = append(statements, "INSERT INTO \"Zeta\" VALUES (x'00', 'é' || printf('%.*c', 500, 'x')), (NULL, NULL)",
		"PRAGMA writable_schema=ON", "UPDATE sqlite_master SET sql = 'CREATE VIEW broken AS SELECT * FROM gone' WHERE name = 'broken'")
	g := open(t, create(t, statements...), sqlguard.AskPolicy())
	tables := schemaOf(t, g, sqlguard.SchemaOptions{RowCounts: 10, Samples: 3})

	if got := len(tables); got != 6 {
		t.Errorf("%d tables: %v", got, tables)
	}
	p := tables["parent"]
	if p.SQL != statements[0] || !slices.Equal(p.PrimaryKey, []string{"y", "x"}) || p.Rows != 10 || !p.MoreRows || p.View || p.Broken != "" {
		t.Errorf("%+v", p)
	}
	want := []sqlguard.TableColumn{
		{Name: "x", Type: "INTEGER", Samples: []sqlguard.Value{integer(0), integer(1), integer(2)}},
		{Name: "y", Type: "TEXT", NotNull: true, Default: "'d''oh'", Samples: []sqlguard.Value{text("y0"), text("y1"), text("y2")}},
		{Name: "z", Type: "REAL", Generated: true, Samples: []sqlguard.Value{real(0), real(2), real(4)}},
	}
	if fmt.Sprintf("%+v", p.Columns) != fmt.Sprintf("%+v", want) {
		t.Errorf("columns:\n%+v\nwant:\n%+v", p.Columns, want)
	}
	c := tables["child"]
	wantKeys := []sqlguard.ForeignKey{
		{Columns: []string{"other"}, Table: "child", RefColumns: []string{"id"}},
		{Columns: []string{"px", "py"}, Table: "parent", RefColumns: []string{"x", "y"}},
	}
	if fmt.Sprint(c.ForeignKeys) != fmt.Sprint(wantKeys) || c.Rows != 0 || c.MoreRows {
		t.Errorf("%+v", c)
	}
	if w := tables["w"]; !w.View || len(w.Columns) != 2 || w.Rows != 0 {
		t.Errorf("%+v", w)
	}
	if b := tables["broken"]; b.Broken == "" || !b.View {
		t.Errorf("%+v", b)
	}
	if d := tables["docs"]; !d.Virtual || len(d.Columns) != 1 {
		t.Errorf("%+v", d)
	}
	z := tables["Zeta"]
	if len(z.Columns[0].Samples) != 0 || len(z.Columns[1].Samples) != 1 || len(z.Columns[1].Samples[0].Data) > 100 {
		t.Errorf("samples: %+v", z.Columns)
	}
	if bare := schemaOf(t, g, sqlguard.SchemaOptions{})["parent"]; bare.Rows != -1 || bare.Columns[0].Samples != nil {
		t.Errorf("%+v", bare)
	}
}

// Names of any kind come through, and can be used with QuoteName.
func TestSchemaNames(t *testing.T) {
	names := []string{"plain", "with space", `quo"te`, "it's", "sel`ect", "select", "order", "таблица", "a;b", "x--y", "/*x*/", "[b]", "a.b", "%_", "?", ":x", "\n", "emoji🙂", "UPPER", "1st", "sqlitex1"}
	var statements []string
	for _, name := range names {
		q := sqlguard.QuoteName(name)
		statements = append(statements, fmt.Sprintf("CREATE TABLE %s (%s TEXT REFERENCES %s, %s)", q, q, q, sqlguard.QuoteName(name+"2")), fmt.Sprintf("INSERT INTO %s VALUES ('v', 1)", q))
	}
	g := open(t, create(t, statements...), sqlguard.AskPolicy())
	tables := schemaOf(t, g, sqlguard.SchemaOptions{RowCounts: 10, Samples: 1})
	for _, name := range names {
		table := tables[name]
		if len(table.Columns) != 2 || table.Columns[0].Name != name || table.Rows != 1 || len(table.Columns[0].Samples) != 1 || len(table.ForeignKeys) != 1 || table.Broken != "" {
			t.Errorf("%q: %+v", name, table)
		}
		if got := rows(t, g, "SELECT "+sqlguard.QuoteName(name)+" FROM "+sqlguard.QuoteName(name)); got[0][0] != text("v") {
			t.Errorf("%q: %v", name, got)
		}
	}
	if len(tables) != len(names) {
		t.Errorf("%d tables, want %d", len(tables), len(names))
	}
}

// The schema of every benchmark database here agrees with SQLite's own pragmas.
func TestSchemaOfSpider(t *testing.T) {
	paths, err := filepath.Glob(filepath.Join(testenv.Shared(t, "data", "spider", "database"), "*", "*.sqlite"))
	if err != nil || len(paths) == 0 {
		t.Fatalf("no databases: %v", err)
	}
	pool, err := sqlguard.NewPool(0)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	for _, path := range paths {
		before, err := os.ReadDir(filepath.Dir(path))
		if err != nil {
			t.Fatal(err)
		}
		g, err := pool.Open(context.Background(), path, sqlguard.EvalPolicy())
		if err != nil {
			t.Fatal(err)
		}
		for name, table := range schemaOf(t, g, sqlguard.SchemaOptions{RowCounts: 1_000_000, Samples: 2}) {
			want := rows(t, g, "SELECT count(*) FROM "+sqlguard.QuoteName(name))[0][0].Int
			columns := rows(t, g, "PRAGMA table_info("+sqlguard.QuoteName(name)+")")
			if table.Rows != want || table.MoreRows || len(table.Columns) != len(columns) {
				t.Errorf("%s: %s: %d rows, want %d; %d columns, want %d", path, name, table.Rows, want, len(table.Columns), len(columns))
			}
		}
		g.Close()
		after, _ := os.ReadDir(filepath.Dir(path))
		if len(before) != len(after) {
			t.Errorf("%s: files appeared: %v", path, after)
		}
	}
}
