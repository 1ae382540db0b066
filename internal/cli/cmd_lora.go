package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/convert"
	"quern/internal/buildinfo"
	"quern/internal/hub"
	"quern/internal/progress"
	"quern/internal/table"
	"quern/lora"
	"quern/tensor"
)

// words is a flag that may be given several times; its values may hold commas.
type words []string

func (w *words) Set(value string) error { *w = append(*w, value); return nil }
func (w *words) String() string         { return strings.Join(*w, " ") }

type loraOptions struct {
	bases     words
	adapters  words
	scales    words
	out       string
	kind      string
	shardSize string
	name      string
	mtp       bool // without layers for multi-token prediction
	pre       string

	merged      string
	fingerprint string
	accept      bool
	json        bool
}

func loraCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "lora",
		Usage: "PEFT adapters: look inside, merge into the right base, verify a merge, convert for run-time use",
		Description: `An adapter is a folder that PEFT saved, its adapter_model.safetensors, or a zip with either inside, also one that
quern pull fetched: ORG/NAME or ORG/NAME:FILE.

A delta belongs to one base. quern lora merge goes on only when something shows that the base is that one: the hub id
that the adapter names and the base carries, the record of an earlier merge, or a fingerprint that you state.`,
		Subcommands: []*cli.Command{loraInspectCommand(env), loraMergeCommand(env), loraVerifyCommand(env), loraConvertCommand(env)},
	}
}

func (o *loraOptions) baseFlag(usage string) cli.Flag {
	return &cli.GenericFlag{Name: "base", Usage: usage, Value: &o.bases}
}

func (o *loraOptions) adapterFlags() []cli.Flag {
	return []cli.Flag{
		&cli.GenericFlag{Name: "adapter", Usage: "`ADAPTER` to apply: a path, or ORG/NAME[:FILE] that was pulled; again for the next stage of a chain", Value: &o.adapters},
		&cli.GenericFlag{Name: "scale", Usage: "`FACTOR` for an adapter's strength, one for each --adapter (default 1)", Value: &o.scales},
	}
}

func (o *loraOptions) fingerprintFlag() cli.Flag {
	return &cli.StringFlag{Name: "base-fingerprint", Usage: "state that the first adapter was trained on the base with this `FINGERPRINT`", Destination: &o.fingerprint}
}

func (o *loraOptions) jsonFlag(what string) cli.Flag {
	return &cli.BoolFlag{Name: "json", Usage: "print " + what + " as JSON", Destination: &o.json}
}

// plan opens bases[i] and the adapters, and fits them. The caller closes what is returned, also after an error.
func (o *loraOptions) plan(base string) (*lora.Plan, closers, error) {
	var open closers
	path, _, err := findCheckpoint(base)
	if err != nil {
		return nil, open, err
	}
	b, err := lora.OpenBase(path)
	if err != nil {
		return nil, open, err
	}
	open = append(open, b)
	stages, err := o.stages(&open)
	if err != nil {
		return nil, open, err
	}
	p, err := lora.NewPlan(b, stages)
	return p, open, err
}

type closers []io.Closer

func (c closers) Close() {
	for _, closer := range c {
		closer.Close()
	}
}

func (o *loraOptions) stages(open *closers) ([]lora.Stage, error) {
	var stages []lora.Stage
	for i, name := range o.adapters {
		a, err := openAdapter(name)
		if err != nil {
			return nil, err
		}
		*open = append(*open, a)
		scale := 1.0
		if len(o.scales) > 0 {
			if scale, err = strconv.ParseFloat(o.scales[i], 64); err != nil || scale-scale != 0 {
				return nil, usagef("--scale %s is not a number", o.scales[i])
			}
		}
		stages = append(stages, lora.Stage{Adapter: a, Scale: scale})
	}
	return stages, nil
}

// openAdapter opens an adapter by its path or, in the download cache, as ORG/NAME or ORG/NAME:FILE.
func openAdapter(name string) (*lora.Adapter, error) {
	ref, err := hub.ParseRef(name)
	if _, statErr := os.Stat(name); statErr == nil || err != nil {
		return lora.Open(name)
	}
	path, err := cachedSnapshot(ref, name)
	if err == nil && ref.Pattern != "" {
		path, err = oneFile(path, ref.Pattern, ref)
	}
	if err != nil {
		return nil, err
	}
	return lora.Open(path)
}

func (o *loraOptions) check(command string, maxBases int) error {
	switch {
	case len(o.bases) == 0:
		return usagef("lora %s needs --base DIR, a GGUF file or a hub id", command)
	case len(o.bases) > maxBases:
		return usagef("lora %s takes one --base", command)
	case len(o.adapters) == 0:
		return usagef("lora %s needs --adapter", command)
	case len(o.scales) > 0 && len(o.scales) != len(o.adapters):
		return usagef("%d --scale for %d --adapter: give one for each, or none", len(o.scales), len(o.adapters))
	}
	return nil
}

func loraInspectCommand(env Env) *cli.Command {
	var o loraOptions
	return &cli.Command{
		Name:      "inspect",
		Usage:     "what is in an adapter: method, targets, ranks, norms, the base it names",
		ArgsUsage: "ADAPTER",
		Flags:     []cli.Flag{o.jsonFlag("the adapter (lora.Inspection)")},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("lora inspect takes one adapter")
			}
			a, err := openAdapter(c.Args().First())
			if err != nil {
				return err
			}
			defer a.Close()
			i, err := a.Inspect()
			if err != nil {
				return err
			}
			if o.json {
				return writeIndented(env.Stdout, i)
			}
			return printAdapter(env.Stdout, i)
		},
	}
}

func printAdapter(w io.Writer, i *lora.Inspection) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(label, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", label, table.Visible(fmt.Sprintf(format, args...)))
	}
	line("adapter", "%s", i.Path)
	line("kind", "%s, r %d, alpha %g, PEFT %s", i.Kind, i.Rank, i.Alpha, i.PEFT)
	trained := i.TrainedOn
	if i.Private {
		trained += "   (no hub id: a name on the machine of the training)"
	}
	line("trained on", "%s", trained)
	line("targets", "%s", strings.Join(i.Targets, ", "))
	if len(i.Saved) > 0 {
		line("whole modules", "%s", strings.Join(i.Saved, ", "))
	}
	for _, hit := range i.Hits {
		where := "outside the layers"
		if len(hit.Layers) > 0 {
			where = fmt.Sprintf("%d times, layers %s", len(hit.Layers), numberRanges(hit.Layers))
		}
		line("  "+hit.Target, "%s", where)
	}
	line("values", "%s, stored as %s", countText(i.Values), strings.Join(i.Types, ", "))
	line("weights", "sha256 %s", i.SHA256.Weights)
	fmt.Fprintf(out, "\nmodule\thas\trank\tscale\t‖Δ‖\n")
	for _, m := range i.Modules {
		fmt.Fprintf(out, "%s\t%s\t", table.Visible(m.Path), strings.Join(m.What, ", "))
		if m.Rank > 0 {
			fmt.Fprintf(out, "%d\t%.4g\t%.4g", m.Rank, m.Scale, m.Norm)
		}
		fmt.Fprintln(out)
	}
	return out.Flush()
}

// numberRanges writes sorted numbers as "0-3, 7".
func numberRanges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		part := strconv.Itoa(numbers[i])
		if j > i {
			part += "-" + strconv.Itoa(numbers[j])
		}
		parts = append(parts, part)
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func loraMergeCommand(env Env) *cli.Command {
	var o loraOptions
	flags := append([]cli.Flag{o.baseFlag("checkpoint `FOLDER`, GGUF file, or ORG/NAME in the download cache")}, o.adapterFlags()...)
	flags = append(flags,
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "folder for a checkpoint, or `FILE`.gguf; must not exist", Destination: &o.out},
		&cli.StringFlag{Name: "type", Usage: "f32, bf16, f16 (a checkpoint's weights, or a GGUF's changed ones); for GGUF also q8_0, q4_0, …", Destination: &o.kind},
		&cli.StringFlag{Name: "max-shard-size", Value: "5GB", Usage: "largest `SIZE` of a safetensors file", Destination: &o.shardSize},
		&cli.StringFlag{Name: "name", Usage: "`NAME` by which the next stage's adapter calls the output (default: --out's)", Destination: &o.name},
		o.fingerprintFlag(),
		&cli.BoolFlag{Name: "accept-base-mismatch", Usage: "merge although nothing shows that the base is the right one; recorded in the output for ever", Destination: &o.accept},
		&cli.BoolFlag{Name: "no-mtp", Usage: "checkpoint to GGUF: leave out the layers for multi-token prediction", Destination: &o.mtp},
		&cli.StringFlag{Name: "pre", Usage: "checkpoint to GGUF: `NAME` of the pre-tokenizer, where it is not recognised", Destination: &o.pre},
		o.jsonFlag("the report (lora.Report)"),
	)
	return &cli.Command{
		Name:      "merge",
		Usage:     "merge adapters into their base, bit for bit as PEFT does",
		ArgsUsage: " ",
		Description: `   quern lora merge --base Qwen/Qwen3.5-9B --adapter stage1/ --adapter checkpoint-1150-adapter.zip --out merged/
   quern lora merge --base model-bf16.gguf --adapter a.zip --out merged.gguf

Stages are merged in the order given, rounded between them as one merge after the other would be. The output appears
when it is whole and checked: it differs from the base in exactly the target tensors. Its lineage (base, adapters,
their hashes, order, scale) is in quern_lineage.json, or in the GGUF's metadata, and quern inspect shows it.`,
		Flags: flags,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("lora merge takes flags only; what is %q?", c.Args().First())
			}
			if err := o.check("merge", 1); err != nil {
				return err
			}
			if o.out == "" {
				return usagef("lora merge needs --out")
			}
			return runMerge(c.Context, env, o)
		},
	}
}

func runMerge(ctx context.Context, env Env, o loraOptions) error {
	p, open, err := o.plan(o.bases[0])
	defer open.Close()
	if err != nil {
		return err
	}
	line := progress.New(env.Stderr, "merge", "bytes")
	m := lora.MergeOptions{Out: o.out, Name: o.name, Tool: "quern " + buildinfo.Version,
		JudgeOptions: lora.JudgeOptions{Fingerprint: o.fingerprint, AcceptMismatch: o.accept},
		Progress:     func(done, total int64) { line.Set(done, total) }}
	if m.MaxShardSize, err = parseSize(o.shardSize); err != nil {
		return usagef("--max-shard-size: %v", err)
	}
	toGGUF := strings.EqualFold(filepath.Ext(o.out), ".gguf")
	var report *lora.Report
	if toGGUF && !p.Base.IsGGUF() {
		report, err = mergeToGGUF(ctx, p, m, o)
	} else {
		if m.Type, err = mergeType(o.kind); err != nil {
			return err
		}
		report, err = p.Merge(ctx, m)
	}
	line.Done("")
	if err != nil {
		return err
	}
	if o.json {
		return writeIndented(env.Stdout, report)
	}
	return printMerge(env, report)
}

func mergeType(name string) (tensor.DType, error) {
	if name == "" || name == "auto" {
		return tensor.Invalid, nil
	}
	t, err := tensor.ParseDType(name)
	if err != nil {
		return t, usagef("--type %s: %v", name, err)
	}
	if !t.CanEncode() {
		return t, usagef("--type %s: the merge can write f32, f16, bf16, q8_0, q4_0, q4_1, q5_0 and q5_1; for others merge to bf16, then quern quantize", name)
	}
	return t, nil
}

// mergeToGGUF merges a checkpoint in its own type into a folder beside the output, and converts that.
func mergeToGGUF(ctx context.Context, p *lora.Plan, m lora.MergeOptions, o loraOptions) (*lora.Report, error) {
	kind := convert.Type(strings.ToLower(o.kind))
	if kind != "" && !kind.Valid() {
		return nil, usagef("--type %s: a checkpoint becomes a GGUF of type f32, f16, bf16, q8_0 or auto; for others use quern quantize afterwards", o.kind)
	}
	if _, err := os.Lstat(o.out); err == nil {
		return nil, fmt.Errorf("%s exists already; name another place or remove it", o.out)
	}
	temp, err := os.MkdirTemp(filepath.Dir(o.out), ".merge-tmp-*")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(temp)
	name := strings.TrimSuffix(filepath.Base(o.out), filepath.Ext(o.out))
	m.Out = filepath.Join(temp, name)
	report, err := p.Merge(ctx, m)
	if err != nil {
		return nil, err
	}
	opt := convert.Options{Type: kind, Pre: o.pre, Name: name}
	if o.mtp {
		opt.MTP = convert.DropMTP
	}
	converted, err := convert.Convert(ctx, m.Out, o.out, opt)
	if err != nil {
		return nil, err
	}
	report.Out = o.out
	report.Warnings = append(report.Warnings, converted.Warnings...)
	return report, nil
}

// parseSize reads "5GB", "200MB", "120KB" or bytes.
func parseSize(text string) (int64, error) {
	number, unit := strings.TrimSpace(strings.ToUpper(text)), int64(1)
	for suffix, factor := range map[string]int64{"KB": 1e3, "MB": 1e6, "GB": 1e9, "TB": 1e12} {
		if short, ok := strings.CutSuffix(number, suffix); ok {
			number, unit = short, factor
		}
	}
	n, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if err != nil || n <= 0 || n*float64(unit) > 1<<62 {
		return 0, fmt.Errorf("%q is no size such as 5GB", text)
	}
	return int64(n * float64(unit)), nil
}

func printMerge(env Env, r *lora.Report) error {
	fmt.Fprintf(env.Stdout, "%s: %d of %d tensors changed, ‖change‖ / ‖weights‖ = %.4g\n", r.Out, len(r.Changed), r.Tensors, r.RelativeChange)
	for i, s := range r.Stages {
		fmt.Fprintf(env.Stdout, "  stage %d: %s, scale %g: %d modules on %d tensors; base shown by %s (%s)\n", i+1, s.Adapter, s.Scale, s.Modules, s.Tensors, s.Evidence, s.Explanation)
	}
	fmt.Fprintf(env.Stdout, "  fingerprint %s\n", r.Fingerprint)
	for _, note := range r.Notes {
		fmt.Fprintf(env.Stderr, "note: %s\n", note)
	}
	for _, w := range r.Warnings {
		fmt.Fprintf(env.Stderr, "warning: %s\n", w)
	}
	return nil
}

func loraVerifyCommand(env Env) *cli.Command {
	var o loraOptions
	flags := append([]cli.Flag{o.baseFlag("candidate for the base: `FOLDER`, GGUF file or ORG/NAME; may be given several times with --merged")}, o.adapterFlags()...)
	flags = append(flags,
		&cli.StringFlag{Name: "merged", Usage: "`MODEL` that should be base + adapters", Destination: &o.merged},
		o.fingerprintFlag(),
		o.jsonFlag("the result"),
	)
	return &cli.Command{
		Name:      "verify",
		Usage:     "is a merged model its base plus the adapter? and on which of several bases?",
		ArgsUsage: " ",
		Description: `   quern lora verify --base stock/ --base stage1-merged/ --adapter a.zip --merged m.gguf
   quern lora verify --base stock/ --adapter a.zip

With --merged the weights themselves are compared, whatever the metadata says. Exit code 0 when exactly one base fits.
Without it everything is checked that needs no output: that each tensor of the adapter has its place, that each target
is hit, and what shows that the base is the one that the adapter was trained on. Exit code 0 when something does.`,
		Flags: flags,
		Action: func(c *cli.Context) error {
			most := 1
			if o.merged != "" {
				most = 100
			}
			if err := o.check("verify", most); err != nil {
				return err
			}
			if o.merged == "" {
				return runFitCheck(c.Context, env, o)
			}
			return runVerify(c.Context, env, o)
		},
	}
}

// fitCheck is the JSON of `lora verify` without --merged.
type fitCheck struct {
	Base        string        `json:"base"`
	Fingerprint string        `json:"fingerprint"`
	Fits        bool          `json:"fits"`       // every tensor has its place
	BaseShown   bool          `json:"base_shown"` // and something shows that the base is the right one
	Evidence    lora.Evidence `json:"evidence"`
	Explanation string        `json:"explanation"`
	Notes       []string      `json:"notes,omitempty"`
}

func runFitCheck(ctx context.Context, env Env, o loraOptions) error {
	p, open, err := o.plan(o.bases[0])
	defer open.Close()
	if err != nil {
		return err
	}
	is, err := p.Base.Fingerprint(ctx)
	if err != nil {
		return err
	}
	r := fitCheck{Base: p.Base.Path, Fingerprint: is.Text, Fits: true, Notes: p.Notes}
	judgements, err := p.Judge(ctx, lora.JudgeOptions{Fingerprint: o.fingerprint})
	var mismatch *lora.MismatchError
	switch {
	case errors.As(err, &mismatch):
		r.Evidence, r.Explanation = lora.ByNothing, mismatch.Error()
	case err != nil:
		return err
	default:
		r.Evidence, r.Explanation, r.BaseShown = judgements[0].Evidence, judgements[0].Explanation, judgements[0].Holds(is)
		if !r.BaseShown {
			r.Explanation += ", which is not that of this base"
		}
	}
	if o.json {
		err = writeIndented(env.Stdout, r)
	} else {
		_, err = fmt.Fprintf(env.Stdout, "%s fits %s: every tensor has its place, every target is hit\nbase fingerprint %s\nbase shown by %s: %s\n",
			strings.Join(o.adapters, " + "), o.bases[0], r.Fingerprint, r.Evidence, r.Explanation)
	}
	if err != nil {
		return err
	}
	if !r.BaseShown {
		return exitError(exitFailed)
	}
	return nil
}

func runVerify(ctx context.Context, env Env, o loraOptions) error {
	path, _, err := findCheckpoint(o.merged)
	if err != nil {
		return err
	}
	merged, err := lora.OpenBase(path)
	if err != nil {
		return err
	}
	defer merged.Close()
	var fits []*lora.Fit
	for _, base := range o.bases {
		fit, err := o.verifyOne(ctx, base, merged)
		if err != nil && len(o.bases) == 1 {
			return err
		}
		if err != nil { // of several candidates one may not even have the adapter's tensors
			fit = &lora.Fit{Base: base, Verdict: lora.OtherBase, Why: err.Error()}
		}
		fits = append(fits, fit)
	}
	if o.json {
		err = writeIndented(env.Stdout, fits)
	} else {
		err = printFits(env.Stdout, merged.Path, fits)
	}
	if err != nil {
		return err
	}
	right := slices.DeleteFunc(slices.Clone(fits), func(f *lora.Fit) bool { return f.Verdict != lora.Merged })
	if len(right) != 1 {
		return exitError(exitFailed)
	}
	return nil
}

func (o *loraOptions) verifyOne(ctx context.Context, base string, merged *lora.Base) (*lora.Fit, error) {
	p, open, err := o.plan(base)
	defer open.Close()
	if err != nil {
		return nil, err
	}
	return p.Verify(ctx, merged)
}

func printFits(w io.Writer, merged string, fits []*lora.Fit) error {
	answers := map[lora.Verdict]string{lora.Merged: "is this base + the adapters", lora.Unmerged: "is this base alone", lora.OtherBase: "is not this base + the adapters"}
	for _, f := range fits {
		fmt.Fprintf(w, "%s %s: %s\n  %s\n", merged, answers[f.Verdict], f.Base, f.Why)
		const shown = 10
		for _, m := range f.Unfitting[:min(shown, len(f.Unfitting))] {
			reason := m.Reason
			if reason == "" {
				reason = fmt.Sprintf("‖difference‖ / ‖expected‖ = %.3g", m.Distance)
			}
			if m.IsBase {
				reason += ", it is the base's own"
			}
			fmt.Fprintf(w, "    %s: %s\n", m.Name, reason)
		}
		if more := len(f.Unfitting) - shown; more > 0 {
			fmt.Fprintf(w, "    and %d more\n", more)
		}
	}
	return nil
}

func loraConvertCommand(env Env) *cli.Command {
	var o loraOptions
	flags := append([]cli.Flag{o.baseFlag("the model that it will be used with: checkpoint `FOLDER`, GGUF file or ORG/NAME")}, o.adapterFlags()...)
	flags = append(flags,
		&cli.StringFlag{Name: "out", Aliases: []string{"o"}, Usage: "`FILE`.gguf; must not exist", Destination: &o.out},
		o.jsonFlag("the report (lora.ExportReport)"),
	)
	return &cli.Command{
		Name:      "convert",
		Usage:     "make a GGUF adapter for use at run time (quern ask --lora)",
		ArgsUsage: " ",
		Description: `   quern lora convert --base model.gguf --adapter a.zip --out a.gguf

Right for rsLoRA, rank and alpha patterns and Qwen3.5's reordered heads. What cannot be applied at run time (DoRA,
trained biases, whole modules, trained tokens, a head that is the embedding) is refused: merge it.`,
		Flags: flags,
		Action: func(c *cli.Context) error {
			if err := o.check("convert", 1); err != nil {
				return err
			}
			if o.out == "" || len(o.adapters) != 1 {
				return usagef("lora convert needs --out and one --adapter")
			}
			p, open, err := o.plan(o.bases[0])
			defer open.Close()
			if err != nil {
				return err
			}
			r, err := p.Export(c.Context, o.out)
			if err != nil {
				return err
			}
			if o.json {
				return writeIndented(env.Stdout, r)
			}
			_, err = fmt.Fprintf(env.Stdout, "%s: %d modules, alpha %g, %d rescaled\n", r.Out, r.Modules, r.Alpha, r.Rescaled)
			return err
		},
	}
}
