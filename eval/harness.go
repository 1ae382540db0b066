package eval

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Names under which other harnesses write what is read here, in the order in which they are looked for.
var (
	sqlKeys  = []string{"pred_sql", "predicted_sql", "final_sql", "prediction", "predicted", "pred", "generated_sql", "sql", "SQL", "answer"}
	idKeys   = []string{"id", "instance_id", "question_id", "idx", "index", "i"}
	dbKeys   = []string{"db_id", "db", "database"}
	stopKeys = []string{"stop_reason", "stop", "finish", "finish_reason", "status"}
	callKeys = []string{"n_calls", "num_calls", "tool_calls", "n_tool_calls", "calls"}
	turnKeys = []string{"n_turns", "num_turns", "turns"}
	listKeys = []string{"results", "predictions", "rows", "records", "examples", "data"}
)

// ReadHarness reads another harness's results: a JSON list of objects, an object that holds such a list, or one object a
// line. Each needs the SQL, under any of the usual names; an id or the position finds its question, and where database
// and question text are given they have to be that question's. Stop reason and numbers of calls and turns are taken over.
func ReadHarness(path string, examples []Example) (map[string]Prediction, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	records, err := harnessRecords(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	byID := map[string]Example{}
	for _, ex := range examples {
		byID[ex.ID] = ex
	}
	out := map[string]Prediction{}
	for i, record := range records {
		ex, err := record.example(i, examples, byID)
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, i, err)
		}
		if _, twice := out[ex.ID]; twice {
			return nil, fmt.Errorf("%s: entry %d is a second prediction for question %s", path, i, ex.ID)
		}
		p, err := record.prediction()
		if err != nil {
			return nil, fmt.Errorf("%s: entry %d: %w", path, i, err)
		}
		out[ex.ID] = p
	}
	return out, nil
}

type harnessRecord map[string]any

func harnessRecords(data []byte) ([]harnessRecord, error) {
	data = bytes.TrimSpace(data)
	var list []harnessRecord
	if json.Unmarshal(data, &list) == nil && len(list) > 0 {
		return list, nil
	}
	var object map[string]json.RawMessage
	if json.Unmarshal(data, &object) == nil {
		for _, key := range listKeys {
			if json.Unmarshal(object[key], &list) == nil && len(list) > 0 {
				return list, nil
			}
		}
	}
	list = nil
	for n, line := range bytes.Split(data, []byte("\n")) {
		if line = bytes.TrimSpace(line); len(line) == 0 {
			continue
		}
		var record harnessRecord
		if err := json.Unmarshal(line, &record); err != nil || record == nil {
			return nil, fmt.Errorf("neither a JSON list of predictions, nor an object with one (%s), nor one JSON object a line (line %d is none)",
				strings.Join(listKeys, ", "), n+1)
		}
		list = append(list, record)
	}
	if len(list) == 0 {
		return nil, fmt.Errorf("it holds no prediction")
	}
	return list, nil
}

// example is the question that a record is about.
func (r harnessRecord) example(position int, examples []Example, byID map[string]Example) (Example, error) {
	ex, found := Example{}, false
	if id, given := r.text(idKeys); given {
		if ex, found = byID[id]; !found {
			return ex, fmt.Errorf("no question has the id %s", id)
		}
	} else {
		if position >= len(examples) {
			return ex, fmt.Errorf("there are only %d questions", len(examples))
		}
		ex = examples[position]
	}
	if db, given := r.text(dbKeys); given && db != ex.DB {
		return ex, fmt.Errorf("it is for database %s, but question %s is about %s: ids and positions are mixed up, or the file belongs to other questions", db, ex.ID, ex.DB)
	}
	if question, given := r.text([]string{"question"}); given && ex.Question != "" && strings.TrimSpace(question) != strings.TrimSpace(ex.Question) {
		return ex, fmt.Errorf("its question is not that of %s: ids and positions are mixed up, or the file belongs to other questions", ex.ID)
	}
	return ex, nil
}

func (r harnessRecord) prediction() (Prediction, error) {
	sql, given := r.text(sqlKeys)
	if !given {
		return Prediction{}, fmt.Errorf("no SQL: there is none of %s", strings.Join(sqlKeys, ", "))
	}
	p := Prediction{SQL: sql}
	p.Stop, _ = r.text(stopKeys)
	p.ToolCalls = r.number(callKeys)
	p.Turns = r.number(turnKeys)
	return p, nil
}

// text is the first of the keys that is there, as a text; null is an empty one.
func (r harnessRecord) text(keys []string) (string, bool) {
	for _, key := range keys {
		switch v := r[key].(type) {
		case string:
			return v, true
		case float64:
			return strconv.FormatFloat(v, 'f', -1, 64), true
		case nil:
			if _, there := r[key]; there {
				return "", true
			}
		}
	}
	return "", false
}

// number is the first of the keys that is there as a number, or as a list, which counts its members.
func (r harnessRecord) number(keys []string) int {
	for _, key := range keys {
		switch v := r[key].(type) {
		case float64:
			return int(v)
		case []any:
			return len(v)
		}
	}
	return 0
}

// Stored is a Predictor that gives predictions that were made before, by question id.
type Stored map[string]Prediction

// Predict implements Predictor.
func (s Stored) Predict(_ context.Context, ex Example, _ int) (Prediction, error) {
	p, given := s[ex.ID]
	if !given {
		return Prediction{}, fmt.Errorf("no prediction for question %s", ex.ID)
	}
	return p, nil
}
