package bird

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"quern/eval"
)

// question is one entry of dev.json or mini_dev_sqlite.json.
type question struct {
	ID         *int   `json:"question_id"`
	DB         string `json:"db_id"`
	Question   string `json:"question"`
	Evidence   string `json:"evidence"`
	SQL        any    `json:"SQL"`   // a text; in Spider's files something else
	Query      string `json:"query"` // Spider's name for the gold
	Difficulty string `json:"difficulty"`
}

// Files and folders of the downloads, in the order in which they are looked for: dev, mini-dev and train have different ones.
var (
	questionFiles   = []string{"dev.json", "mini_dev_sqlite.json", "train.json"}
	subfolders      = []string{"", "dev", "dev_20240627", "MINIDEV", "minidev/MINIDEV", "mini_dev_data", "train"}
	databaseFolders = []string{"dev_databases", "databases", "database", "train_databases", "minidev/dev_databases"}
)

// Load reads BIRD as downloaded: split names the question file ("" for the first of dev.json, mini_dev_sqlite.json,
// train.json that exists in dir or a folder of the download below it). Missing databases are no error here: see
// Dataset.RequireDatabases.
func Load(dir, split string) (*eval.Dataset, error) {
	files := questionFiles
	if split != "" {
		files = []string{strings.TrimSuffix(split, ".json") + ".json"}
	}
	layout := eval.LayoutError{Dataset: "BIRD", Dir: dir,
		Hint: "unpack the official download (dev.zip or minidev.zip, and the dev_databases.zip inside it) and give the folder with the question file"}
	path := layout.Find("questions", dir, subfolders, files)
	if path == "" {
		return nil, &layout
	}
	base := filepath.Dir(path)
	databases := layout.Find("databases", base, []string{"", ".."}, databaseFolders)
	if databases == "" {
		databases = filepath.Join(base, databaseFolders[0])
	}
	questions, err := readQuestions(path)
	if err != nil {
		return nil, err
	}
	d := &eval.Dataset{Name: eval.BIRD, Split: filepath.Base(path), Dir: base}
	var described []string // files that end up in prompts
	for i, q := range questions {
		folder, files := descriptions(databases, q.DB)
		described = append(described, files...)
		d.Examples = append(d.Examples, eval.Example{
			ID: q.id(i), Index: i, DB: q.DB, Database: filepath.Join(databases, q.DB, q.DB+".sqlite"),
			Question: q.Question, Evidence: q.Evidence, Gold: q.gold(), Difficulty: q.Difficulty,
			Descriptions: folder,
		})
	}
	layout.CheckDatabases(d.Examples)
	d.Layout = layout
	d.Digest, err = eval.DigestExamples(d.Examples, described...)
	return d, err
}

func readQuestions(path string) ([]question, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var questions []question
	if err := json.Unmarshal(data, &questions); err != nil {
		return nil, fmt.Errorf("%s is no list of BIRD questions: %w", path, err)
	}
	if len(questions) == 0 {
		return nil, fmt.Errorf("%s holds no question", path)
	}
	for i, q := range questions {
		if q.DB == "" || q.Question == "" {
			return nil, fmt.Errorf("%s: entry %d has no db_id or no question", path, i)
		}
		if q.gold() == "" && q.Query != "" {
			return nil, fmt.Errorf("%s: entry %d has its gold under query, as Spider does, not under SQL: give --dataset spider", path, i)
		}
	}
	return questions, nil
}

func (q question) gold() string {
	sql, _ := q.SQL.(string)
	return sql
}

func (q question) id(position int) string {
	if q.ID != nil {
		return strconv.Itoa(*q.ID)
	}
	return strconv.Itoa(position)
}

// descriptions is the folder with a database's column descriptions, "" where there are none, and its files.
func descriptions(databases, db string) (folder string, files []string) {
	folder = filepath.Join(databases, db, "database_description")
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		if filepath.Ext(entry.Name()) == ".csv" {
			files = append(files, filepath.Join(folder, entry.Name()))
		}
	}
	if len(files) == 0 {
		return "", nil
	}
	return folder, files
}
