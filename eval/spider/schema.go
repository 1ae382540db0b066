package spider

import "strings"

// Schema is a database's tables and columns as the scripts see them: lower-case names, views left out.
type Schema struct {
	tables  []string            // in the database's order
	columns map[string][]string // table -> its columns, in order
	ids     map[string]string   // "t.c", "t" or "*" -> the identifier the parse holds: "__t.c__", "__t__", "__all__"
}

// newSchema takes lower-case names; a table listed twice keeps its last columns.
func newSchema(tables []string, columns map[string][]string) *Schema {
	s := &Schema{tables: tables, columns: columns, ids: map[string]string{"*": "__all__"}}
	for _, table := range tables {
		for _, column := range columns[table] {
			s.ids[table+"."+column] = "__" + table + "." + column + "__"
		}
	}
	for _, table := range tables {
		s.ids[table] = "__" + table + "__"
	}
	return s
}

func (s *Schema) hasColumn(table, column string) bool {
	for _, c := range s.columns[table] {
		if c == column {
			return true
		}
	}
	return false
}

// foreignKeys maps a column's identifier to the one that stands for its group of columns joined by foreign keys. An entry of
// tables.json gives it. Groups are grown in the order of the keys and never joined later, as in the scripts.
func foreignKeys(entry tablesEntry) map[string]string {
	names := make([]string, len(entry.ColumnNames))
	for i, column := range entry.ColumnNames {
		names[i] = "__all__"
		if column.Table >= 0 && column.Table < len(entry.TableNames) {
			names[i] = "__" + strings.ToLower(entry.TableNames[column.Table]) + "." + strings.ToLower(column.Name) + "__"
		}
	}
	var groups []map[int]bool
	for _, key := range entry.ForeignKeys {
		group := groupOf(groups, key)
		if group == nil {
			group = map[int]bool{}
			groups = append(groups, group)
		}
		group[key[0]], group[key[1]] = true, true
	}
	merged := map[string]string{}
	for _, group := range groups {
		lowest := len(names)
		for i := range group {
			lowest = min(lowest, i)
		}
		for i := range group {
			merged[names[i]] = names[lowest]
		}
	}
	return merged
}

func groupOf(groups []map[int]bool, key [2]int) map[int]bool {
	for _, group := range groups {
		if group[key[0]] || group[key[1]] {
			return group
		}
	}
	return nil
}
