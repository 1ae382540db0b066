package assistant

import (
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quern/sqlguard"
	"quern/toolloop/sqltool"
)

// Descriptions say in words what tables and columns hold: by table name, then by column name, "" for the table itself.
// Names are in lower case.
type Descriptions map[string]map[string]string

func (d Descriptions) add(table, column, text string) {
	table, column, text = strings.ToLower(table), strings.ToLower(column), strings.Join(strings.Fields(text), " ")
	if text == "" {
		return
	}
	if d[table] == nil {
		d[table] = map[string]string{}
	}
	d[table][column] = text
}

// ReadDescriptions reads a JSON file {"table": {"": "about the table", "column": "about the column"}}, a CSV file in BIRD's
// form (original_column_name, column_name, column_description, data_format, value_description) for the table that the
// file is named after, or a folder of such CSV files.
func ReadDescriptions(path string) (Descriptions, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	d := Descriptions{}
	switch {
	case info.IsDir():
		files, err := filepath.Glob(filepath.Join(path, "*.csv"))
		if err != nil || len(files) == 0 {
			return nil, fmt.Errorf("%s holds no .csv file with descriptions", path)
		}
		for _, file := range files {
			if err := d.readCSV(file); err != nil {
				return nil, err
			}
		}
		return d, nil
	case strings.EqualFold(filepath.Ext(path), ".csv"):
		return d, d.readCSV(path)
	default:
		return d, d.readJSON(path)
	}
}

func (d Descriptions) readJSON(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var tables map[string]map[string]string
	if err := json.Unmarshal(data, &tables); err != nil {
		return fmt.Errorf(`%s: not JSON of the form {"table": {"column": "what it holds"}}: %w`, file, err)
	}
	for table, columns := range tables {
		for column, text := range columns {
			d.add(table, column, text)
		}
	}
	return nil
}

// readCSV reads one of BIRD's files. Some of them are not UTF-8; their odd bytes become U+FFFD.
func (d Descriptions) readCSV(file string) error {
	data, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	reader := csv.NewReader(strings.NewReader(strings.ToValidUTF8(strings.TrimPrefix(string(data), "\ufeff"), "\uFFFD")))
	reader.FieldsPerRecord, reader.LazyQuotes = -1, true
	records, err := reader.ReadAll()
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	if len(records) == 0 {
		return nil
	}
	at := map[string]int{}
	for i, name := range records[0] {
		at[strings.ToLower(strings.TrimSpace(name))] = i
	}
	if _, ok := at["original_column_name"]; !ok {
		return fmt.Errorf("%s: the first line names no column original_column_name", file)
	}
	table := strings.TrimSuffix(filepath.Base(file), filepath.Ext(file))
	for _, record := range records[1:] {
		field := func(name string) string {
			if i, ok := at[name]; ok && i < len(record) {
				return strings.TrimSpace(record[i])
			}
			return ""
		}
		text := field("column_description")
		if text == "" {
			text = field("column_name")
		}
		if values := field("value_description"); values != "" {
			text += "; " + values
		}
		d.add(table, field("original_column_name"), text)
	}
	return nil
}

// View is a database as the model is told of it: with descriptions, and with sample values or without.
type View struct {
	sqltool.Database
	Descriptions Descriptions
	NoSamples    bool
}

// Schema adds the descriptions to the definitions, as SQL comments behind them.
func (v View) Schema(ctx context.Context, opts sqlguard.SchemaOptions) (sqlguard.Schema, error) {
	if v.NoSamples {
		opts.Samples = 0
	}
	schema, err := v.Database.Schema(ctx, opts)
	for i := range schema.Tables {
		schema.Tables[i].SQL += v.Descriptions.comments(schema.Tables[i])
	}
	return schema, err
}

// comments writes what is known of a table, in the order of its columns.
func (d Descriptions) comments(t sqlguard.Table) string {
	about := d[strings.ToLower(t.Name)]
	var b strings.Builder
	if text := about[""]; text != "" {
		fmt.Fprintf(&b, "\n-- %s: %s", t.Name, text)
	}
	for _, c := range t.Columns {
		if text := about[strings.ToLower(c.Name)]; text != "" {
			fmt.Fprintf(&b, "\n-- %s.%s: %s", t.Name, c.Name, text)
		}
	}
	return b.String()
}
