package bird

import (
	"encoding/csv"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"
)

// notes is the text of a database_description folder: for each table one line a column that has a description, as
// "table.column: description; values". It is empty where the folder is missing. Databases share their text.
func notes(dir string) string {
	text, known := notesCache.Load(dir)
	if !known {
		text, _ = notesCache.LoadOrStore(dir, readNotes(dir))
	}
	return text.(string)
}

var notesCache sync.Map // folder -> string

func readNotes(dir string) string {
	files, _ := filepath.Glob(filepath.Join(dir, "*.csv"))
	var lines []string
	for _, path := range files {
		table := strings.TrimSuffix(filepath.Base(path), ".csv")
		data, err := os.ReadFile(path)
		if err != nil {
			continue
		}
		lines = append(lines, describeTable(table, string(data))...)
	}
	return strings.Join(lines, "\n")
}

// describeTable reads one file: a header with original_column_name, column_description and value_description among its
// columns. The published files are partly in Windows-1252 and partly malformed; what can be read is.
func describeTable(table, text string) []string {
	text = strings.TrimPrefix(text, "\ufeff")
	if !utf8.ValidString(text) {
		text, _ = charmap.Windows1252.NewDecoder().String(text)
	}
	reader := csv.NewReader(strings.NewReader(text))
	reader.LazyQuotes, reader.FieldsPerRecord = true, -1
	records, _ := reader.ReadAll()
	if len(records) == 0 {
		return nil
	}
	column := map[string]int{}
	for i, name := range records[0] {
		column[strings.TrimSpace(name)] = i
	}
	cell := func(record []string, name string) string {
		i, known := column[name]
		if !known || i >= len(record) {
			return ""
		}
		return strings.Join(strings.Fields(record[i]), " ")
	}
	var lines []string
	for _, record := range records[1:] {
		name := cell(record, "original_column_name")
		description, values := cell(record, "column_description"), cell(record, "value_description")
		if name == "" || description == "" && values == "" {
			continue
		}
		parts := []string{}
		for _, part := range []string{description, values} {
			if part != "" {
				parts = append(parts, part)
			}
		}
		lines = append(lines, table+"."+name+": "+strings.Join(parts, "; "))
	}
	return lines
}
