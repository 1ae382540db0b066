package spider

import (
	"encoding/json"
	"fmt"
	"os"
)

// tablesEntry is one database in tables.json.
type tablesEntry struct {
	DB          string     `json:"db_id"`
	TableNames  []string   `json:"table_names_original"`
	ColumnNames []tableCol `json:"column_names_original"`
	ForeignKeys [][2]int   `json:"foreign_keys"`
}

// tableCol is written as [table index, name]; the table of "*" is -1.
type tableCol struct {
	Table int
	Name  string
}

func (c *tableCol) UnmarshalJSON(data []byte) error {
	pair := []any{&c.Table, &c.Name}
	if err := json.Unmarshal(data, &pair); err != nil {
		return fmt.Errorf("a column is [table, name]: %w", err)
	}
	return nil
}

// loadTables reads the foreign keys of each database from tables.json, as maps from a column to the column that stands for
// its group.
func loadTables(path string) (map[string]map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var entries []tablesEntry
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("%s is no Spider tables.json: %w", path, err)
	}
	keys := map[string]map[string]string{}
	for _, entry := range entries {
		for _, key := range entry.ForeignKeys {
			if max(key[0], key[1]) >= len(entry.ColumnNames) || min(key[0], key[1]) < 0 {
				return nil, fmt.Errorf("%s: database %s: a foreign key names column %v of %d", path, entry.DB, key, len(entry.ColumnNames))
			}
		}
		keys[entry.DB] = foreignKeys(entry)
	}
	return keys, nil
}
