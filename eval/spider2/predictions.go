package spider2

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Mode says what a submission folder holds.
type Mode string

// Modes of the official script.
const (
	SQLMode Mode = "sql"         // <id>.sql
	CSVMode Mode = "exec_result" // <id>.csv
)

// ReadPredictions reads a submission folder: the text of each <id>.sql or <id>.csv by instance id. With an empty mode it takes the
// kind the folder holds; a folder that holds both needs one.
func ReadPredictions(dir string, mode Mode) (map[string]string, Mode, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, "", err
	}
	found := map[Mode]map[string]string{SQLMode: {}, CSVMode: {}}
	for _, entry := range entries {
		kind := map[string]Mode{".sql": SQLMode, ".csv": CSVMode}[filepath.Ext(entry.Name())]
		if kind == "" || entry.IsDir() || mode != "" && kind != mode {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, "", err
		}
		id, _, _ := strings.Cut(entry.Name(), ".") // as the official script does
		found[kind][id] = string(text)
	}
	switch sqls, csvs := len(found[SQLMode]), len(found[CSVMode]); {
	case sqls == 0 && csvs == 0:
		return nil, "", fmt.Errorf("%s holds no <instance id>.sql or .csv file", dir)
	case sqls > 0 && csvs > 0:
		return nil, "", fmt.Errorf("%s holds %d .sql and %d .csv files: say which with --mode sql or exec_result", dir, sqls, csvs)
	case sqls > 0:
		return found[SQLMode], SQLMode, nil
	}
	return found[CSVMode], CSVMode, nil
}

// ExtractSQL takes the SQL out of a prediction's text as the official script does: the first fence that opens with exactly
// "```sql" and a line feed and closes after a line feed, trimmed; without one the whole text.
func ExtractSQL(text string) string {
	const open, end = "```sql\n", "\n```"
	start := strings.Index(text, open)
	if start < 0 {
		return text
	}
	body := text[start+len(open):]
	// The closing line feed may be the opening one, as in an empty block.
	stop := strings.Index(body, end)
	if stop < 0 {
		return text
	}
	return strings.TrimSpace(body[:stop])
}
