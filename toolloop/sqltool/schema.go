package sqltool

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"quern/sqlguard"
	"quern/toolloop"
)

// Schema is a database's schema as a model is told it. It does not change and may be shared.
type Schema struct {
	tables []sqlguard.Table
	hermes bool
}

// ReadSchema reads what the profile's prompt needs: definitions, and for other profiles than hermes a few values of
// each column.
func ReadSchema(ctx context.Context, db Database, profile toolloop.Profile) (*Schema, error) {
	s := &Schema{hermes: profile.Name == toolloop.ProfileHermes}
	opts := sqlguard.SchemaOptions{}
	if !s.hermes {
		opts = sqlguard.SchemaOptions{Samples: 3, MaxSample: 60}
	}
	schema, err := db.Schema(ctx, opts)
	if err != nil {
		return nil, fmt.Errorf("sqltool: read the schema: %w", err)
	}
	s.tables = schema.Tables
	if s.hermes {
		s.tables, err = hermesTables(ctx, db, schema.Tables)
	}
	return s, err
}

// hermesTables selects and orders tables with the reference's own query, which also finds the inner tables of virtual
// ones. Where the guard hides the catalogue, the visible tables stand in its order already.
func hermesTables(ctx context.Context, db Database, known []sqlguard.Table) ([]sqlguard.Table, error) {
	result, err := db.Query(ctx, "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' AND sql IS NOT NULL ORDER BY name")
	if err != nil {
		return nil, fmt.Errorf("sqltool: read the schema: %w", err)
	}
	var tables []sqlguard.Table
	if result.Failure != nil {
		for _, t := range known {
			if !t.View {
				tables = append(tables, t)
			}
		}
		return tables, nil
	}
	for _, row := range result.Rows {
		table := sqlguard.Table{Name: row[0].Data, SQL: row[1].Data}
		if i := slices.IndexFunc(known, func(t sqlguard.Table) bool { return t.Name == table.Name }); i >= 0 {
			table = known[i]
		}
		tables = append(tables, table)
	}
	return tables, nil
}

// detail says how much of a schema is written.
type detail struct {
	noSamples, noComments bool
	keyColumns            map[string]bool // tables of which only keys and related columns are written
	left                  map[string]bool // tables of which nothing is written
}

// Text is the whole schema.
func (s *Schema) Text() string { return s.text(detail{}, nil) }

// text writes the definitions: for hermes stripped and joined with a blank line, as in training; for the others with
// values and foreign keys.
func (s *Schema) text(d detail, question map[string]bool) string {
	var parts []string
	for _, t := range s.tables {
		if !d.left[t.Name] {
			parts = append(parts, s.tableText(t, d, question))
		}
	}
	if keys := s.foreignKeys(d); keys != "" {
		parts = append(parts, keys)
	}
	return strings.Join(parts, "\n\n")
}

func (s *Schema) tableText(t sqlguard.Table, d detail, question map[string]bool) string {
	sql := strings.TrimSpace(escapeInvalid(t.SQL))
	switch {
	case d.keyColumns[t.Name] && !t.View:
		sql = shortDefinition(t, question)
	case d.noComments:
		sql = withoutComments(sql)
	}
	if s.hermes {
		return sql
	}
	sql = strings.TrimSuffix(sql, ";") + ";"
	if d.noSamples {
		return sql
	}
	for _, c := range t.Columns {
		if len(c.Samples) > 0 {
			sql += "\n-- " + oneLine(c.Name) + ": " + sampleText(c.Samples)
		}
	}
	return sql
}

func sampleText(values []sqlguard.Value) string {
	texts := make([]string, len(values))
	for i, v := range values {
		if v.Kind == sqlguard.Text {
			texts[i] = quoteText(oneLine(escapeInvalid(v.Data)))
		} else {
			texts[i] = cellText(v, 60)
		}
	}
	return strings.Join(texts, ", ")
}

// foreignKeys lists all keys between written tables; the definitions hold them too, but scattered. Not for hermes.
func (s *Schema) foreignKeys(d detail) string {
	if s.hermes {
		return ""
	}
	var lines []string
	for _, t := range s.tables {
		for _, key := range t.ForeignKeys {
			if d.left[t.Name] || d.left[key.Table] {
				continue
			}
			for i, column := range key.Columns {
				if i < len(key.RefColumns) {
					lines = append(lines, fmt.Sprintf("-- %s.%s = %s.%s", oneLine(t.Name), oneLine(column), oneLine(key.Table), oneLine(key.RefColumns[i])))
				}
			}
		}
	}
	if len(lines) == 0 {
		return ""
	}
	return "-- Foreign keys:\n" + strings.Join(lines, "\n")
}

// shortDefinition writes a table with its keys and the columns that have to do with the question.
func shortDefinition(t sqlguard.Table, question map[string]bool) string {
	keys := slices.Clone(t.PrimaryKey)
	for _, key := range t.ForeignKeys {
		keys = append(keys, key.Columns...)
	}
	var columns []string
	for _, c := range t.Columns {
		if slices.Contains(keys, c.Name) || shares(c.Name, question) {
			columns = append(columns, strings.TrimSpace(quoteName(c.Name)+" "+c.Type))
		}
	}
	if len(columns) == len(t.Columns) {
		return withoutComments(strings.TrimSpace(escapeInvalid(t.SQL)))
	}
	columns = append(columns, fmt.Sprintf("/* and %d more columns */", len(t.Columns)-len(columns)))
	return "CREATE TABLE " + quoteName(t.Name) + " (" + strings.Join(columns, ", ") + ")"
}

// withoutComments drops the comments of a definition and the space that they leave.
func withoutComments(sql string) string {
	var b strings.Builder
	for _, t := range lex(sql) {
		switch t.kind {
		case tokenComment:
		case tokenSpace:
			space := " "
			if strings.Contains(t.text, "\n") {
				space = "\n"
			}
			if text := b.String(); strings.HasSuffix(text, "\n") || space == " " && strings.HasSuffix(text, " ") {
				continue
			}
			b.WriteString(space)
		default:
			b.WriteString(sql[t.start:t.end])
		}
	}
	return strings.TrimSpace(b.String())
}
