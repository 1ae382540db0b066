package eval

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
)

// Names of the benchmarks.
const (
	Spider  = "spider"
	BIRD    = "bird"
	Spider2 = "spider2"
)

// Example is one question of a dataset.
type Example struct {
	ID         string `json:"id"`                   // unique in the dataset: the benchmark's own id, or the position in its file
	Index      int    `json:"index"`                // position in the dataset, from 0
	DB         string `json:"db"`                   // the benchmark's name of the database
	Database   string `json:"-"`                    // path of its file
	Question   string `json:"question"`             //
	Evidence   string `json:"evidence,omitempty"`   // BIRD's hint, or the text of Spider2's external knowledge document
	Gold       string `json:"gold,omitempty"`       // gold SQL; empty where the benchmark gives only a table or nothing
	Difficulty string `json:"difficulty,omitempty"` // the benchmark's own label; Spider's is computed from the gold by its scorer
	Kind       string `json:"kind,omitempty"`       // the kind of question, where the dataset names one
	// Descriptions is the folder with BIRD's descriptions of the database's columns; "" where there is none.
	Descriptions string `json:"-"`
}

// Dataset is a benchmark's split as downloaded.
type Dataset struct {
	Name     string      // Spider, BIRD or Spider2
	Split    string      // the file that was read, such as "dev.json"
	Dir      string      // the folder it lies in
	Examples []Example   // in the file's order; Index counts them
	Digest   string      // see DigestExamples
	Layout   LayoutError // what was looked for; databases may be missing, see RequireDatabases
}

// Select returns the examples with one of the ids, in the dataset's order. An id that does not exist is an error.
func (d *Dataset) Select(ids []string) ([]Example, error) {
	wanted := map[string]bool{}
	for _, id := range ids {
		wanted[id] = true
	}
	var out []Example
	for _, ex := range d.Examples {
		if wanted[ex.ID] {
			out = append(out, ex)
			delete(wanted, ex.ID)
		}
	}
	if len(wanted) > 0 {
		return nil, fmt.Errorf("%s %s has no question with id %s", d.Name, d.Split, strings.Join(sortedKeys(wanted), ", "))
	}
	return out, nil
}

// Shard returns part i of n (both from 1): the examples whose database falls to that part. Whole databases stay together,
// so that each part keeps the benefit of shared schema prefixes; the parts are balanced by number of questions.
func Shard(examples []Example, i, n int) []Example {
	size := map[string]int{}
	for _, ex := range examples {
		size[ex.DB]++
	}
	if len(size) < n { // too few databases to go round: parts of one
		return examples[len(examples)*(i-1)/n : len(examples)*i/n]
	}
	dbs := sortedKeys(size)
	sort.SliceStable(dbs, func(a, b int) bool { return size[dbs[a]] > size[dbs[b]] })
	load, part := make([]int, n), map[string]int{}
	for _, db := range dbs {
		least := 0
		for k := range load {
			if load[k] < load[least] {
				least = k
			}
		}
		part[db] = least
		load[least] += size[db]
	}
	var out []Example
	for _, ex := range examples {
		if part[ex.DB] == i-1 {
			out = append(out, ex)
		}
	}
	return out
}

// ByDatabase returns the examples in the order in which they should be run: those of one database together, databases in
// the order of their first question, so that the prompt prefix with the schema is computed once.
func ByDatabase(examples []Example) []Example {
	first := map[string]int{}
	for i, ex := range examples {
		if _, seen := first[ex.DB]; !seen {
			first[ex.DB] = i
		}
	}
	out := append([]Example(nil), examples...)
	sort.SliceStable(out, func(a, b int) bool { return first[out[a].DB] < first[out[b].DB] })
	return out
}

// DigestExamples returns a SHA-256 over everything that decides a run's questions and verdicts: the examples' fields, and
// the bytes of each database file they name. A missing database file counts as missing; other files are named in extra.
func DigestExamples(examples []Example, extra ...string) (string, error) {
	sum := sha256.New()
	files := map[string]string{} // path -> name in the digest
	for _, ex := range examples {
		line, err := json.Marshal(ex)
		if err != nil {
			return "", fmt.Errorf("question %s: %w", ex.ID, err)
		}
		sum.Write(append(line, '\n'))
		if ex.Database != "" {
			files[ex.Database] = "db " + ex.DB
		}
	}
	for _, path := range extra {
		files[path] = filepath.Base(path)
	}
	for _, path := range sortedKeys(files) {
		digest, err := fileSHA256(path)
		if err != nil && !os.IsNotExist(err) {
			return "", err
		}
		fmt.Fprintf(sum, "%s %s\n", files[path], digest)
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

// fileSHA256 is the hash of a file's content in hexadecimal; "missing" with the error when it cannot be read.
func fileSHA256(path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "missing", err
	}
	defer file.Close()
	digest, err := Digest(file)
	if err != nil {
		return "missing", fmt.Errorf("read %s: %w", path, err)
	}
	return digest, nil
}

// Digest is the SHA-256 of what r gives, in hexadecimal.
func Digest(r io.Reader) (string, error) {
	sum := sha256.New()
	if _, err := io.Copy(sum, r); err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil)), nil
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	return keys
}
