package spider2

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quern/eval"
)

// Splits of Spider 2.0-lite.
const (
	Local = "local" // the tasks on SQLite, which can be run and scored here
	All   = "all"   // also those on BigQuery and Snowflake, whose predictions can be scored as CSV files only
)

// Files and folders of the published repository and of its download, in the order in which they are looked for.
var (
	taskFolders     = []string{"", "spider2-lite"}
	databaseFolders = []string{"resource/databases/spider2-localdb", "resource/databases/local_sqlite", "resource/databases", "spider2-localdb", "localdb"}
	documentFolders = []string{"resource/documents", "documents"}
	goldFolders     = []string{"evaluation_suite/gold", "gold"}
)

// task is one line of spider2-lite.jsonl.
type task struct {
	ID       string `json:"instance_id"`
	DB       string `json:"db"`
	Question string `json:"question"`
	Document string `json:"external_knowledge"`
}

// Gold is what a scorer needs of the dataset's gold folder.
type Gold struct {
	results   string // folder of gold tables
	standards map[string]standard
}

// Load reads Spider 2.0-lite as published: spider2-lite.jsonl, the local databases, the external knowledge documents and
// the gold folder. split is Local ("" too) or All. Missing databases are no error here: see Dataset.RequireDatabases.
func Load(dir, split string) (*eval.Dataset, *Gold, error) {
	if split == "" {
		split = Local
	}
	if split != Local && split != All {
		return nil, nil, fmt.Errorf("Spider2-lite has the splits %s and %s, not %q", Local, All, split)
	}
	layout := eval.LayoutError{Dataset: "Spider2-lite", Dir: dir,
		Hint: "give the folder spider2-lite of the Spider2 repository, with the download local_sqlite.zip unpacked into " + databaseFolders[0]}
	tasks := layout.Find("tasks", dir, taskFolders, []string{"spider2-lite.jsonl"})
	if tasks == "" {
		return nil, nil, &layout
	}
	base := filepath.Dir(tasks)
	databases := layout.Find("databases", base, []string{""}, databaseFolders)
	if databases == "" {
		databases = filepath.Join(base, databaseFolders[0])
	}
	documents := layout.Find("external knowledge", base, []string{""}, documentFolders)
	gold, err := loadGold(&layout, base)
	if err != nil {
		return nil, nil, err
	}
	lines, err := readLines[task](tasks)
	if err != nil {
		return nil, nil, err
	}
	d := &eval.Dataset{Name: eval.Spider2, Split: split, Dir: base}
	for _, t := range lines {
		if local := strings.HasPrefix(t.ID, "local"); !local && split == Local {
			continue
		}
		ex, err := t.example(databases, documents, gold)
		if err != nil {
			return nil, nil, err
		}
		ex.Index = len(d.Examples)
		d.Examples = append(d.Examples, ex)
	}
	if len(d.Examples) == 0 {
		return nil, nil, fmt.Errorf("%s holds no %s task", tasks, split)
	}
	layout.CheckDatabases(d.Examples)
	d.Layout = layout
	d.Digest, err = eval.DigestExamples(d.Examples, gold.files(d.Examples)...)
	return d, gold, err
}

func loadGold(layout *eval.LayoutError, base string) (*Gold, error) {
	dir := layout.Find("gold results", base, goldFolders, []string{"exec_result"})
	rules := layout.Find("comparison rules", base, goldFolders, []string{"spider2lite_eval.jsonl"})
	if dir == "" || rules == "" {
		return nil, layout
	}
	standards, err := readStandards(rules)
	return &Gold{results: dir, standards: standards}, err
}

// files are the gold tables of the examples, and the rules of their comparison.
func (g *Gold) files(examples []eval.Example) []string {
	out := []string{filepath.Join(filepath.Dir(g.results), "spider2lite_eval.jsonl")}
	for _, ex := range examples {
		paths, _, _ := goldFiles(g.results, ex.ID)
		out = append(out, paths...)
	}
	return out
}

func (t task) example(databases, documents string, gold *Gold) (eval.Example, error) {
	ex := eval.Example{ID: t.ID, DB: t.DB, Question: t.Question}
	if strings.HasPrefix(t.ID, "local") {
		ex.Database = databaseFile(databases, t.DB)
	}
	if sql, err := os.ReadFile(filepath.Join(filepath.Dir(gold.results), "sql", t.ID+".sql")); err == nil {
		ex.Gold = strings.TrimSpace(string(sql))
	}
	if t.Document != "" && documents != "" {
		text, err := os.ReadFile(filepath.Join(documents, filepath.Base(t.Document)))
		if err != nil && ex.Database != "" {
			return ex, fmt.Errorf("task %s names a document that is not there: %w", t.ID, err)
		}
		ex.Evidence = strings.TrimSpace(string(text))
	}
	return ex, nil
}

// databaseFile is the path of a local database; file names differ from the tasks' names in case.
func databaseFile(dir, db string) string {
	exact := filepath.Join(dir, db+".sqlite")
	if fileExists(exact) {
		return exact
	}
	entries, _ := os.ReadDir(dir)
	for _, entry := range entries {
		if strings.EqualFold(entry.Name(), db+".sqlite") {
			return filepath.Join(dir, entry.Name())
		}
	}
	return exact
}
