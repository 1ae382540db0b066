package cli

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"quern/eval"
	"quern/eval/bird"
	"quern/eval/spider"
	"quern/eval/spider2"
)

// benchmark is an open dataset with its own rules.
type benchmark struct {
	*eval.Dataset
	gold *spider2.Gold // spider2 only
}

// benchmarkOptions are the rules' settings.
type benchmarkOptions struct {
	spider spider.Options
	ves    int          // bird
	mode   spider2.Mode // spider2
}

// openBenchmark reads a dataset.
func (f *dataFlags) open() (*benchmark, error) {
	if f.dir == "" {
		return nil, usagef("--data is missing: the folder with the dataset as downloaded")
	}
	return loadBenchmark(f.dataset, f.dir, f.split)
}

func loadBenchmark(name, dir, split string) (b *benchmark, err error) {
	b = &benchmark{}
	switch name {
	case eval.Spider:
		b.Dataset, err = spider.Load(dir, split)
	case eval.BIRD:
		b.Dataset, err = bird.Load(dir, split)
	case eval.Spider2:
		b.Dataset, b.gold, err = spider2.Load(dir, split)
	case "":
		return nil, usagef("--dataset is missing: spider, bird or spider2")
	default:
		return nil, usagef("--dataset %s: there are spider, bird and spider2", name)
	}
	return b, err
}

// scorer applies the benchmark's rules with exec's workers.
func (b *benchmark) scorer(exec *eval.Executor, o benchmarkOptions) (eval.Scorer, error) {
	switch b.Name {
	case eval.Spider:
		return spider.NewScorer(exec, spider.Tables(b.Dataset), o.spider)
	case eval.BIRD:
		return bird.NewScorer(exec, o.ves), nil
	}
	return spider2.NewScorer(exec, b.gold, o.mode), nil
}

// hasGold reports whether there is anything to score the examples by.
func (b *benchmark) hasGold(examples []eval.Example) bool {
	return b.Name == eval.Spider2 || slices.ContainsFunc(examples, func(ex eval.Example) bool { return ex.Gold != "" })
}

// officialTables are a run's tables as the official scripts print them, from its results alone.
func officialTables(m eval.Manifest, results []eval.Result) []eval.Totals {
	switch m.Dataset {
	case eval.Spider:
		return new(spider.Scorer).Totals(results)
	case eval.BIRD:
		return bird.NewScorer(nil, 0).Totals(results)
	case eval.Spider2:
		return spider2.NewScorer(nil, nil, spider2.SQLMode).Totals(results)
	}
	return nil
}

// dataLayout is what was looked for where in a dataset's folder.
type dataLayout struct {
	Dataset  string   `json:"dataset"`
	Dir      string   `json:"dir"`
	Complete bool     `json:"complete"`
	Lines    []string `json:"lines"` // one a thing: found or missing, and where
	Hint     string   `json:"hint,omitempty"`
}

// checkDataLayout looks at a folder as each benchmark would and returns what fits best: the first that is complete, else one
// whose questions can be read, else the first.
func checkDataLayout(dir string) dataLayout {
	var readable, firstTried *dataLayout
	for _, name := range []string{eval.Spider, eval.BIRD, eval.Spider2} {
		b, err := loadBenchmark(name, dir, "")
		layout := layoutOf(name, dir, b, err)
		switch {
		case layout.Complete:
			return layout
		case err == nil && readable == nil:
			readable = &layout
		case firstTried == nil:
			firstTried = &layout
		}
	}
	if readable != nil {
		return *readable
	}
	return *firstTried
}

func layoutOf(name, dir string, b *benchmark, err error) dataLayout {
	layout := dataLayout{Dataset: name, Dir: dir}
	var looked eval.LayoutError
	var incomplete *eval.LayoutError
	switch {
	case errors.As(err, &incomplete):
		looked = *incomplete
	case err != nil:
		layout.Lines = []string{err.Error()}
		return layout
	default:
		looked = b.Layout
		layout.Complete = len(looked.Missing()) == 0
	}
	if layout.Hint = looked.Hint; layout.Complete {
		layout.Hint = ""
	}
	for _, l := range looked.Looked {
		layout.Lines = append(layout.Lines, l.String())
	}
	return layout
}

// String is the layout for a person.
func (l dataLayout) String() string {
	state := "complete"
	if !l.Complete {
		state = "not complete"
	}
	text := fmt.Sprintf("%s: %s dataset, %s\n  %s\n", l.Dir, l.Dataset, state, strings.Join(l.Lines, "\n  "))
	if l.Hint != "" {
		text += l.Hint + "\n"
	}
	return text
}
