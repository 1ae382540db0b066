package sqlguard

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"quern/sqlguard/internal/sqlite"
)

// SchemaOptions bounds what Schema reads beyond the definitions.
type SchemaOptions struct {
	RowCounts int // count rows of each table up to this many; 0: none
	Samples   int // distinct values per column; 0: none
	MaxSample int // bytes of a sampled text, cut on a rune boundary; 0: 100
}

// Schema is what the database holds, hidden tables (Policy.Tables) left out.
type Schema struct {
	Tables []Table // tables and views by name, in byte order
}

// Table is one table or view.
type Table struct {
	Name        string
	View        bool
	Virtual     bool
	SQL         string // its CREATE statement as stored; rebuilt where it names a hidden table
	Columns     []TableColumn
	PrimaryKey  []string // in key order
	ForeignKeys []ForeignKey
	Rows        int64  // -1: not counted
	MoreRows    bool   // counting stopped at Rows
	Broken      string // why its columns could not be read (a view over a dropped table), else ""
}

// TableColumn is one column of a table or view.
type TableColumn struct {
	Name      string
	Type      string // as declared, "" without
	NotNull   bool
	Default   string // as an SQL expression, "" without
	Generated bool
	Samples   []Value // up to SchemaOptions.Samples distinct values, never a blob or NULL
}

// ForeignKey is one foreign key, columns paired by position.
type ForeignKey struct {
	Columns    []string
	Table      string
	RefColumns []string // the referenced table's primary key where the definition leaves it out
}

// schema reads the tables and views. What it reads beyond definitions stops at the limits' time.
func (d *database) schema(options SchemaOptions, l Limits) (Schema, error) {
	d.setLimits(l)
	d.base.Arm(l.Timeout, 0)
	rows, err := query(d.base, maxNames, `SELECT s.name, s.type, coalesce(s.sql, ''), coalesce(l.type, '')
		FROM sqlite_schema s LEFT JOIN pragma_table_list l ON l.schema = 'main' AND l.name = s.name
		WHERE s.type IN ('table', 'view') AND s.name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY s.name`)
	if err != nil {
		return Schema{}, err
	}
	var schema Schema
	for _, row := range rows {
		t := Table{Name: row[0].Data, View: row[1].Data == "view", SQL: row[2].Data, Virtual: row[3].Data == "virtual", Rows: -1}
		if row[3].Data == "shadow" || !d.visible(t.Name) || t.View && d.spec.Tables != nil && !d.readable(t.Name) {
			continue
		}
		d.describe(&t)
		schema.Tables = append(schema.Tables, t)
	}
	d.sampleAll(schema.Tables, options, time.Now().Add(l.Timeout/2))
	return schema, nil
}

func (d *database) visible(table string) bool {
	return d.spec.Tables == nil || containsFold(d.spec.Tables, table)
}

// readable says whether a view reads nothing hidden: its text and its columns would tell.
func (d *database) readable(view string) bool {
	stmt, _, err := d.base.Prepare("SELECT * FROM main." + QuoteName(view))
	stmt.Close()
	return err == nil
}

// describe reads columns and keys.
func (d *database) describe(t *Table) {
	err := d.readColumns(t)
	if err == nil && !t.View {
		err = d.readForeignKeys(t)
	}
	if err != nil {
		t.Broken = err.Error()
	}
}

func (d *database) readColumns(t *Table) error {
	rows, err := query(d.base, maxNames, `SELECT name, type, "notnull", coalesce(dflt_value, ''), pk, hidden FROM pragma_table_xinfo(?)`, t.Name)
	if err != nil {
		return err
	}
	key := map[int64]string{}
	for _, row := range rows {
		hidden := row[5].Int
		if hidden == 1 { // of a virtual table; SELECT * leaves it out
			continue
		}
		if pk := row[4].Int; pk > 0 {
			key[pk] = row[0].Data
		}
		t.Columns = append(t.Columns, TableColumn{
			Name:      row[0].Data,
			Type:      row[1].Data,
			NotNull:   row[2].Int != 0,
			Default:   row[3].Data,
			Generated: hidden != 0,
		})
	}
	for i := int64(1); i <= int64(len(key)); i++ {
		t.PrimaryKey = append(t.PrimaryKey, key[i])
	}
	return nil
}

// readForeignKeys reads the foreign keys in the order of the definition. Those to hidden tables are left out, and the
// definition that names them is rebuilt without.
func (d *database) readForeignKeys(t *Table) error {
	rows, err := query(d.base, maxNames, `SELECT id, "table", "from", "to" FROM pragma_foreign_key_list(?) ORDER BY id DESC, seq`, t.Name)
	if err != nil {
		return err
	}
	last, hidden := int64(-1), false
	for _, row := range rows {
		if !d.visible(row[1].Data) {
			hidden = true
			continue
		}
		if row[0].Int != last {
			last = row[0].Int
			t.ForeignKeys = append(t.ForeignKeys, ForeignKey{Table: row[1].Data})
		}
		key := &t.ForeignKeys[len(t.ForeignKeys)-1]
		key.Columns = append(key.Columns, row[2].Data)
		if row[3].Kind != Null {
			key.RefColumns = append(key.RefColumns, row[3].Data)
		}
	}
	for i := range t.ForeignKeys {
		if key := &t.ForeignKeys[i]; key.RefColumns == nil {
			if key.RefColumns, err = d.primaryKey(key.Table); err != nil {
				return err
			}
		}
	}
	if hidden {
		t.SQL = createTable(t)
	}
	return nil
}

func (d *database) primaryKey(table string) ([]string, error) {
	rows, err := query(d.base, maxNames, "SELECT name FROM pragma_table_xinfo(?) WHERE pk > 0 ORDER BY pk", table)
	return firsts(rows), err
}

// createTable writes a definition from what is known of a table.
func createTable(t *Table) string {
	var parts []string
	for _, c := range t.Columns {
		part := strings.TrimRight(QuoteName(c.Name)+" "+c.Type, " ")
		if c.NotNull {
			part += " NOT NULL"
		}
		if c.Default != "" {
			part += " DEFAULT " + c.Default
		}
		parts = append(parts, part)
	}
	if len(t.PrimaryKey) > 0 {
		parts = append(parts, "PRIMARY KEY ("+quoteNames(t.PrimaryKey)+")")
	}
	for _, k := range t.ForeignKeys {
		parts = append(parts, fmt.Sprintf("FOREIGN KEY (%s) REFERENCES %s (%s)", quoteNames(k.Columns), QuoteName(k.Table), quoteNames(k.RefColumns)))
	}
	return "CREATE TABLE " + QuoteName(t.Name) + " (\n  " + strings.Join(parts, ",\n  ") + "\n)"
}

// QuoteName writes a name of any kind as SQL.
func QuoteName(name string) string { return `"` + strings.ReplaceAll(name, `"`, `""`) + `"` }

func quoteNames(names []string) string {
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = QuoteName(name)
	}
	return strings.Join(quoted, ", ")
}

// Bounds of sampling.
const (
	sampleRows    = 1000 // rows of a table looked at for distinct values
	defaultSample = 100  // bytes of a sampled text
)

// sampleAll counts and samples until the time is over; what is missing then stays missing.
func (d *database) sampleAll(tables []Table, options SchemaOptions, until time.Time) {
	if options.MaxSample <= 0 {
		options.MaxSample = defaultSample
	}
	for i := range tables {
		t := &tables[i]
		if t.Broken != "" {
			continue
		}
		if options.RowCounts > 0 {
			d.count(t, options.RowCounts, until)
		}
		for j := range t.Columns {
			if options.Samples > 0 {
				d.sample(t, &t.Columns[j], options, until)
			}
		}
	}
}

// arm gives a query of our own what is left of the time, and says whether anything is.
func (d *database) arm(until time.Time) bool {
	left := time.Until(until)
	if left <= 0 {
		return false
	}
	d.base.Arm(left, 0)
	return true
}

func (d *database) count(t *Table, most int, until time.Time) {
	if !d.arm(until) {
		return
	}
	rows, err := queryByRules(d.base, 1, fmt.Sprintf("SELECT count(*) FROM (SELECT 1 FROM main.%s LIMIT %d)", QuoteName(t.Name), most+1))
	if err != nil {
		return
	}
	n := rows[0][0].Int
	t.Rows, t.MoreRows = min(n, int64(most)), n > int64(most)
}

func (d *database) sample(t *Table, c *TableColumn, options SchemaOptions, until time.Time) {
	if !d.arm(until) {
		return
	}
	name, from := QuoteName(c.Name), "main."+QuoteName(t.Name)
	if !t.View && !t.Virtual {
		from += " NOT INDEXED" // the first rows, not the first of an index
	}
	rows, err := queryByRules(d.base, options.Samples, fmt.Sprintf(
		"SELECT DISTINCT v FROM (SELECT CASE WHEN typeof(%s) = 'text' THEN substr(%s, 1, %d) ELSE %s END AS v FROM %s WHERE typeof(%s) NOT IN ('blob', 'null') LIMIT %d)",
		name, name, options.MaxSample, name, from, name, sampleRows))
	if err != nil {
		return
	}
	for _, row := range rows {
		row[0].Data = cutRunes(row[0].Data, options.MaxSample)
		if !slices.Contains(c.Samples, row[0]) {
			c.Samples = append(c.Samples, row[0])
		}
	}
}

// cutRunes cuts s to at most n bytes, not within a rune.
func cutRunes(s string, n int) string {
	if len(s) <= n {
		return s
	}
	for n > 0 && !utf8.RuneStart(s[n]) {
		n--
	}
	return s[:n]
}

// EngineInfo is the SQLite inside this binary.
type EngineInfo struct {
	Version        string   `json:"version"`
	SourceID       string   `json:"source_id"`
	CompileOptions []string `json:"compile_options"` // as PRAGMA compile_options lists them
}

// Engine describes the SQLite inside this binary; it starts nothing.
func Engine() EngineInfo {
	version, source := sqlite.Version()
	return EngineInfo{version, source, sqlite.CompileOptions()}
}
