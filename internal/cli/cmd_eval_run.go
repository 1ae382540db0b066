package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/backend"
	"quern/eval"
	"quern/internal/assistant"
	"quern/internal/progress"
	"quern/sqlguard"
	"quern/toolloop"
)

type evalRunOptions struct {
	dataFlags
	gradeFlags
	model         modelFlags
	sql           *sqlFlags
	run           eval.RunOptions
	html          string
	noDescription bool
}

func evalRunCommand(env Env) *cli.Command {
	o := evalRunOptions{sql: newSQLFlags(sqlguard.EvalPolicy())}
	flags := []cli.Flag{
		&cli.IntFlag{Name: "batch-size", Value: 8, Usage: "questions at a time", Destination: &o.run.Lanes},
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "results `FILE`, one JSON line a question (default: DATASET.jsonl)", Destination: &o.run.Out},
		&cli.StringFlag{Name: "ckpt", Usage: "`FILE` that grows with each question; a stopped run goes on from it (default: OUT.ckpt)", Destination: &o.run.Checkpoint},
		&cli.IntFlag{Name: "votes", Usage: "sample so many trajectories a question at --temperature and take the result that most agree on, beside the greedy answer", Destination: &o.run.Votes},
		&cli.BoolFlag{Name: "deterministic", Usage: "answers that can be had again to the byte: fixed lanes and order, whole databases repeated on resume, no times in the file", Destination: &o.run.Deterministic},
		&cli.BoolFlag{Name: "no-descriptions", Usage: "bird: leave the column descriptions out of the prompt", Destination: &o.noDescription},
		&cli.StringFlag{Name: "html", Usage: "also write the report page to `FILE`", Destination: &o.html},
	}
	flags = append(flags, o.dataFlags.flags()...)
	flags = append(flags, o.model.flags()...)
	flags = append(flags, o.gradeFlags.flags()...)
	return &cli.Command{
		Name: "run", Usage: "answer a benchmark's questions with a model and score the answers",
		Description: `Limits default to the published ones: 8 turns of 1024 new tokens and 20000 of input for Spider and BIRD, 20, 2048 and 30000 with the column
policy spider2 for Spider2-lite; the hermes profile keeps its own budget of 2048 for all turns. A run that was stopped, by
Ctrl-C or by force, goes on when the same command is given again.`,
		Flags:  append(flags, o.sql.flags()...),
		Action: func(c *cli.Context) error { return runEval(c.Context, env, o) },
	}
}

func runEval(ctx context.Context, env Env, o evalRunOptions) error {
	if o.run.Lanes < 1 || o.run.Lanes > 128 {
		return usagef("--batch-size %d: must be from 1 to 128", o.run.Lanes)
	}
	if o.run.Votes < 0 || o.run.Votes > 0 && o.model.temperature <= 0 {
		return usagef("--votes %d needs trajectories that differ: give --temperature above 0, such as 0.7", o.run.Votes)
	}
	if err := o.gradeFlags.check(); err != nil {
		return err
	}
	policy, err := o.sql.policy(sqlguard.EvalPolicy())
	if err != nil {
		return err
	}
	bench, err := o.open()
	if err != nil {
		return err
	}
	examples, selection, err := o.selected(bench.Dataset)
	if err != nil {
		return err
	}
	if len(examples) == 0 {
		return fmt.Errorf("no question is left of %s with these choices", bench.Dir)
	}
	if err := bench.RequireDatabases(examples); err != nil {
		return err
	}
	if err := o.nameFiles(); err != nil {
		return err
	}
	if o.run.Deterministic && o.model.backend != "" {
		fmt.Fprintln(env.Stderr, "quern: --deterministic fixes the order of questions and keeps times out of the file; whether the server at --backend gives the same answers again is up to it")
	}
	model, err := o.openModel(ctx, env)
	if err != nil {
		return err
	}
	defer model.Close()
	manifest, err := o.manifest(ctx, env, bench, selection, model, policy)
	if err != nil {
		return err
	}
	exec, err := eval.NewExecutor(o.workers, o.deadlines)
	if err != nil {
		return err
	}
	defer exec.Close()
	scorer, err := bench.scorer(exec, o.benchmarkOptions)
	if err != nil {
		return err
	}
	if !bench.hasGold(examples) {
		fmt.Fprintf(env.Stderr, "quern: %s holds no gold: the answers are not scored\n", bench.Split)
		scorer = nil
	}
	predictor, err := newPredictor(model, policy, o)
	if err != nil {
		return err
	}
	defer predictor.Close()
	broken, err := o.answer(ctx, env, manifest, examples, predictor, scorer, exec)
	if err != nil {
		return err
	}
	if err := o.report(env, scorer); err != nil {
		return err
	}
	if broken > 0 {
		fmt.Fprintf(env.Stderr, "quern: questions that failed on our side: %d; they are marked in the file, not counted as wrong, and the same command does them again\n", broken)
		return exitError(exitFailed)
	}
	return nil
}

// nameFiles gives the files that were not named their names, and looks for the folders of all before hours are spent.
func (o *evalRunOptions) nameFiles() error {
	if o.run.Out == "" {
		o.run.Out = o.dataset + ".jsonl"
	}
	if o.run.Checkpoint == "" {
		o.run.Checkpoint = o.run.Out + ".ckpt"
	}
	for _, f := range []struct{ flag, path string }{{"--out", o.run.Out}, {"--ckpt", o.run.Checkpoint}, {"--html", o.html}} {
		dir := filepath.Dir(f.path)
		if info, err := os.Stat(dir); err != nil || !info.IsDir() {
			return fmt.Errorf("%s %s: there is no folder %s to write it in: mkdir -p %s", f.flag, f.path, dir, dir)
		}
	}
	return nil
}

// answer runs the questions with a line of progress, and returns how many failed on our side.
func (o *evalRunOptions) answer(ctx context.Context, env Env, m eval.Manifest, examples []eval.Example, predictor eval.Predictor, scorer eval.Scorer, exec *eval.Executor) (broken int, err error) {
	line := progress.New(env.Stderr, "answering", "questions")
	run := o.run
	run.Progress = func(p eval.Progress) { line.Set(int64(p.Done), int64(p.Total), progressNotes(p)...) }
	p, err := eval.Run(ctx, m, examples, predictor, scorer, exec, run)
	line.Done("")
	var stopped *eval.Interrupted
	if errors.As(err, &stopped) {
		fmt.Fprintf(env.Stderr, "quern: %v\n", err)
		return 0, exitError(exitFailed)
	}
	return p.Broken, err
}

// progressNotes are the running accuracy and our side's failures.
func progressNotes(p eval.Progress) []string {
	var notes []string
	if p.Scored > 0 {
		notes = append(notes, fmt.Sprintf("%.1f%% right", 100*float64(p.Right)/float64(p.Scored)))
	}
	if p.Broken > 0 {
		notes = append(notes, fmt.Sprintf("%d failed on our side", p.Broken))
	}
	return notes
}

// report prints the official tables of scored answers, and writes the page that was asked for.
func (o *evalRunOptions) report(env Env, scorer eval.Scorer) error {
	if scorer != nil {
		file, err := eval.ReadResults(o.run.Out)
		if err != nil {
			return err
		}
		if err := printTables(env, scorer.Totals(file.Results)); err != nil {
			return err
		}
	}
	if o.html == "" {
		return nil
	}
	return writeReport(env, outputFlags{html: o.html}, []string{o.run.Out})
}

// publishedLimits are the limits of a published evaluation, for models that have no budget for all turns.
type publishedLimits struct{ turns, newTokens, inputTokens int }

func limitsFor(dataset string) publishedLimits {
	if dataset == eval.Spider2 {
		return publishedLimits{20, 2048, 30000}
	}
	return publishedLimits{8, 1024, 20000}
}

// openModel loads the model with the dataset's limits and column policy, where no flag says otherwise.
func (o *evalRunOptions) openModel(ctx context.Context, env Env) (*assistant.Model, error) {
	o.model.lanes = o.run.Lanes
	mo, err := o.model.options()
	if err != nil {
		return nil, err
	}
	mo.LogProbs = o.run.Votes > 0
	mo.Load.Engine.Deterministic = o.run.Deterministic
	m, err := openModel(ctx, env, mo)
	if err != nil {
		return nil, err
	}
	if m.Profile.Name == toolloop.ProfileQwenXML {
		l := limitsFor(o.dataset)
		setDefault(&m.Limits.MaxTurns, o.model.maxTurns, l.turns)
		setDefault(&m.Limits.MaxNewTokens, o.model.maxNewTokens, l.newTokens)
		setDefault(&m.Limits.MaxInputTokens, o.model.maxInputTokens, l.inputTokens)
		if err := o.widen(ctx, m); err != nil {
			return m, errors.Join(err, m.Close())
		}
	}
	if o.dataset == eval.Spider2 && o.model.columns == "" && slices.Contains(m.Pack.Policies, eval.Spider2) {
		pack := *m.Pack // built-in packs are shared
		pack.DefaultPolicy = eval.Spider2
		m.Pack = &pack
	}
	return m, nil
}

// widen makes a new engine where the default context is shorter than what the limits allow, as far as the model was
// trained for more.
func (o *evalRunOptions) widen(ctx context.Context, m *assistant.Model) error {
	if m.Engine == nil || o.model.ctx != 0 {
		return nil
	}
	want := min(m.Limits.MaxInputTokens+m.Limits.MaxNewTokens, m.Weights().ContextLength())
	opts := m.Engine.Options()
	if want <= opts.ContextLength {
		return nil
	}
	if err := m.Engine.Close(); err != nil {
		return err
	}
	opts.ContextLength, opts.Pool = want, 0
	wider, err := m.Weights().NewEngine(ctx, opts)
	if err == nil {
		m.Engine = wider
	}
	return err
}

// setDefault sets a limit to the dataset's default, unless a flag gave one.
func setDefault(limit *int, flag, value int) {
	if flag == 0 {
		*limit = value
	}
}

// manifest records everything that the answers depend on.
func (o *evalRunOptions) manifest(ctx context.Context, env Env, b *benchmark, selection string, m *assistant.Model, policy sqlguard.Policy) (eval.Manifest, error) {
	out := baseManifest(b.Dataset, selection)
	out.Engine = "llama.cpp " + version().LlamaCpp
	if o.model.backend != "" {
		out.Engine = o.model.backend
	}
	out.Prompt, out.PromptHash, out.Profile = m.Pack.Name, m.Pack.Hash, m.Profile.Name
	var err error
	if out.Model, err = o.model.answeringModel(ctx); err != nil {
		return out, err
	}
	if path, _ := findModel(o.model.model); path != "" {
		if out.ModelHash, err = hashFile(env, path); err != nil {
			return out, err
		}
	}
	if file := o.model.template; file != "" {
		sum, err := hashFile(env, file)
		if err != nil {
			return out, err
		}
		out.Flags["chat-template"] = filepath.Base(file) + " sha256 " + sum
	}
	for _, spec := range o.model.lora.Value() {
		adapter, err := parseAdapter(spec)
		if err != nil {
			return out, err
		}
		sum, err := hashFile(env, adapter.Path)
		if err != nil {
			return out, err
		}
		out.Adapters = append(out.Adapters, fmt.Sprintf("%s scale %g sha256 %s", filepath.Base(adapter.Path), adapter.Scale, sum))
	}
	o.describe(out.Flags, m, policy)
	return out, nil
}

// answeringModel names what answers: the model's file, or what the server serves.
func (f *modelFlags) answeringModel(ctx context.Context) (string, error) {
	if f.backend == "" {
		return filepath.Base(f.model), nil
	}
	client, err := backend.New(backend.Options{URL: f.backend, Model: f.backendModel, APIKey: f.backendKey})
	if err != nil {
		return "", err
	}
	return client.Model(ctx)
}

// describe puts the settings that change answers or verdicts into the manifest's flags.
func (o *evalRunOptions) describe(flags map[string]string, m *assistant.Model, policy sqlguard.Policy) {
	o.gradeFlags.describe(flags)
	set := func(name string, value any, unset ...string) {
		if text := fmt.Sprint(value); !slices.Contains(append(unset, "0", "", "false"), text) {
			flags[name] = text
		}
	}
	set("max-turns", m.Limits.MaxTurns)
	set("max-new-tokens", m.Limits.MaxNewTokens)
	set("max-input-tokens", m.Limits.MaxInputTokens)
	set("response-length", m.Limits.ResponseLength)
	set("col-policy", first(o.model.columns, m.Pack.DefaultPolicy))
	flags["temperature"] = fmt.Sprint(o.model.temperature)
	set("top-k", o.model.topK)
	set("top-p", o.model.topP, "1")
	set("min-p", o.model.minP)
	set("repeat-penalty", o.model.repeatPenalty, "1")
	set("seed", o.model.seed)
	set("votes", o.run.Votes)
	set("deterministic", o.run.Deterministic)
	set("kv-type", o.model.kvType)
	set("ctx", o.model.ctx)
	set("reference-tokenization", o.model.reference)
	set("no-descriptions", o.noDescription)
	flags["thinking"] = o.model.thinking
	flags["sql-timeout"] = policy.Limits.Timeout.String()
	flags["sql-max-rows"] = strconv.Itoa(policy.Limits.MaxRows)
	flags["sql-max-bytes"], flags["sql-memory"] = o.sql.maxBytes.String(), o.sql.memory.String()
	set("tables", strings.Join(policy.Tables, ","))
	if o.run.Deterministic {
		set("batch-size", o.run.Lanes)
		set("threads", o.model.threads)
		set("gpu-layers", o.model.gpuLayers, "auto")
		set("flash-attn", o.model.flash, "auto")
		set("split-kv", o.model.splitKV)
		set("cpus", runtime.GOMAXPROCS(0))
	}
}

// hashFile is a file's SHA-256, with progress: models are large.
func hashFile(env Env, path string) (string, error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	line := progress.New(env.Stderr, "hashing "+filepath.Base(path), "bytes")
	defer line.Done("")
	counted := &countingReader{reader: file, set: func(n int64) { line.Set(n, info.Size()) }}
	return eval.Digest(counted)
}

type countingReader struct {
	reader io.Reader
	n      int64
	set    func(n int64)
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.reader.Read(p)
	r.n += int64(n)
	r.set(r.n)
	return n, err
}
