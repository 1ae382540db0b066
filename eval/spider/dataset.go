package spider

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"quern/eval"
)

// Files and folders of the downloads, in the order in which they are looked for.
var (
	questionFiles = []string{"dev.json", "Spider-DK.json", "test.json"}
	subfolders    = []string{"", "spider", "spider_data", "spider-dk"}
)

const databasesHint = "give the folder of the unpacked official download: database/<db>/<db>.sqlite for every database (test_database for the test questions)"

// split is where the files that belong to a question file lie.
type split struct {
	gold      string   // gold lines beside it; "" for none
	tables    []string // names of its tables.json
	databases []string // folders of its databases, relative to the question file
}

// splitOf knows the official names. Spider-DK adds three databases of its own to Spider's.
func splitOf(questions string) split {
	switch name := filepath.Base(questions); {
	case name == "test.json":
		return split{"test_gold.sql", []string{"test_tables.json", "tables.json"}, []string{"test_database", "database"}}
	case strings.HasPrefix(name, "Spider-DK"):
		return split{"", []string{"tables.json"}, []string{"database", "../spider/database", "../spider_data/database", "../database"}}
	case name == "dev.json":
		return split{"dev_gold.sql", []string{"tables.json"}, []string{"database"}}
	default:
		return split{strings.TrimSuffix(name, ".json") + "_gold.sql", []string{"tables.json"}, []string{"database"}}
	}
}

// datasetQuestion is one entry of a question file.
type datasetQuestion struct {
	DB       string `json:"db_id"`
	Question string `json:"question"`
	Query    string `json:"query"`
	SQL      any    `json:"SQL"` // the query parsed; in BIRD's files its text
	Kind     string `json:"kind"`
}

// Load reads Spider as downloaded: name is the question file ("" for the first of dev.json, Spider-DK.json, test.json that
// exists in dir or a folder of the download below it). Gold queries are those of the gold file that the official scripts
// take (dev_gold.sql) where it lies beside the questions. Missing databases are no error here: see
// Dataset.RequireDatabases.
func Load(dir, name string) (*eval.Dataset, error) {
	files := questionFiles
	if name != "" {
		files = []string{strings.TrimSuffix(name, ".json") + ".json"}
	}
	layout := eval.LayoutError{Dataset: "Spider", Dir: dir, Hint: databasesHint}
	path := layout.Find("questions", dir, subfolders, files)
	if path == "" {
		return nil, &layout
	}
	base, parts := filepath.Dir(path), splitOf(path)
	questions, err := readDataset(path)
	if err != nil {
		return nil, err
	}
	tables := layout.Find("schemas", base, []string{""}, parts.tables)
	if tables == "" {
		return nil, &layout
	}
	if err := takeGoldFile(questions, base, parts.gold); err != nil {
		return nil, err
	}
	d := &eval.Dataset{Name: eval.Spider, Split: filepath.Base(path), Dir: base}
	for i, q := range questions {
		d.Examples = append(d.Examples, eval.Example{ID: strconv.Itoa(i), Index: i, DB: q.DB, Kind: q.Kind,
			Database: findDatabase(base, parts.databases, q.DB), Question: q.Question, Gold: q.Query})
	}
	layout.CheckDatabases(d.Examples)
	d.Layout = layout
	d.Digest, err = eval.DigestExamples(d.Examples, tables)
	return d, err
}

// Tables is the path of the tables.json that belongs to a dataset.
func Tables(d *eval.Dataset) string {
	for _, name := range splitOf(d.Split).tables {
		if path := filepath.Join(d.Dir, name); exists(path) {
			return path
		}
	}
	return filepath.Join(d.Dir, "tables.json")
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func readDataset(path string) ([]datasetQuestion, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var questions []datasetQuestion
	if err := json.Unmarshal(data, &questions); err != nil {
		return nil, fmt.Errorf("%s is no list of Spider questions: %w", path, err)
	}
	if len(questions) == 0 {
		return nil, fmt.Errorf("%s holds no question", path)
	}
	for i, q := range questions {
		if q.DB == "" || q.Question == "" {
			return nil, fmt.Errorf("%s: entry %d has no db_id or no question", path, i)
		}
		if _, text := q.SQL.(string); text && q.Query == "" {
			return nil, fmt.Errorf("%s: entry %d has its gold under SQL, as BIRD does, not under query: give --dataset bird", path, i)
		}
	}
	return questions, nil
}

// takeGoldFile replaces the queries by those of the gold file, if there is one. It has to fit the questions.
func takeGoldFile(questions []datasetQuestion, base, name string) error {
	path := filepath.Join(base, name)
	if name == "" || !exists(path) {
		return nil
	}
	goldLines, err := readLines(path)
	if err != nil {
		return err
	}
	gold, err := readQuestions(Files{Gold: path}, goldLines)
	if err != nil {
		return err
	}
	if len(gold) != len(questions) {
		return fmt.Errorf("%s has %d gold queries for %d questions; they do not belong together", path, len(gold), len(questions))
	}
	for i := range questions {
		if gold[i].example.DB != questions[i].DB {
			return fmt.Errorf("%s: line %d is for database %s, the question for %s; they do not belong together", path, gold[i].line, gold[i].example.DB, questions[i].DB)
		}
		questions[i].Query = gold[i].example.Gold
	}
	return nil
}

// findDatabase is the first folder's file that exists, or where it should be.
func findDatabase(base string, folders []string, db string) string {
	for _, folder := range folders {
		if path := filepath.Join(base, folder, db, db+".sqlite"); exists(path) {
			return path
		}
	}
	return filepath.Join(base, folders[0], db, db+".sqlite")
}
