package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/internal/inspect"
	"quern/internal/table"
	"quern/lora"
	"quern/toolloop"
)

type inspectOptions struct {
	path, diff  string
	tensors     bool
	metadata    bool
	fingerprint bool
	json        bool
}

func inspectCommand(env Env) *cli.Command {
	var o inspectOptions
	return &cli.Command{
		Name:      "inspect",
		Usage:     "what is in a model file or adapter, and does it fit this machine",
		ArgsUsage: "FILE | DIR | ORG/NAME",
		Description: `Reads GGUF files (also split ones: give the first part), safetensors files, Hugging Face checkpoint folders and PEFT
adapters (folder, file or zip).

   quern inspect model.gguf
   quern inspect checkpoint/ --fingerprint
   quern inspect merged.gguf --diff base.gguf

--fingerprint prints one hash of all weights; it does not depend on sharding, order, metadata or the container: a
checkpoint and the f32 or bf16 GGUF made of it have the same. --diff compares values, tensor by tensor; exit code 1 when
they differ. --json documents: internal/inspect, Report and Diff.`,
		Flags: []cli.Flag{
			&cli.BoolFlag{Name: "tensors", Usage: "list every tensor", Destination: &o.tensors},
			&cli.BoolFlag{Name: "metadata", Usage: "list every metadata entry", Destination: &o.metadata},
			&cli.StringFlag{Name: "diff", Usage: "compare with `OTHER`", Destination: &o.diff},
			&cli.BoolFlag{Name: "fingerprint", Usage: "print only the fingerprint (reads all weights)", Destination: &o.fingerprint},
			&cli.BoolFlag{Name: "json", Usage: "as JSON", Destination: &o.json},
		},
		Action: func(c *cli.Context) error {
			if c.Args().Len() != 1 {
				return usagef("inspect takes one file or folder: quern inspect FILE [--diff OTHER]")
			}
			o.path = c.Args().First()
			if o.diff != "" {
				return runDiff(c.Context, env, o)
			}
			return runInspect(c.Context, env, o)
		},
	}
}

func runInspect(ctx context.Context, env Env, o inspectOptions) error {
	s, err := openSubject(o.path)
	if err != nil {
		return err
	}
	defer s.Close()
	r, err := s.Report(ctx, inspect.Options{Tensors: o.tensors, Fingerprint: o.fingerprint})
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if r.ChatTemplate != nil {
		if p, err := toolloop.ProfileFor(r.Architecture, r.ChatTemplate.Text); err == nil {
			r.ChatTemplate.Profile = p.Name
		}
	}
	if r.Memory != nil {
		for _, d := range engine.System().Devices {
			if d.GPU {
				r.Memory.Devices = append(r.Memory.Devices, inspect.Device{Name: d.Name + " " + d.Description, Total: int64(d.Total), Free: int64(d.Free)})
			}
		}
	}
	switch {
	case o.json:
		return writeIndented(env.Stdout, r)
	case o.fingerprint:
		_, err := fmt.Fprintln(env.Stdout, r.Fingerprint)
		return err
	}
	return printReport(env.Stdout, r, o)
}

// openSubject opens a path, or a model in the hub's cache.
func openSubject(name string) (*inspect.Subject, error) {
	path, _, err := findCheckpoint(name)
	if err != nil {
		return nil, err
	}
	s, err := inspect.Open(path)
	if err != nil {
		return nil, fmt.Errorf("inspect: %w", err)
	}
	return s, nil
}

func writeIndented(w io.Writer, v any) error {
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	enc.SetEscapeHTML(false)
	return enc.Encode(v)
}

var kindNames = map[inspect.Kind]string{
	inspect.KindGGUF: "GGUF model", inspect.KindCheckpoint: "Hugging Face checkpoint", inspect.KindSafetensors: "safetensors file",
	inspect.KindAdapter: "PEFT adapter", inspect.KindGGUFAdapter: "GGUF adapter",
}

func printReport(w io.Writer, r *inspect.Report, o inspectOptions) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	line := func(label, format string, args ...any) {
		fmt.Fprintf(out, "%s\t%s\n", label, table.Visible(fmt.Sprintf(format, args...)))
	}
	line(kindNames[r.Kind], "%s%s", r.Path, filesText(r.Files))
	if r.Architecture != "" {
		line("architecture", "%s%s", r.Architecture, inBrackets(r.Class))
	}
	if r.Name != "" {
		line("name", "%s", r.Name)
	}
	if r.Adapter != nil {
		adapterLines(line, r.Adapter)
	} else {
		line("parameters", "%s in %d tensors, %s", countText(r.Parameters), r.Tensors, sizeText(r.Bytes))
	}
	for _, t := range r.Types {
		line("", "%s: %d tensors, %s", t.Type, t.Tensors, sizeText(t.Bytes))
	}
	if t := r.Tokenizer; t != nil {
		line("tokenizer", "%s %s, %d tokens, ends: %s", t.Model, t.Pre, t.Tokens, cmp.Or(strings.Join(t.Ends, " "), "none named"))
	}
	if t := r.ChatTemplate; t != nil {
		line("chat template", "%d characters, profile %s", t.Chars, cmp.Or(t.Profile, "not known: choose one with --profile"))
	}
	if m := r.Memory; m != nil {
		memoryLines(line, m)
	}
	if err := lineageLines(line, r.Lineage); err != nil {
		line("problem", "%v", err)
	}
	for _, p := range r.Problems {
		line("problem", "%s", p)
	}
	if o.metadata {
		for _, e := range r.Metadata {
			line("  "+table.Visible(e.Key), "%s %s", e.Type, valueText(e))
		}
	} else if len(r.Metadata) > 0 {
		line("metadata", "%d entries (--metadata lists them)", len(r.Metadata))
	}
	for _, t := range r.TensorList {
		line("  "+table.Visible(t.Name), "%s %v", t.Type, t.Shape)
	}
	return out.Flush()
}

func filesText(n int) string {
	if n == 1 {
		return ""
	}
	return fmt.Sprintf(" (%d files)", n)
}

func inBrackets(s string) string {
	if s == "" {
		return ""
	}
	return " (" + s + ")"
}

func adapterLines(line func(label, format string, args ...any), a *lora.Inspection) {
	line("kind", "%s, r %d, alpha %g, %d modules", a.Kind, a.Rank, a.Alpha, len(a.Modules))
	line("parameters", "%s, stored as %s", countText(a.Values), strings.Join(a.Types, ", "))
	line("trained on", "%s", a.TrainedOn)
	line("sha256", "%s", a.SHA256.Weights)
	line("", "quern lora inspect says more")
}

func memoryLines(line func(label, format string, args ...any), m *inspect.Memory) {
	state := ""
	if m.StatePerLane > 0 {
		state = fmt.Sprintf(" + %s for each conversation", sizeText(m.StatePerLane))
	}
	line("memory", "%s weights + %s for each token%s; trained for %d tokens", sizeText(m.Weights), sizeText(m.KVPerToken), state, m.Context)
	if len(m.Fits) == 0 {
		return
	}
	line("this machine", "%s, %s of it free", sizeText(m.Total), sizeText(m.Available))
	for _, d := range m.Devices {
		line("", "%s: %s, %s of it free", d.Name, sizeText(d.Total), sizeText(d.Free))
	}
	for _, f := range m.Fits {
		lanes, each := fmt.Sprintf("%d conversations at once", f.Lanes), " each"
		if f.Lanes == 1 {
			lanes, each = "one conversation", ""
		}
		if f.Tokens == 0 {
			line("", "%s: does not fit", lanes)
		} else {
			line("", "%s: up to %d tokens%s", lanes, f.Tokens, each)
		}
	}
}

func lineageLines(line func(label, format string, args ...any), raw json.RawMessage) error {
	if raw == nil {
		return nil
	}
	l, err := lora.ParseLineage(raw)
	if err != nil {
		return err
	}
	line("lineage", "%s%s, %s", l.Root.Name, inBrackets(l.Root.HubID), l.Root.Fingerprint)
	for _, s := range l.Stages {
		note := ""
		if s.Mismatch {
			note = "; MERGED INTO A BASE THAT IS NOT SHOWN TO BE ITS OWN"
		}
		line("", "+ %s, scale %v, trained on %s%s", s.Adapter, s.Scale, s.TrainedOn, note)
		if s.Explanation != "" {
			line("", "  %s", s.Explanation)
		}
	}
	line("", "= %s, %s", l.Output.Name, l.Output.Fingerprint)
	return nil
}

// valueText writes a metadata value in one line.
func valueText(e inspect.Entry) string {
	text := fmt.Sprint(e.Value)
	if s, ok := e.Value.(string); ok {
		text = strconv.Quote(s)
	}
	const most = 100
	if runes := []rune(text); len(runes) > most {
		text = string(runes[:most]) + "…"
	}
	if e.Len > 0 {
		text = fmt.Sprintf("[%d] %s", e.Len, text)
	}
	return text
}

func runDiff(ctx context.Context, env Env, o inspectOptions) error {
	a, err := openSubject(o.path)
	if err != nil {
		return err
	}
	defer a.Close()
	b, err := openSubject(o.diff)
	if err != nil {
		return err
	}
	defer b.Close()
	d, err := inspect.Compare(ctx, a, b)
	if err != nil {
		return fmt.Errorf("inspect: %w", err)
	}
	if o.json {
		err = writeIndented(env.Stdout, d)
	} else {
		err = printDiff(env.Stdout, d, o.tensors)
	}
	if err == nil && !d.Equal {
		return exitError(exitFailed)
	}
	return err
}

// printDiff lists the tensors that differ, the most different first, or all of them by name.
func printDiff(w io.Writer, d *inspect.Diff, all bool) error {
	out := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	tensors := slices.Clone(d.Tensors)
	if !all {
		tensors = slices.DeleteFunc(tensors, func(t inspect.TensorDiff) bool { return t.Equal })
		slices.SortStableFunc(tensors, func(a, b inspect.TensorDiff) int { return cmp.Compare(b.Max, a.Max) })
	}
	if len(tensors) > 0 {
		fmt.Fprintln(out, "tensor\ttypes\tmax\tmean\telements that differ")
	}
	for _, t := range tensors {
		name, types := table.Visible(t.Name), t.TypeA
		if t.TypeA != t.TypeB {
			types += " " + t.TypeB
		}
		switch {
		case t.Problem != "":
			fmt.Fprintf(out, "%s\t%s\t%s\n", name, types, t.Problem)
		case t.Equal:
			fmt.Fprintf(out, "%s\t%s\tequal\n", name, types)
		default:
			fmt.Fprintf(out, "%s\t%s\t%.3g\t%.3g\t%d of %d\n", name, types, t.Max, t.Mean, t.Differ, t.Of)
		}
	}
	if err := out.Flush(); err != nil {
		return err
	}
	only := func(path string, names []string) {
		for _, name := range names {
			fmt.Fprintf(w, "only in %s: %s\n", filepath.Base(path), table.Visible(name))
		}
	}
	only(d.A, d.OnlyA)
	only(d.B, d.OnlyB)
	for _, m := range d.Metadata {
		fmt.Fprintf(w, "metadata %s: %s\n", table.Visible(m.Key), table.Visible(fmt.Sprintf("%.60v → %.60v", present(m.A), present(m.B))))
	}
	_, err := fmt.Fprintf(w, "%d tensors equal, %d differ, %d only in one\n", d.Same, d.Changed, len(d.OnlyA)+len(d.OnlyB))
	return err
}

func present(v any) any {
	if v == nil {
		return "(not there)"
	}
	return v
}
