package bird

import (
	"bufio"
	"context"
	"encoding/json"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/eval"
	"quern/internal/testenv"
	"quern/sqlguard"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker()
	os.Exit(m.Run())
}

// rows reads an oracle's JSON lines; it fails when there are none.
func rows[T any](t *testing.T, path string) []T {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	var out []T
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, 64<<20)
	for scanner.Scan() {
		var row T
		if err := json.Unmarshal(scanner.Bytes(), &row); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		out = append(out, row)
	}
	if len(out) == 0 {
		t.Fatalf("%s holds no case", path)
	}
	return out
}

type pairRow struct {
	ID         string
	DB         string `json:"db_id"`
	Gold, Pred string
	Tags       []string
	Difficulty string
	Timeout    float64 `json:"timeout_s"`
	EX         int     `json:"ex"`
	EXMinidev  int     `json:"ex_minidev"`
	SoftF1     float64 `json:"soft_f1"`
	Outcome    string
	Changed    bool `json:"db_file_changed"`
}

// newTestScorer scores on copies of the oracle's databases, so that a write would show.
func newTestScorer(t *testing.T, limit time.Duration) (*Scorer, string) {
	t.Helper()
	dir := t.TempDir()
	source := testenv.Oracles(t, "eval", "bird", "database")
	if err := os.CopyFS(dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	executor, err := eval.NewExecutor(2, eval.Deadlines{Prediction: limit, Gold: limit})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { executor.Close() })
	scorer := NewScorer(executor, 0)
	scorer.officialLimit = limit
	return scorer, dir
}

func (r pairRow) example(dir string) eval.Example {
	return eval.Example{ID: r.ID, DB: r.DB, Database: filepath.Join(dir, r.DB, r.DB+".sqlite"), Gold: r.Gold, Difficulty: r.Difficulty}
}

func TestPairsOracle(t *testing.T) {
	pairs := rows[pairRow](t, testenv.Oracles(t, "eval", "bird", "pairs.jsonl"))
	scorers := map[float64]*Scorer{}
	dirs := map[float64]string{}
	for _, row := range pairs {
		if scorers[row.Timeout] == nil {
			scorers[row.Timeout], dirs[row.Timeout] = newTestScorer(t, time.Duration(row.Timeout*float64(time.Second)))
		}
		score, err := scorers[row.Timeout].Score(context.Background(), row.example(dirs[row.Timeout]), row.Pred)
		if err != nil {
			t.Fatal(err)
		}
		got := 0
		if score.Right() {
			got = 1
		}
		if got != row.EX || got != row.EXMinidev || int(score.Metrics[MetricEX]) != row.EX {
			t.Errorf("%s: %s %s, official %d (%s)\n gold %s\n pred %s", row.ID, score.Official, score.Message, row.EX, row.Outcome, row.Gold, row.Pred)
		}
		if math.Abs(score.Metrics[MetricSoftF1]-row.SoftF1) > 1e-12 {
			t.Errorf("%s: soft F1 %v, official %v", row.ID, score.Metrics[MetricSoftF1], row.SoftF1)
		}
		if failed := score.Official == eval.PredictionFailed || score.Official == eval.GoldFailed; failed != strings.HasPrefix(row.Outcome, "error") {
			t.Errorf("%s: %s, official outcome %s", row.ID, score.Official, row.Outcome)
		}
		if timedOut := score.Official == eval.TimedOut; timedOut != (row.Outcome == "timeout") {
			t.Errorf("%s: %s, official outcome %s", row.ID, score.Official, row.Outcome)
		}
		if row.Changed && !strings.Contains(score.OfficialNote, "for good") {
			t.Errorf("%s: the official script changed the database file; the note says %q", row.ID, score.OfficialNote)
		}
	}
	for _, dir := range dirs {
		sameFiles(t, testenv.Oracles(t, "eval", "bird", "database"), dir)
	}
}

// Results whose columns share a name are compared by position, and shown whole.
func TestColumnsOfOneName(t *testing.T) {
	scorer, dir := newTestScorer(t, OfficialLimit)
	ex := eval.Example{ID: "1", DB: "campus", Database: filepath.Join(dir, "campus", "campus.sqlite"), Gold: "SELECT name AS id, age AS id FROM student"}
	for sql, want := range map[string]eval.Verdict{
		"SELECT name AS id, age AS id FROM student": eval.Correct, "SELECT name, age FROM student": eval.Correct,
		"SELECT age AS id, name AS id FROM student": eval.Wrong, "SELECT name AS id, name AS id FROM student": eval.Wrong,
	} {
		score, err := scorer.Score(context.Background(), ex, sql)
		if err != nil {
			t.Fatal(err)
		}
		if score.Official != want || len(score.Gold.Columns) != 2 || len(score.Gold.Rows[0]) != 2 || score.Gold.Rows[0][0] == score.Gold.Rows[0][1] {
			t.Errorf("%s: %s, want %s; gold shown as %+v", sql, score.Official, want, score.Gold)
		}
	}
}

// sameFiles checks that nothing in a folder of databases has changed.
func sameFiles(t *testing.T, want, got string) {
	t.Helper()
	if out, err := exec.Command("diff", "-r", want, got).CombinedOutput(); err != nil {
		t.Errorf("databases changed: %s", out)
	}
}

func TestPrintedTablesOracle(t *testing.T) {
	report := testenv.Oracles(t, "eval", "bird", "report")
	scorer, dir := newTestScorer(t, OfficialLimit)
	examples := reportExamples(t, report, dir)
	predictions, err := ReadPredictions(filepath.Join(report, "predict_dev.json"), examples, PairSafely)
	if err != nil {
		t.Fatal(err)
	}
	var results []eval.Result
	for _, ex := range examples {
		score, err := scorer.Score(context.Background(), ex, predictions[ex.ID])
		if err != nil {
			t.Fatal(err)
		}
		results = append(results, eval.Result{Example: ex, Score: score})
	}
	totals := scorer.Totals(results)
	for i, name := range []string{"ex.txt", "minidev_ex.txt", "minidev_f1.txt"} {
		printed, err := os.ReadFile(filepath.Join(report, name))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(strings.TrimSpace(totals[i].Text), "\n") {
			if !strings.Contains(string(printed), strings.TrimRight(line, " ")) {
				t.Errorf("%s: no line %q; official:\n%s", name, line, printed)
			}
		}
	}
}

// reportExamples builds the dataset of the oracle's report from its gold lines and difficulty file.
func reportExamples(t *testing.T, report, databases string) []eval.Example {
	t.Helper()
	gold, err := os.ReadFile(filepath.Join(report, "dev_gold.sql"))
	if err != nil {
		t.Fatal(err)
	}
	levels := rows[question](t, filepath.Join(report, "dev.jsonl"))
	var examples []eval.Example
	for i, line := range strings.Split(strings.TrimRight(string(gold), "\n"), "\n") {
		sql, db, _ := strings.Cut(line, "\t")
		examples = append(examples, eval.Example{ID: levels[i].id(i), Index: i, DB: db, Gold: sql,
			Database: filepath.Join(databases, db, db+".sqlite"), Difficulty: levels[i].Difficulty})
	}
	return examples
}

func TestTimingOracle(t *testing.T) {
	type timing struct {
		ID     string
		Times  [][2]float64 `json:"times_pred_gold"`
		Ratio  any          `json:"time_ratio"`
		Reward any
	}
	for _, row := range rows[timing](t, testenv.Oracles(t, "eval", "bird", "ves.jsonl")) {
		var pred, gold []float64
		for _, pair := range row.Times {
			pred, gold = append(pred, pair[0]), append(gold, pair[1])
		}
		ratio, err := timeRatio(pred, gold)
		want, isNumber := row.Ratio.(float64)
		if isNumber != (err == nil) || isNumber && ratio != want {
			t.Errorf("%s: ratio %v, %v; official %v", row.ID, ratio, err, row.Ratio)
		}
		if want, isNumber := row.Reward.(float64); isNumber && err == nil && reward(ratio) != want {
			t.Errorf("%s: reward %v, official %v", row.ID, reward(ratio), want)
		}
	}
}

// Inputs on which official scripts do not end: here each ends in time, with a verdict that says what theirs would do.
func TestHangCases(t *testing.T) {
	scorer, dir := newTestScorer(t, 300*time.Millisecond)
	for _, row := range rows[pairRow](t, testenv.OracleInputs(t, "eval", "hang_cases.jsonl")) {
		score, err := scorer.Score(context.Background(), row.example(dir), row.Pred)
		if err != nil {
			t.Fatal(err)
		}
		if score.Official == eval.TimedOut && score.OfficialNote == "" || score.Official == eval.HarnessError {
			t.Errorf("%s: %s, note %q", row.ID, score.Official, score.OfficialNote)
		}
	}
}

func TestPredictionFiles(t *testing.T) {
	examples := []eval.Example{{ID: "1471", DB: "a"}, {ID: "1472", DB: "a"}, {ID: "1480", DB: "b"}}
	for _, c := range []struct {
		name, file string
		pairing    Pairing
		want       map[string]string
		err        string
	}{
		{"indices", `{"0":"x\t----- bird -----\ta","1":"y\t----- bird -----\ta","2":"z\t----- bird -----\tb"}`, PairSafely, map[string]string{"1471": "x", "1472": "y", "1480": "z"}, ""},
		{"question ids", `{"1471":"x","1480":"z\t----- bird -----\tb"}`, PairSafely, map[string]string{"1471": "x", "1480": "z"}, ""},
		{"no text", `{"0":0,"1":"y","2":null}`, PairSafely, map[string]string{"1471": "", "1472": "y", "1480": ""}, ""},
		{"keys sorted as text", `{"0":"x","2":"z","1":"y"}`, PairSafely, nil, "not in the questions' order"},
		{"keys sorted as text, by key", `{"0":"x","2":"z","1":"y"}`, PairByKey, map[string]string{"1471": "x", "1472": "y", "1480": "z"}, ""},
		{"by position", `{"7":"x","2":"z"}`, PairByPosition, map[string]string{"1471": "x", "1472": "z"}, ""},
		{"another database", `{"0":"x\t----- bird -----\tb"}`, PairSafely, nil, "is for database b, but question 1471 is about a"},
		{"foreign keys", `{"q1":"x"}`, PairSafely, nil, "neither indices"},
		{"no object", `["x"]`, PairSafely, nil, "no BIRD prediction file"},
		{"cut off", `{"0":"x"`, PairSafely, nil, "no BIRD prediction file"},
	} {
		path := filepath.Join(t.TempDir(), "predict.json")
		if err := os.WriteFile(path, []byte(c.file), 0o644); err != nil {
			t.Fatal(err)
		}
		got, err := ReadPredictions(path, examples, c.pairing)
		if c.err == "" && err != nil || c.err != "" && (err == nil || !strings.Contains(err.Error(), c.err)) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.err)
		}
		if c.err == "" && !maps.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// Every published prediction file of mini-dev and dev pairs with its questions.
func TestPublishedPredictions(t *testing.T) {
	data := testenv.Shared(t, "data", "bird")
	files, _ := filepath.Glob(filepath.Join(data, "predictions", "*.json"))
	if len(files) == 0 {
		t.Fatal("no prediction file")
	}
	for _, path := range files {
		split := "dev"
		if strings.Contains(path, "mini_dev") {
			split = "mini_dev_sqlite"
		}
		d, err := Load(data, split)
		if err != nil {
			t.Fatal(err)
		}
		predictions, err := ReadPredictions(path, d.Examples, PairSafely)
		if err != nil {
			t.Error(err)
		} else if len(predictions) != len(d.Examples) {
			t.Errorf("%s: %d predictions for %d questions", path, len(predictions), len(d.Examples))
		}
		if d.RequireDatabases(d.Examples) == nil {
			t.Errorf("%s: databases that are not there were found", split)
		}
	}
}

// A download with descriptions beside its databases.
func TestLoad(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, err := Load(dir, "")
	if err == nil || !strings.Contains(err.Error(), "missing  questions: looked for "+filepath.Join(dir, "dev.json")) {
		t.Errorf("an empty folder: %v", err)
	}
	write("dev_20240627/dev.json", `[{"question_id": 7, "db_id": "a", "question": "q", "evidence": "e", "SQL": "SELECT 1", "difficulty": "simple"}, {"db_id": "b", "question": "r", "SQL": "SELECT 2"}]`)
	write("dev_20240627/dev_databases/a/a.sqlite", "x")
	write("dev_20240627/dev_databases/a/database_description/t.csv", "original_column_name\n")
	d, err := Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	a, b := d.Examples[0], d.Examples[1]
	if a.ID != "7" || b.ID != "1" || a.Evidence != "e" || a.Difficulty != "simple" || !strings.HasSuffix(a.Descriptions, "database_description") || b.Descriptions != "" {
		t.Errorf("%+v", d.Examples)
	}
	if d.RequireDatabases(d.Examples[:1]) != nil {
		t.Error("the database of question 7 is there")
	}
	if err := d.RequireDatabases(d.Examples); err == nil || !strings.Contains(err.Error(), "missing  database b: looked for") {
		t.Errorf("the database of question 1 is not there: %v", err)
	}
	write("dev_20240627/dev_databases/a/database_description/t.csv", "original_column_name\nx\n")
	if other, err := Load(dir, ""); err != nil || other.Digest == d.Digest {
		t.Errorf("other descriptions, which are in the prompt, have the same digest: %v", err)
	}
	if err := os.Remove(filepath.Join(dir, "dev_20240627/dev_databases/a/database_description/t.csv")); err != nil {
		t.Fatal(err)
	}
	if d, err = Load(dir, ""); err != nil || d.Examples[0].Descriptions != "" {
		t.Errorf("an empty folder is no descriptions: %v", err)
	}
	if err := d.RequireDatabases(d.Examples); err == nil || !strings.Contains(err.Error(), "with --ids (1, such as 7)") {
		t.Errorf("the question that can be run is not told: %v", err)
	}
	write("dev_20240627/dev.json", `[{"db_id": "a", "question": "q", "query": "SELECT 1", "sql": {"from": {}}}]`)
	if _, err := Load(dir, ""); err == nil || !strings.Contains(err.Error(), "give --dataset spider") {
		t.Errorf("Spider's file: %v", err)
	}
	if _, err := Load(filepath.Join(dir, "dev_20240627/dev.json"), ""); err == nil || !strings.Contains(err.Error(), "is no folder") {
		t.Errorf("a file in place of the folder: %v", err)
	}
	write("dev_20240627/dev.json", `{"0": "x"}`)
	if _, err := Load(dir, ""); err == nil || !strings.Contains(err.Error(), "no list of BIRD questions") {
		t.Errorf("another file: %v", err)
	}
}

func FuzzPredictions(f *testing.F) {
	f.Add(`{"0":"x\t----- bird -----\ta"}`)
	f.Add(`{"0":{"a":[1]},"0":2}`)
	examples := []eval.Example{{ID: "7", DB: "a"}}
	f.Fuzz(func(t *testing.T, text string) {
		path := filepath.Join(t.TempDir(), "predict.json")
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		predictions, err := ReadPredictions(path, examples, PairSafely)
		if err == nil && len(predictions) > len(examples) {
			t.Errorf("%d predictions for %d questions", len(predictions), len(examples))
		}
	})
}
