package sqlguard

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"quern/sqlguard/internal/sqlite"
)

// query runs a statement of our own about the catalogue, which no rule hides from it.
func query(conn *sqlite.Conn, maxRows int, sql string, args ...string) ([][]Value, error) {
	conn.Trust(true)
	defer conn.Trust(false)
	return queryByRules(conn, maxRows, sql, args...)
}

// queryByRules runs a statement of our own and returns its rows. Names are bound to its parameters, or quoted where they stand for tables.
func queryByRules(conn *sqlite.Conn, maxRows int, sql string, args ...string) ([][]Value, error) {
	stmt, _, err := conn.Prepare(sql)
	if err != nil {
		return nil, err
	}
	defer stmt.Close()
	for i, arg := range args {
		if err := stmt.BindText(i+1, arg); err != nil {
			return nil, err
		}
	}
	stmt.LimitRows(maxRows, 64<<20)
	var all [][]Value
	for {
		rows, packed, end, err := stmt.Fetch(chunkBytes)
		if err != nil {
			return nil, err
		}
		if rows > 0 {
			values, err := unpackRows(string(packed), rows, stmt.Columns())
			if err != nil {
				return nil, err
			}
			all = append(all, values...)
		}
		if end != sqlite.More {
			return all, nil
		}
	}
}

// maxNames bounds how many names of a catalogue are read.
const maxNames = 100_000

// firsts is the first column of rows.
func firsts(rows [][]Value) []string {
	names := make([]string, len(rows))
	for i, row := range rows {
		names[i] = row[0].Data
	}
	return names
}

// visibleTables turns Policy.Tables into what the authorizer must let through for them: the shadow tables of virtual tables
// (https://www.sqlite.org/vtab.html#the_xshadowname_method), and table-valued functions, which count as tables. A name
// that the database does not have is an error, since a typo would hide a table without a word.
func visibleTables(conn *sqlite.Conn, wanted []string) ([]string, error) {
	rows, err := query(conn, maxNames, "SELECT name, type FROM pragma_table_list WHERE schema = 'main'")
	if err != nil {
		return nil, err
	}
	visible := slices.Clone(wanted)
	var names []string
	for _, row := range rows {
		name, kind := row[0].Data, row[1].Data
		names = append(names, name)
		if kind == "shadow" && slices.ContainsFunc(wanted, func(w string) bool { return hasPrefixFold(name, w+"_") }) {
			visible = append(visible, name)
		}
	}
	for _, w := range wanted {
		if !containsFold(names, w) {
			return nil, fmt.Errorf("no table or view named %q%s", w, didYouMean(nearest(w, names)))
		}
	}
	for _, function := range []string{"json_each", "json_tree", "pragma_table_info", "pragma_table_xinfo", "pragma_index_list"} {
		if !containsFold(names, function) {
			visible = append(visible, function)
		}
	}
	return visible, nil
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) >= len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

func containsFold(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

var noSuch = regexp.MustCompile(`^no such (table|column): (.+?)(?: - should this be a string literal in single-quotes\?)?$`)

// hint names what a statement may have meant by a table or column that does not exist.
func (d *database) hint(conn *sqlite.Conn, message string) string {
	m := noSuch.FindStringSubmatch(message)
	if m == nil {
		return ""
	}
	conn.Arm(time.Second, 0)
	tables, err := d.tableNames(conn)
	if err != nil {
		return ""
	}
	_, name, qualified := cutLast(m[2], ".")
	if !qualified {
		name = m[2]
	}
	name = strings.Trim(name, `"`)
	if m[1] == "table" {
		return didYouMean(nearest(name, tables))
	}
	var columns []string
	for _, table := range tables {
		rows, err := query(conn, maxNames, "SELECT name FROM pragma_table_xinfo(?)", table)
		if err != nil {
			continue // a broken view
		}
		for _, column := range firsts(rows) {
			columns = append(columns, table+"."+column)
		}
		if len(columns) > maxNames {
			break
		}
	}
	return didYouMean(nearest(name, columns))
}

// tableNames lists the visible tables and views of the main database, in byte order.
func (d *database) tableNames(conn *sqlite.Conn) ([]string, error) {
	rows, err := query(conn, maxNames, `SELECT name FROM sqlite_schema WHERE type IN ('table', 'view') AND name NOT LIKE 'sqlite\_%' ESCAPE '\' ORDER BY name`)
	if err != nil {
		return nil, err
	}
	names := firsts(rows)
	if d.spec.Tables != nil {
		names = slices.DeleteFunc(names, func(n string) bool { return !containsFold(d.spec.Tables, n) })
	}
	return names, nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return "", s, false
}

func didYouMean(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return "did you mean " + strings.Join(names, ", ") + "?"
}

// nearest returns up to three of the names, plain or qualified with a table, that are close to name in spelling.
func nearest(name string, names []string) []string {
	type candidate struct {
		name     string
		distance int
	}
	var near []candidate
	for _, n := range names {
		_, last, _ := cutLast(n, ".")
		if d := spellingDistance(strings.ToLower(name), strings.ToLower(last)); d <= max(1, len(name)/3) {
			near = append(near, candidate{n, d})
		}
	}
	slices.SortStableFunc(near, func(a, b candidate) int { return a.distance - b.distance })
	var out []string
	for _, c := range near[:min(3, len(near))] {
		out = append(out, c.name)
	}
	return out
}

// spellingDistance is the number of letters to insert, delete, replace or swap with a neighbour (optimal string alignment),
// letters of up to 100 bytes; '_' and ' ' do not count.
func spellingDistance(a, b string) int {
	plain := strings.NewReplacer("_", "", " ", "")
	a, b = plain.Replace(a), plain.Replace(b)
	if len(a) > 100 || len(b) > 100 {
		return 100
	}
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			d := min(rows[i-1][j]+1, rows[i][j-1]+1, rows[i-1][j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				d = min(d, rows[i-2][j-2]+1)
			}
			rows[i][j] = d
		}
	}
	return rows[len(a)][len(b)]
}
