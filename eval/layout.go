package eval

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// LayoutError says what was looked for where in a dataset's folder, and what was not there.
type LayoutError struct {
	Dataset string // benchmark
	Dir     string // folder given
	Looked  []Looked
	Hint    string // what to do next
}

// Looked is one file or folder that a dataset needs.
type Looked struct {
	What  string   // "questions"
	Where []string // places tried, in order
	Found string   // the one that exists; empty when none does
}

func (e *LayoutError) Error() string {
	var b strings.Builder
	if info, err := os.Stat(e.Dir); err != nil || !info.IsDir() {
		fmt.Fprintf(&b, "%s is no folder", e.Dir)
	} else {
		fmt.Fprintf(&b, "%s is not a complete %s dataset", e.Dir, e.Dataset)
	}
	for _, l := range e.Looked {
		b.WriteString("\n  " + l.String())
	}
	if e.Hint != "" {
		b.WriteString("\n" + e.Hint)
	}
	return b.String()
}

// String is one line: what, and where it was found or looked for.
func (l Looked) String() string {
	if l.Found != "" {
		return "found    " + l.What + ": " + l.Found
	}
	return "missing  " + l.What + ": looked for " + strings.Join(l.Where, ", ")
}

// Missing are the things that were not found.
func (e *LayoutError) Missing() []Looked {
	var out []Looked
	for _, l := range e.Looked {
		if l.Found == "" {
			out = append(out, l)
		}
	}
	return out
}

// Find looks for the first of names in the first of dir's subfolders that has one, records what it did, and returns the
// path, or "" when there is none.
func (e *LayoutError) Find(what, dir string, subfolders, names []string) string {
	looked := Looked{What: what}
	for _, sub := range subfolders {
		for _, name := range names {
			path := filepath.Join(dir, sub, name)
			if _, err := os.Stat(path); err == nil {
				looked.Found = path
				e.Looked = append(e.Looked, looked)
				return path
			}
			looked.Where = append(looked.Where, path)
		}
	}
	e.Looked = append(e.Looked, looked)
	return ""
}

// CheckDatabases records for each database of the examples whether its file is there.
func (e *LayoutError) CheckDatabases(examples []Example) {
	seen := map[string]bool{}
	for _, ex := range examples {
		if ex.Database == "" || seen[ex.DB] {
			continue
		}
		seen[ex.DB] = true
		looked := Looked{What: "database " + ex.DB, Where: []string{ex.Database}}
		if info, err := os.Stat(ex.Database); err == nil && info.Mode().IsRegular() && info.Size() > 0 {
			looked.Found = ex.Database
		}
		e.Looked = append(e.Looked, looked)
	}
}

// RequireDatabases returns a *LayoutError when a database of one of the examples is not there. Examples without a database
// of their own (Spider2's cloud tasks) are an error too.
func (d *Dataset) RequireDatabases(examples []Example) error {
	layout := LayoutError{Dataset: d.Name, Dir: d.Dir, Hint: d.Layout.Hint}
	for _, ex := range examples {
		if ex.Database == "" {
			return fmt.Errorf("question %s is on %s, which is no SQLite database", ex.ID, ex.DB)
		}
	}
	layout.CheckDatabases(examples)
	if layout.Looked = layout.Missing(); len(layout.Looked) == 0 {
		return nil
	}
	if there := layout.havingDatabases(examples); len(there) > 0 {
		layout.Hint += fmt.Sprintf("; or choose questions whose databases are there with --ids (%d, such as %s)", len(there), there[0].ID)
	}
	return &layout
}

// havingDatabases are the examples whose database is not among what is missing.
func (e *LayoutError) havingDatabases(examples []Example) []Example {
	return slices.DeleteFunc(slices.Clone(examples), func(ex Example) bool {
		return slices.ContainsFunc(e.Looked, func(l Looked) bool { return l.What == "database "+ex.DB })
	})
}
