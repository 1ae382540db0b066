package cli

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/eval"
	"quern/eval/bird"
	"quern/eval/spider"
	"quern/eval/spider2"
	"quern/internal/progress"
)

type evalScoreOptions struct {
	dataFlags
	gradeFlags
	predictions string
	out         string
	pairing     string
	files       spider.Files
}

func evalScoreCommand(env Env) *cli.Command {
	var o evalScoreOptions
	flags := append(o.dataFlags.flags(), o.gradeFlags.flags()...)
	return &cli.Command{
		Name: "score", Usage: "score a file or folder of predictions as the official scripts do", ArgsUsage: "PREDICTIONS",
		Description: `PREDICTIONS is one of: a results file of eval run; Spider's text file (one SQL a line); BIRD's JSON; a Spider2 folder of .sql or
.csv files; another harness's JSON or JSONL. The official tables go to stdout; --out keeps every verdict for eval report.`,
		Flags: append(flags,
			&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "results `FILE` to write", Destination: &o.out},
			&cli.StringFlag{Name: "pair-by", Usage: "bird: pair predictions by key or by position, also where the two disagree", Destination: &o.pairing},
			&cli.StringFlag{Name: "mode", Usage: "spider2: sql or exec_result, for a folder with both", Destination: (*string)(&o.mode)},
			&cli.StringFlag{Name: "gold", Usage: "spider: gold `FILE` of lines SQL<TAB>database (default: the dataset's)", Destination: &o.files.Gold},
			&cli.StringFlag{Name: "db", Usage: "spider: `DIR` with database/<db>/<db>.sqlite (default: the dataset's)", Destination: &o.files.Databases},
			&cli.StringFlag{Name: "table", Usage: "spider: tables.json (default: the dataset's)", Destination: &o.files.Tables},
		),
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("score takes one file or folder of predictions: quern eval score --dataset spider --data DIR predictions.txt")
			}
			o.predictions = c.Args().First()
			return scorePredictions(c.Context, env, o)
		},
	}
}

func scorePredictions(ctx context.Context, env Env, o evalScoreOptions) error {
	if err := o.check(); err != nil {
		return err
	}
	exec, err := eval.NewExecutor(o.workers, o.deadlines)
	if err != nil {
		return err
	}
	defer exec.Close()
	if o.dataset == eval.Spider && isSpiderText(o.predictions) {
		return scoreSpiderText(ctx, env, o, exec)
	}
	if o.dataset == eval.Spider2 && o.split == "" && holdsTables(o.predictions, o.mode) {
		o.split = spider2.All // tables can be compared without a database
	}
	bench, err := o.open()
	if err != nil {
		return err
	}
	examples, selection, err := o.selected(bench.Dataset)
	if err != nil {
		return err
	}
	if !bench.hasGold(examples) {
		return fmt.Errorf("%s of %s holds no gold to score by", bench.Split, bench.Dir)
	}
	stored, mode, err := readPredictions(o, bench)
	if err != nil {
		return err
	}
	o.mode = mode
	given := having(examples, stored)
	if len(given) == 0 {
		return fmt.Errorf("%s holds no prediction for the chosen questions", o.predictions)
	}
	if missing := len(examples) - len(given); missing > 0 {
		fmt.Fprintf(env.Stderr, "quern: %d of %d questions have no prediction and are left out\n", missing, len(examples))
		selection += fmt.Sprintf(", %d with a prediction", len(given))
	}
	if mode != spider2.CSVMode {
		if err := bench.RequireDatabases(given); err != nil {
			return err
		}
	}
	scorer, err := bench.scorer(exec, o.benchmarkOptions)
	if err != nil {
		return err
	}
	manifest, err := scoreManifest(o, bench.Dataset, selection)
	if err != nil {
		return err
	}
	return gradeStored(ctx, env, manifest, given, stored, scorer, exec, o.out)
}

// check refuses words that mean nothing.
func (o *evalScoreOptions) check() error {
	for _, f := range []struct {
		name, value string
		words       []string
	}{
		{"--mode", string(o.mode), []string{string(spider2.SQLMode), string(spider2.CSVMode)}},
		{"--pair-by", o.pairing, []string{string(bird.PairByKey), string(bird.PairByPosition)}},
	} {
		if f.value != "" && !slices.Contains(f.words, f.value) {
			return usagef("%s %s: want %s", f.name, f.value, strings.Join(f.words, " or "))
		}
	}
	return o.gradeFlags.check()
}

// holdsTables reports whether a Spider2 submission is one of CSV files.
func holdsTables(path string, mode spider2.Mode) bool {
	_, mode, err := spider2.ReadPredictions(path, mode)
	return err == nil && mode == spider2.CSVMode
}

// gradeStored scores predictions that were made before, writes the results file, and prints the official tables.
func gradeStored(ctx context.Context, env Env, m eval.Manifest, examples []eval.Example, stored eval.Stored, scorer eval.Scorer, exec *eval.Executor, out string) error {
	if out == "" {
		temp, err := os.CreateTemp("", "quern-score-*.jsonl")
		if err != nil {
			return err
		}
		temp.Close()
		defer os.Remove(temp.Name())
		out = temp.Name()
	}
	line := progress.New(env.Stderr, "scoring", "questions")
	_, err := eval.Run(ctx, m, examples, stored, scorer, exec, eval.RunOptions{
		Lanes: runtime.NumCPU(), Out: out, Progress: func(p eval.Progress) { line.Set(int64(p.Done), int64(p.Total)) }})
	line.Done("")
	if err != nil {
		return err
	}
	file, err := eval.ReadResults(out)
	if err != nil {
		return err
	}
	return printTables(env, scorer.Totals(file.Results))
}

func printTables(env Env, tables []eval.Totals) error {
	for i, t := range tables {
		if i > 0 {
			fmt.Fprintln(env.Stdout)
		}
		if _, err := fmt.Fprintf(env.Stdout, "%s\n%s", t.Title, t.Text); err != nil {
			return err
		}
	}
	return nil
}

// having are the examples that have a prediction.
func having(examples []eval.Example, stored eval.Stored) []eval.Example {
	var out []eval.Example
	for _, ex := range examples {
		if _, given := stored[ex.ID]; given {
			out = append(out, ex)
		}
	}
	return out
}

// isSpiderText tells Spider's prediction file, SQL line by line, from JSON.
func isSpiderText(path string) bool {
	if info, err := os.Stat(path); err != nil || info.IsDir() {
		return false
	}
	data, err := os.ReadFile(path)
	start := strings.TrimLeft(string(data[:min(len(data), 4096)]), " \t\r\n\ufeff")
	return err == nil && !strings.HasPrefix(start, "{") && !strings.HasPrefix(start, "[")
}

// readPredictions reads what there is by its form.
func readPredictions(o evalScoreOptions, b *benchmark) (eval.Stored, spider2.Mode, error) {
	info, err := os.Stat(o.predictions)
	if err != nil {
		return nil, "", err
	}
	if info.IsDir() {
		if b.Name != eval.Spider2 {
			return nil, "", usagef("%s is a folder, which only spider2 has predictions in", o.predictions)
		}
		texts, mode, err := spider2.ReadPredictions(o.predictions, o.mode)
		return storedTexts(texts), mode, err
	}
	if eval.IsResultsFile(o.predictions) {
		file, err := eval.ReadResults(o.predictions)
		if err != nil {
			return nil, "", err
		}
		return storedResults(file, b.Dataset)
	}
	if b.Name == eval.BIRD && isBIRDFile(o.predictions) {
		texts, err := bird.ReadPredictions(o.predictions, b.Examples, bird.Pairing(o.pairing))
		return storedTexts(texts), spider2.SQLMode, err
	}
	stored, err := eval.ReadHarness(o.predictions, b.Examples)
	return stored, spider2.SQLMode, err
}

// isBIRDFile tells BIRD's one object of texts from other harnesses' JSON.
func isBIRDFile(path string) bool {
	data, err := os.ReadFile(path)
	start := strings.TrimLeft(string(data), " \t\r\n")
	if err != nil || !strings.HasPrefix(start, "{") {
		return false
	}
	for _, ending := range []string{`"`, "null", "0"} {
		_, rest, found := strings.Cut(start[1:], ":")
		if found && strings.HasPrefix(strings.TrimSpace(rest), ending) {
			return true
		}
	}
	return false
}

func storedTexts(texts map[string]string) eval.Stored {
	stored := eval.Stored{}
	for id, text := range texts {
		stored[id] = eval.Prediction{SQL: text}
	}
	return stored
}

// storedResults takes the predictions of a results file, on the same questions only.
func storedResults(file *eval.ResultsFile, d *eval.Dataset) (eval.Stored, spider2.Mode, error) {
	byID := map[string]eval.Example{}
	for _, ex := range d.Examples {
		byID[ex.ID] = ex
	}
	stored := eval.Stored{}
	for _, r := range file.Results {
		if ex, known := byID[r.ID]; !known || ex.DB != r.DB || ex.Question != r.Question {
			return nil, "", fmt.Errorf("%s: question %s is not one of this dataset", file.Path, r.ID)
		}
		stored[r.ID] = r.Prediction
	}
	return stored, spider2.SQLMode, nil
}

// scoreSpiderText scores a text file line by line, as the official command line does, multi-turn files too.
func scoreSpiderText(ctx context.Context, env Env, o evalScoreOptions, exec *eval.Executor) error {
	files, manifest, err := spiderFiles(o)
	if err != nil {
		return err
	}
	line := progress.New(env.Stderr, "scoring", "questions")
	result, err := spider.ScoreFiles(ctx, exec, files, o.spider, runtime.NumCPU(), func(done, total int) { line.Set(int64(done), int64(total)) })
	line.Done("")
	if err != nil {
		return err
	}
	if o.out != "" {
		if err := writeResults(o.out, manifest, result.Results); err != nil {
			return err
		}
	}
	fmt.Fprint(env.Stdout, result.Text)
	for _, note := range []string{result.Ends, result.LegacyEnds} {
		if note != "" {
			fmt.Fprintf(env.Stderr, "quern: the official script prints no totals here: %s\n", note)
		}
	}
	_, err = fmt.Fprint(env.Stdout, result.Legacy)
	return err
}

// spiderFiles are the files of the command line, the dataset's where none is given.
func spiderFiles(o evalScoreOptions) (spider.Files, eval.Manifest, error) {
	files := o.files
	files.Pred = o.predictions
	d := &eval.Dataset{Name: eval.Spider}
	if files.Gold == "" || files.Databases == "" || files.Tables == "" {
		bench, err := o.open()
		if err != nil {
			return files, eval.Manifest{}, err
		}
		d = bench.Dataset
		files.Tables = first(files.Tables, spider.Tables(d))
		files.Databases = first(files.Databases, filepath.Dir(filepath.Dir(d.Examples[0].Database)))
		files.Gold = first(files.Gold, filepath.Join(d.Dir, strings.TrimSuffix(d.Split, ".json")+"_gold.sql"))
	}
	manifest, err := scoreManifest(o, d, "lines of "+filepath.Base(files.Gold))
	return files, manifest, err
}

func first(a, b string) string {
	if a != "" {
		return a
	}
	return b
}

func writeResults(path string, m eval.Manifest, results []eval.Result) error {
	var lines [][]byte
	for _, r := range results {
		line, err := eval.EncodeResult(r)
		if err != nil {
			return err
		}
		lines = append(lines, line)
	}
	return eval.WriteResults(path, m, lines)
}

// scoreManifest describes scores of predictions that were made elsewhere.
func scoreManifest(o evalScoreOptions, d *eval.Dataset, selection string) (eval.Manifest, error) {
	m := baseManifest(d, selection)
	m.Flags["predictions"] = filepath.Base(o.predictions)
	if info, err := os.Stat(o.predictions); err == nil && !info.IsDir() {
		data, err := os.ReadFile(o.predictions)
		if err != nil {
			return m, err
		}
		sum := sha256.Sum256(data)
		m.Flags["predictions_sha256"] = hex.EncodeToString(sum[:])
	}
	o.gradeFlags.describe(m.Flags)
	return m, nil
}

// baseManifest is what every run of this program shares.
func baseManifest(d *eval.Dataset, selection string) eval.Manifest {
	v := version()
	return eval.Manifest{
		Format: eval.FormatVersion, Quern: v.Version + " (" + v.Commit + ")", SQLite: v.SQLite.Version, SQLiteOptions: v.SQLite.CompileOptions,
		Dataset: d.Name, Split: d.Split, DatasetDigest: d.Digest, Selection: selection, Flags: map[string]string{},
	}
}

// check refuses settings that mean nothing.
func (f *gradeFlags) check() error {
	switch {
	case !slices.Contains([]string{spider.All, spider.Exec, spider.Match}, f.spider.Type):
		return usagef("--etype %s: want %s, %s or %s", f.spider.Type, spider.All, spider.Exec, spider.Match)
	case f.ves < 0:
		return usagef("--ves %d: must be 0 or above", f.ves)
	case f.workers < 0:
		return usagef("--workers %d: must be 0 (one per CPU) or above", f.workers)
	case f.deadlines.Prediction < 0 || f.deadlines.Gold < 0:
		return usagef("--score-timeout and --gold-timeout must be above 0, such as 30s")
	}
	return nil
}

// describe puts the settings that decide verdicts into a manifest.
func (f *gradeFlags) describe(flags map[string]string) {
	set := func(name string, value any, isDefault bool) {
		if !isDefault {
			flags[name] = fmt.Sprint(value)
		}
	}
	deadlines := f.deadlines.OrDefault()
	flags["score-timeout"], flags["gold-timeout"] = deadlines.Prediction.String(), deadlines.Gold.String()
	set("etype", f.spider.Type, f.spider.Type == "" || f.spider.Type == spider.All)
	set("plug-value", true, !f.spider.PlugValue)
	set("keep-distinct", true, !f.spider.KeepDistinct)
	set("legacy", true, !f.spider.Legacy)
	set("ves", f.ves, f.ves == 0)
	set("mode", f.mode, f.mode == "" || f.mode == spider2.SQLMode)
}
