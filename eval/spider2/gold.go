package spider2

import (
	"os"
	"path/filepath"
	"regexp"
	"sort"
)

// errNoGold is an instance without any gold table.
const errNoGold = scriptError("No matching gold file found")

// goldFiles returns the gold tables of an instance in dir: <id>.csv alone if it exists, else <id>_a.csv … <id>_z.csv.
// alone says which of the two it was, since the condition list is read differently.
func goldFiles(dir, id string) (paths []string, alone bool, err error) {
	if path := filepath.Join(dir, id+".csv"); fileExists(path) {
		return []string{path}, true, nil
	}
	pattern := regexp.MustCompile(`^` + regexp.QuoteMeta(id) + `_[a-z]\.csv$`)
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, false, err
	}
	for _, entry := range entries {
		if pattern.MatchString(entry.Name()) {
			paths = append(paths, filepath.Join(dir, entry.Name()))
		}
	}
	sort.Strings(paths)
	if len(paths) == 0 {
		return nil, false, errNoGold
	}
	return paths, false, nil
}

func fileExists(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

// Table is the text of an instance's first gold table.
func (g *Gold) Table(id string) (string, error) {
	paths, _, err := goldFiles(g.results, id)
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(paths[0])
	return string(text), err
}
