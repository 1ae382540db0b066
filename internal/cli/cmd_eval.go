package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/eval"
)

func evalCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "eval",
		Usage: "run a benchmark, score, report and compare: Spider, BIRD, Spider2-lite",
		Subcommands: []*cli.Command{
			evalRunCommand(env),
			evalScoreCommand(env),
			evalReportCommand(env),
			evalCompareCommand(env),
			evalSelftestCommand(env),
			evalMergeCommand(env),
		},
	}
}

// dataFlags say which questions of which dataset.
type dataFlags struct {
	dataset, dir, split string
	n                   int
	ids                 cli.StringSlice
	shard               string
}

func (f *dataFlags) flags() []cli.Flag {
	const group = "Data"
	return []cli.Flag{
		&cli.StringFlag{Name: "dataset", Usage: "spider, bird or spider2", Destination: &f.dataset, Category: group},
		&cli.StringFlag{Name: "data", Usage: "`DIR` with the dataset as downloaded", Destination: &f.dir, Category: group},
		&cli.StringFlag{Name: "split", Usage: "question file in it (spider: dev, Spider-DK, test; bird: dev, mini_dev_sqlite), or local or all for spider2", Destination: &f.split, Category: group},
		&cli.IntFlag{Name: "n", Usage: "only the first so many questions", Destination: &f.n, Category: group},
		&cli.StringSliceFlag{Name: "ids", Usage: "only the questions with these `IDS`, comma-separated, or @FILE with one a line", Destination: &f.ids, Category: group},
		&cli.StringFlag{Name: "shard", Usage: "only part i of n, as `i/n`; eval merge joins the parts", Destination: &f.shard, Category: group},
	}
}

// selected are the chosen examples and what the manifest says of the choice.
func (f *dataFlags) selected(d *eval.Dataset) (examples []eval.Example, selection string, err error) {
	examples, selection = d.Examples, "all"
	if ids, err := f.idList(); err != nil {
		return nil, "", err
	} else if len(ids) > 0 {
		if examples, err = d.Select(ids); err != nil {
			return nil, "", err
		}
		selection = "ids " + strings.Join(exampleIDs(examples), ",")
	}
	if f.n < 0 {
		return nil, "", usagef("--n %d: must be above 0", f.n)
	}
	if f.n > 0 && f.n < len(examples) {
		examples = examples[:f.n]
		selection += fmt.Sprintf(", first %d", f.n)
	}
	if f.shard == "" {
		return examples, selection, nil
	}
	var i, n int
	if _, err := fmt.Sscanf(f.shard+"\n", "%d/%d\n", &i, &n); err != nil || i < 1 || i > n {
		return nil, "", usagef("--shard %s: write i/n with 1 ≤ i ≤ n, such as 2/4", f.shard)
	}
	return eval.Shard(examples, i, n), eval.ShardSelection(selection, i, n), nil
}

// idList reads --ids, with files in place.
func (f *dataFlags) idList() ([]string, error) {
	var ids []string
	for _, id := range f.ids.Value() {
		file, isFile := strings.CutPrefix(id, "@")
		if !isFile {
			ids = append(ids, strings.TrimSpace(id))
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, fmt.Errorf("--ids: %w", err)
		}
		ids = append(ids, strings.Fields(string(text))...)
	}
	return ids, nil
}

func exampleIDs(examples []eval.Example) []string {
	ids := make([]string, len(examples))
	for i, ex := range examples {
		ids[i] = ex.ID
	}
	return ids
}

// gradeFlags say how answers are scored.
type gradeFlags struct {
	workers   int
	deadlines eval.Deadlines
	benchmarkOptions
}

func (f *gradeFlags) flags() []cli.Flag {
	const group = "Scoring"
	return []cli.Flag{
		&cli.IntFlag{Name: "workers", Usage: "processes that execute SQL (default: one per CPU)", Destination: &f.workers, Category: group},
		&cli.DurationFlag{Name: "score-timeout", Usage: "stop a prediction after so long (default 30s)", Destination: &f.deadlines.Prediction, Category: group},
		&cli.DurationFlag{Name: "gold-timeout", Usage: "stop a gold query after so long (default 5m)", Destination: &f.deadlines.Gold, Category: group},
		&cli.StringFlag{Name: "etype", Value: "all", Usage: "spider: all, exec or match", Destination: &f.spider.Type, Category: group},
		&cli.BoolFlag{Name: "plug-value", Aliases: []string{"plug_value"}, Usage: "spider: also try the gold's values in the prediction", Destination: &f.spider.PlugValue, Category: group},
		&cli.BoolFlag{Name: "keep-distinct", Aliases: []string{"keep_distinct"}, Usage: "spider: do not take DISTINCT out of both queries", Destination: &f.spider.KeepDistinct, Category: group},
		&cli.BoolFlag{Name: "legacy", Usage: "spider: also by the older evaluation.py", Destination: &f.spider.Legacy, Category: group},
		&cli.IntFlag{Name: "ves", Usage: "bird: run correct pairs so many times for VES and R-VES (officially 100; 0: not)", Destination: &f.ves, Category: group},
	}
}

// writeJSON writes a documented JSON result.
func writeJSON(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

type evalMergeOptions struct{ out string }

func evalMergeCommand(env Env) *cli.Command {
	var o evalMergeOptions
	return &cli.Command{
		Name: "merge", Usage: "join the results files of all shards of a run", ArgsUsage: "PART…",
		Flags: []cli.Flag{&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "results `FILE` to write", Destination: &o.out}},
		Action: func(c *cli.Context) error {
			if o.out == "" || !c.Args().Present() {
				return usagef("merge needs a file to write and the parts: quern eval merge --out run.jsonl part1.jsonl part2.jsonl")
			}
			return eval.Merge(o.out, c.Args().Slice())
		},
	}
}
