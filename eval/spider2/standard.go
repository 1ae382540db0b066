package spider2

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
)

// standard is what counts in the comparison of one instance.
type standard struct {
	ID          string    `json:"instance_id"`
	Conditions  condition `json:"condition_cols"`
	IgnoreOrder bool      `json:"ignore_order"`
}

// readStandards reads spider2lite_eval.jsonl.
func readStandards(path string) (map[string]standard, error) {
	list, err := readLines[standard](path)
	if err != nil {
		return nil, err
	}
	out := make(map[string]standard, len(list))
	for _, s := range list {
		out[s.ID] = s
	}
	return out, nil
}

// readLines reads a file of JSON objects, one a line.
func readLines[T any](path string) ([]T, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var out []T
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, maxLine)
	for n := 1; scanner.Scan(); n++ {
		if strings.TrimSpace(scanner.Text()) == "" {
			continue
		}
		var row T
		if err := json.Unmarshal(scanner.Bytes(), &row); err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		out = append(out, row)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return out, nil
}

// maxLine bounds a line of a JSONL file, in bytes.
const maxLine = 64 << 20

// comparisonResult is what the official comparison says of one instance.
type comparisonResult struct {
	Right bool
	Error string // the official script's words; empty when Right
}

// score is the official script's number.
func (r comparisonResult) score() int {
	if r.Right {
		return 1
	}
	return 0
}

// kind is the class of the error without its details.
func (r comparisonResult) kind() string {
	kind, _, _ := strings.Cut(r.Error, ": ")
	return kind
}

// compareCSV scores the CSV text of a prediction against the gold tables in dir.
func compareCSV(pred, dir, id string, std standard) comparisonResult {
	predicted, err := readFrame(pred)
	if err != nil {
		return comparisonResult{Error: "Evaluation Error: " + err.Error()}
	}
	golds, alone, err := readGold(dir, id)
	switch {
	case errors.Is(err, errNoGold):
		return comparisonResult{Error: err.Error()}
	case err != nil:
		return comparisonResult{Error: errScript.Error() + ": " + err.Error()}
	}
	var same bool
	if alone {
		same, err = compareTables(predicted, golds[0], std.Conditions, std.IgnoreOrder)
	} else {
		same, err = compareAny(predicted, golds, std.Conditions, std.IgnoreOrder)
	}
	switch {
	case err != nil:
		return comparisonResult{Error: err.Error()}
	case !same:
		return comparisonResult{Error: "Result Error"}
	}
	return comparisonResult{Right: true}
}

func readGold(dir, id string) (golds []*frame, alone bool, err error) {
	paths, alone, err := goldFiles(dir, id)
	if err != nil {
		return nil, false, err
	}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, false, err
		}
		gold, err := readFrame(string(text))
		if err != nil {
			return nil, false, fmt.Errorf("%s: %w", path, err)
		}
		golds = append(golds, gold)
	}
	return golds, alone, nil
}
