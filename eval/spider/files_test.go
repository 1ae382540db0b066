package spider

import (
	"context"
	"database/sql"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	_ "github.com/mattn/go-sqlite3"
	"quern/eval"
)

// shop makes a small Spider folder of our own: a database, its tables.json and dev.json.
func shop(t testing.TB) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "tables.json"), `[{"db_id": "shop", "table_names_original": ["Item", "Sale"],
		"column_names_original": [[-1, "*"], [0, "ID"], [0, "Name"], [0, "Price"], [1, "Item_ID"], [1, "Amount"]], "foreign_keys": [[4, 1]]}]`)
	write(t, filepath.Join(dir, "dev.json"), `[{"db_id": "shop", "question": "How many items?", "query": "SELECT count(*) FROM item"},
		{"db_id": "shop", "question": "Which names?", "query": "SELECT name FROM item"}]`)
	path := filepath.Join(dir, "database", "shop", "shop.sqlite")
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	db, err := sql.Open("sqlite3", path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, q := range []string{
		"CREATE TABLE Item(ID INTEGER PRIMARY KEY, Name TEXT, Price REAL)", "CREATE TABLE Sale(Item_ID INT REFERENCES Item(ID), Amount INT)",
		"INSERT INTO Item VALUES (1, 'pen', 1.5), (2, 'ink', 3), (3, 'pad', 3)", "INSERT INTO Sale VALUES (1, 10), (2, 5), (2, 5)",
	} {
		if _, err := db.Exec(q); err != nil {
			t.Fatal(q, err)
		}
	}
	return dir
}

func write(t testing.TB, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func scoreTexts(t *testing.T, dir, gold, pred string, opts Options) (*FileReport, error) {
	t.Helper()
	f := Files{Gold: filepath.Join(dir, "gold.txt"), Pred: filepath.Join(dir, "pred.txt"),
		Databases: filepath.Join(dir, "database"), Tables: filepath.Join(dir, "tables.json")}
	write(t, f.Gold, gold)
	write(t, f.Pred, pred)
	return ScoreFiles(context.Background(), newExecutor(t, eval.Deadlines{Prediction: 5 * time.Second}), f, opts, 2, nil)
}

const twoGolds = "SELECT count(*) FROM item\tshop\nSELECT name FROM item\tshop\n"

func verdicts(r *FileReport) string {
	var out []string
	for _, result := range r.Results {
		out = append(out, string(result.Score.Official))
	}
	return strings.Join(out, " ")
}

func TestScoreFiles(t *testing.T) {
	dir := shop(t)
	for name, c := range map[string]struct {
		gold, pred string
		want       string // official verdicts
		ends       string // part of Ends
		count      string // in the totals' last column
	}{
		"right":          {twoGolds, "select COUNT(id) from item\nSELECT name FROM item\textra", "correct correct", "", "2"},
		"windows lines":  {twoGolds, "SELECT count(*) FROM item\r\nSELECT name FROM item\r\n", "correct correct", "", "2"},
		"blank first":    {twoGolds, "\nSELECT name FROM item\n", "prediction_failed correct", "interactions", "2"},
		"blank last":     {twoGolds, "SELECT count(*) FROM item\n\n", "correct prediction_failed", "", "1"},
		"short file":     {twoGolds, "SELECT count(*) FROM item\n", "correct prediction_failed", "", "1"},
		"gold not known": {"SELECT count(*) FROM item WHERE name IS NULL\tshop\n", "SELECT 0\n", "correct", "line 1 of the gold file: AssertionError", "0"},
		"gold fails":     {"SELECT count(*) FROM item WHERE nosuch(name) = 1\tshop\n", "SELECT 0\n", "gold_failed", "AssertionError", "0"},
	} {
		report, err := scoreTexts(t, dir, c.gold, c.pred, Options{Type: Exec})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got := verdicts(report); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
		if (c.ends == "") != (report.Ends == "") || !strings.Contains(report.Ends, c.ends) {
			t.Errorf("%s: ends %q, want %q", name, report.Ends, c.ends)
		}
		if count := strings.Fields(strings.Split(report.Text, "\n")[1])[5]; count != c.count {
			t.Errorf("%s: counts %s, want %s\n%s", name, count, c.count, report.Text)
		}
	}
}

func TestScoreFilesErrors(t *testing.T) {
	dir := shop(t)
	for name, c := range map[string][3]string{
		"three fields":        {"SELECT 1\tshop\tx\n", "SELECT 1\n", "line 1 has 3 fields"},
		"no database":         {"SELECT 1 FROM item\tnosuch\n", "SELECT 1\n", "nosuch.sqlite"},
		"more predictions":    {twoGolds, "SELECT 1\nSELECT 2\nSELECT 3\n", "3 lines"},
		"other interactions":  {"SELECT name FROM item\tshop\n\n" + twoGolds, twoGolds, "interactions"},
		"no gold":             {"\n", "SELECT 1\n", "no gold"},
		"not UTF-8":           {twoGolds, "SELECT '\xff'\n", "UTF-8"},
		"unknown kind of run": {twoGolds, twoGolds, "unknown kind"},
	} {
		opts := Options{Type: Exec}
		if name == "unknown kind of run" {
			opts.Type = "exact"
		}
		if _, err := scoreTexts(t, dir, c[0], c[1], opts); err == nil || !strings.Contains(err.Error(), c[2]) {
			t.Errorf("%s: %v, want %q", name, err, c[2])
		}
	}
}

// The older script drops blank lines, so that later predictions move up.
func TestLegacyShift(t *testing.T) {
	report, err := scoreTexts(t, shop(t), twoGolds, "\nSELECT name FROM item\n", Options{Type: Exec, Legacy: true})
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Fields(strings.Split(report.Legacy, "\n")[1]); got[5] != "1" {
		t.Errorf("the older script counts %s pairs, want 1\n%s", got[5], report.Legacy)
	}
}

// Interactions are right when all their turns are; turns are counted by their position.
func TestMultiTurn(t *testing.T) {
	gold := twoGolds + "\n" + twoGolds
	report, err := scoreTexts(t, shop(t), gold, "SELECT count(*) FROM item\nSELECT name FROM item\n\nSELECT 1\nSELECT name FROM item\n", Options{Type: Exec})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"count                4                    0                    0                    0                    4                    2                   \n",
		"execution            0.750                0.000                0.000                0.000                0.750                0.500               \n",
		"execution            0.500                1.000                0.000                0.000                0.000               \n",
	} {
		if !strings.Contains(report.Text, want) {
			t.Errorf("no line %q in\n%s", want, report.Text)
		}
	}
}

// What the official script would have done is said, the verdict is as there, and the file stays as it is.
func TestOfficialNotes(t *testing.T) {
	dir := shop(t)
	before := folderHash(t, dir)
	exec := newExecutor(t, eval.Deadlines{Prediction: 400 * time.Millisecond})
	wide := "SELECT name" + strings.Repeat(" , id , price", 7) + " FROM item"
	swapped := "SELECT name" + strings.Repeat(" , price , id", 7) + " FROM item"
	for name, c := range map[string]struct {
		gold, pred string
		plug       bool
		want       eval.Verdict
		strict     eval.Verdict
		note       string
	}{
		"drop":            {"SELECT name FROM item", "DROP TABLE item", false, eval.Wrong, eval.Refused, "for good"},
		"drop, plugged":   {"SELECT name FROM item", "DROP TABLE item", true, eval.Wrong, eval.Refused, "AssertionError"},
		"delete":          {"SELECT name FROM item WHERE id = 9", "DELETE FROM item", false, eval.Correct, eval.Refused, "takes it back"},
		"temp":            {"SELECT name FROM item WHERE id = 9", "CREATE TEMP TABLE item(name)", false, eval.Correct, eval.Refused, "takes it back"},
		"attach":          {"SELECT name FROM item WHERE id = 9", "ATTACH 'other.sqlite' AS o", false, eval.Correct, eval.Refused, "other file"},
		"endless":         {"SELECT name FROM item", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT count(*) FROM c", false, eval.TimedOut, eval.TimedOut, "no time limit"},
		"column orders":   {wide, swapped, false, eval.Correct, eval.Wrong, "orders of columns"},
		"many variants":   {"SELECT name FROM item WHERE id = 1 OR id = 12 OR id = 13 OR id = 14 OR id = 15 OR id = 16", "SELECT id FROM item WHERE price > 0 AND id != 21 AND id != 22 AND id != 23 AND id != 24 AND id != 25 AND id != 26", true, eval.Wrong, eval.Wrong, "variants"},
		"no SQL":          {"SELECT name FROM item", " ", false, eval.PredictionFailed, eval.PredictionFailed, "blank line"},
		"two statements":  {"SELECT name FROM item", "SELECT name FROM item; DROP TABLE item", false, eval.Correct, eval.PredictionFailed, ""},
		"several lines":   {"SELECT name FROM item", "SELECT name -- all\nFROM\titem", false, eval.Correct, eval.Correct, ""},
		"distinct":        {"SELECT price FROM item", "SELECT DISTINCT price FROM item", false, eval.Correct, eval.Wrong, ""},
		"order not asked": {"SELECT name FROM item", "SELECT name FROM item ORDER BY name", false, eval.Correct, eval.Correct, ""},
		"order asked":     {"SELECT name FROM item ORDER BY id", "SELECT name FROM item ORDER BY name", false, eval.Wrong, eval.Wrong, ""},
		"value in a name": {"SELECT name FROM item", "SELECT name AS value FROM item", false, eval.Wrong, eval.Correct, ""},
	} {
		s := newScorer(t, exec, filepath.Join(dir, "tables.json"), Options{Type: Exec, PlugValue: c.plug})
		ex := eval.Example{ID: name, DB: "shop", Gold: c.gold, Database: filepath.Join(dir, "database", "shop", "shop.sqlite")}
		score, err := s.Score(context.Background(), ex, c.pred)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if score.Official != c.want || !strings.Contains(score.OfficialNote, c.note) || c.note == "" && score.OfficialNote != "" {
			t.Errorf("%s: %s %q %s, want %s and a note on %q", name, score.Official, score.OfficialNote, score.Message, c.want, c.note)
		}
		if score.Strict != c.strict {
			t.Errorf("%s: strictly %s %s, want %s", name, score.Strict, score.StrictNote, c.strict)
		}
	}
	if folderHash(t, dir) != before {
		t.Error("a file was changed or made")
	}
}

// What fails on our side is no verdict: the score says so, and the totals leave the question out.
func TestHarnessFailure(t *testing.T) {
	dir := shop(t)
	exec := newExecutor(t, eval.Deadlines{})
	s := newScorer(t, exec, filepath.Join(dir, "tables.json"), Options{})
	ex := eval.Example{ID: "0", DB: "shop", Gold: "SELECT name FROM item", Database: filepath.Join(dir, "database", "shop", "shop.sqlite")}
	right, err := s.Score(context.Background(), ex, ex.Gold)
	if err != nil || !right.Right() {
		t.Fatalf("%+v %v", right, err)
	}
	exec.Close()
	broken, err := s.Score(context.Background(), ex, "SELECT price FROM item")
	if err != nil || broken.Official != eval.HarnessError || broken.Message == "" {
		t.Errorf("%+v %v, want a harness error", broken, err)
	}
	totals := s.Totals([]eval.Result{{Example: ex, Score: right}, {Example: ex, Score: broken}})
	if count := strings.Fields(strings.Split(totals[0].Text, "\n")[1])[5]; count != "1" {
		t.Errorf("the totals count %s questions, want 1\n%s", count, totals[0].Text)
	}
}

// Totals made of a results file that was read back are those that were printed.
func TestTotalsFromResults(t *testing.T) {
	for _, opts := range []Options{{Type: All, Legacy: true}, {Type: Exec}, {Type: Match}} {
		report, err := scoreTexts(t, shop(t), twoGolds+"\n"+twoGolds, "SELECT count(*) FROM item\nSELECT name FROM item\n\nSELECT 1\nSELECT name FROM item\n", opts)
		if err != nil {
			t.Fatal(err)
		}
		var lines [][]byte
		for _, r := range report.Results {
			line, err := eval.EncodeResult(r)
			if err != nil {
				t.Fatal(err)
			}
			lines = append(lines, line)
		}
		path := filepath.Join(t.TempDir(), "results.jsonl")
		if err := eval.WriteResults(path, eval.Manifest{Format: eval.FormatVersion}, lines); err != nil {
			t.Fatal(err)
		}
		back, err := eval.ReadResults(path)
		if err != nil {
			t.Fatal(err)
		}
		totals := new(Scorer).Totals(back.Results)
		if totals[0].Text != report.Text || opts.Legacy && totals[1].Text != report.Legacy {
			t.Errorf("%+v\n got:\n%s\nwant:\n%s", opts, totals[0].Text, report.Text)
		}
	}
}

// A prediction has to be right on every file of a test suite, whatever follows ".sqlite" in its name.
func TestSuiteFiles(t *testing.T) {
	dir := shop(t)
	folder := filepath.Join(dir, "database", "shop")
	data, err := os.ReadFile(filepath.Join(folder, "shop.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(folder, "shop_2.sqlite.bak")
	write(t, other, string(data))
	write(t, filepath.Join(folder, "notes.db"), "no database")
	db, err := sql.Open("sqlite3", other)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Exec("INSERT INTO item VALUES (4, 'pen', 9)"); err != nil {
		t.Fatal(err)
	}
	db.Close()
	exec := newExecutor(t, eval.Deadlines{})
	s := newScorer(t, exec, filepath.Join(dir, "tables.json"), Options{})
	ex := eval.Example{DB: "shop", Gold: "SELECT count(*) FROM item", Database: filepath.Join(folder, "shop.sqlite")}
	for pred, want := range map[string]eval.Verdict{"SELECT count(name) FROM item": eval.Correct, "SELECT 3": eval.Wrong} {
		score, err := s.Score(context.Background(), ex, pred)
		if err != nil || score.Official != want || score.Strict != want {
			t.Errorf("%s: %+v %v, want %s", pred, score, err, want)
		}
	}
}

func TestLoad(t *testing.T) {
	dir := shop(t)
	d, err := Load(dir, "")
	if err != nil {
		t.Fatal(err)
	}
	if len(d.Examples) != 2 || d.Examples[1].ID != "1" || d.Examples[1].Gold != "SELECT name FROM item" || d.RequireDatabases(d.Examples) != nil {
		t.Errorf("dataset %+v", d)
	}
	write(t, filepath.Join(dir, "dev_gold.sql"), "SELECT count(*) FROM Item\tshop\nSELECT Name FROM Item\tshop\n")
	if d, err = Load(dir, "dev"); err != nil || d.Examples[1].Gold != "SELECT Name FROM Item" {
		t.Errorf("the gold file is not taken: %+v %v", d, err)
	}
	write(t, filepath.Join(dir, "dev_gold.sql"), "SELECT count(*) FROM Item\tshop\n")
	if _, err := Load(dir, "dev"); err == nil || !strings.Contains(err.Error(), "do not belong together") {
		t.Errorf("one gold for two questions: %v", err)
	}
	write(t, filepath.Join(dir, "other.json"), `[{"question_id": 0, "db_id": "shop", "question": "q", "SQL": "SELECT 1"}]`)
	if _, err := Load(dir, "other"); err == nil || !strings.Contains(err.Error(), "give --dataset bird") {
		t.Errorf("BIRD's file: %v", err)
	}
	os.Remove(filepath.Join(dir, "dev_gold.sql"))
	os.Remove(filepath.Join(dir, "tables.json"))
	var layout *eval.LayoutError
	if _, err := Load(dir, ""); !errors.As(err, &layout) || !strings.Contains(err.Error(), "tables.json") {
		t.Errorf("without tables.json: %v", err)
	}
	if _, err := Load(t.TempDir(), ""); !errors.As(err, &layout) || !strings.Contains(err.Error(), "Spider-DK.json") {
		t.Errorf("an empty folder: %v", err)
	}
}

func TestReadPredictions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "pred.txt")
	examples := []eval.Example{{ID: "0"}, {ID: "1"}, {ID: "2"}}
	write(t, path, "SELECT 1\tx\r\n\nSELECT 3\n\n\n")
	got, err := ReadPredictions(path, examples)
	if err != nil || got["0"] != "SELECT 1" || got["1"] != "" || got["2"] != "SELECT 3" {
		t.Errorf("%q %v", got, err)
	}
	write(t, path, "SELECT 1\nSELECT 2\n")
	if _, err := ReadPredictions(path, examples); err == nil || !strings.Contains(err.Error(), "2 lines for 3 questions") {
		t.Errorf("a short file: %v", err)
	}
}

// The parser of foreign text: it ends, and says no more than that a query is not Spider's.
func FuzzParse(f *testing.F) {
	schema := newSchema([]string{"item", "sale"}, map[string][]string{"item": {"id", "name", "price"}, "sale": {"item_id", "amount"}})
	for _, s := range []string{"SELECT name FROM item AS T1 JOIN sale AS T2 ON T1.id = T2.item_id WHERE price > 'x' OR NOT id",
		"SELECT max(price) - min(price) FROM (SELECT * FROM item) UNION SELECT ( id ) FROM item ORDER BY id DESC LIMIT", "= as", "\" \" as", "select from"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, query string) {
		for _, legacy := range []bool{false, true} {
			sql, failure := parse(query, schema, legacy)
			if (sql == nil) == (failure == nil) {
				t.Fatalf("%q: %v %v", query, sql, failure)
			}
			if sql == nil {
				continue
			}
			if _, failure := hardness(sql); failure != nil {
				continue
			}
			again, _ := parse(query, schema, legacy)
			if !equalSQL(sql, again) && !strings.Contains(strings.ToLower(query), "nan") {
				t.Fatalf("%q is not equal to itself", query)
			}
			if normalize(sql, nil) == nil && normalize(again, nil) == nil {
				if exact, _, failure := match(again, sql); failure == nil && !exact && !strings.Contains(strings.ToLower(query), "nan") {
					t.Fatalf("%q does not match itself", query)
				}
			}
		}
	})
}
