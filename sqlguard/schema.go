package sqlguard

import (
	"context"
	"errors"
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

// Schema reads the tables and views.
func (g *Guard) Schema(ctx context.Context, opts SchemaOptions) (Schema, error) {
	return Schema{}, errors.New("sqlguard: not implemented")
}

// EngineInfo is the SQLite inside this binary.
type EngineInfo struct {
	Version        string   `json:"version"`
	SourceID       string   `json:"source_id"`
	CompileOptions []string `json:"compile_options"` // as PRAGMA compile_options lists them
}

// Engine describes the SQLite inside this binary; it starts nothing.
func Engine() EngineInfo { return EngineInfo{} }
