package bird

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"

	"quern/eval"
)

// separator stands between SQL and database in BIRD's prediction files.
const separator = "\t----- bird -----\t"

// Pairing says how a prediction finds its question.
type Pairing string

// Ways of pairing.
const (
	PairSafely     Pairing = ""         // by key, refused where the official scripts would pair otherwise
	PairByPosition Pairing = "position" // by order in the file, as the official scripts do
	PairByKey      Pairing = "key"      // by question id, or by index
)

// ReadPredictions reads BIRD's prediction file: one JSON object whose keys are indices ("0", "1", …) or question ids and whose
// values are "SQL<TAB>----- bird -----<TAB>database"; mini-dev's script also takes the SQL alone.
//
// The official scripts ignore the keys and pair by position in the file, so that keys sorted as text silently score nearly
// 0. With PairSafely such a file is refused, and so is one whose entries name other databases than their questions.
func ReadPredictions(path string, examples []eval.Example, pairing Pairing) (map[string]string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	entries, err := orderedEntries(data)
	if err != nil {
		return nil, fmt.Errorf("%s is no BIRD prediction file: %w", path, err)
	}
	order, err := pair(entries, examples, pairing)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	out := map[string]string{}
	for i, entry := range entries {
		ex := examples[order[i]]
		sql, db := entry.split()
		if pairing == PairSafely && db != "" && db != ex.DB {
			return nil, fmt.Errorf("%s: the entry with key %q is for database %s, but question %s is about %s: "+
				"positions and keys are mixed up, or the file belongs to another set of questions; --pair-by key or position decides",
				path, entry.key, db, ex.ID, ex.DB)
		}
		out[ex.ID] = sql
	}
	return out, nil
}

// entry is one member of the file's object, in the file's order.
type entry struct {
	key   string
	value any
}

// split gives the SQL and the database the entry names. A value that is no text is a blank query, as in mini-dev's script.
func (e entry) split() (sql, db string) {
	text, ok := e.value.(string)
	if !ok {
		return "", ""
	}
	sql, db, found := strings.Cut(text, separator)
	if !found {
		return strings.TrimSpace(text), ""
	}
	return sql, strings.TrimSpace(db)
}

func orderedEntries(data []byte) ([]entry, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	if tok, err := dec.Token(); err != nil || tok != json.Delim('{') {
		return nil, fmt.Errorf("it does not begin with {")
	}
	var out []entry
	position := map[string]int{} // Python keeps a repeated key's first place and last value
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value any
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name := key.(string)
		if at, seen := position[name]; seen {
			out[at].value = value
			continue
		}
		position[name] = len(out)
		out = append(out, entry{name, value})
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	return out, nil
}

// pair gives for each entry the position of its example.
func pair(entries []entry, examples []eval.Example, pairing Pairing) ([]int, error) {
	if pairing == PairByPosition {
		if len(entries) > len(examples) {
			return nil, fmt.Errorf("%d predictions for %d questions", len(entries), len(examples))
		}
		order := make([]int, len(entries))
		for i := range order {
			order[i] = i
		}
		return order, nil
	}
	order, err := pairByKey(entries, examples)
	if err != nil {
		return nil, err
	}
	if pairing == PairByKey {
		return order, nil
	}
	for i := 1; i < len(order); i++ {
		if order[i] < order[i-1] {
			return nil, fmt.Errorf("the keys are not in the questions' order (%q comes after %q), and the official scripts pair by "+
				"position and would score the wrong pairs: sort the file by key, or give --pair-by key or position",
				entries[i].key, entries[i-1].key)
		}
	}
	return order, nil
}

// pairByKey takes keys as indices if they are exactly the first ones, else as question ids.
func pairByKey(entries []entry, examples []eval.Example) ([]int, error) {
	byID := map[string]int{}
	for i, ex := range examples {
		byID[ex.ID] = i
	}
	indices, ids := true, true
	for _, e := range entries {
		n, err := strconv.Atoi(e.key)
		indices = indices && err == nil && n >= 0 && n < len(entries) && n < len(examples)
		_, known := byID[e.key]
		ids = ids && known
	}
	if !indices && !ids {
		return nil, fmt.Errorf("the keys are neither indices from 0 nor question ids of these %d questions", len(examples))
	}
	order := make([]int, len(entries))
	for i, e := range entries {
		if indices {
			order[i], _ = strconv.Atoi(e.key)
		} else {
			order[i] = byID[e.key]
		}
	}
	return order, nil
}
