package lora

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

func fingerprintOf(t testing.TB, path string) Fingerprint {
	t.Helper()
	b, err := OpenBase(path)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	f, err := b.Fingerprint(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// TestFingerprint: the same for a checkpoint, for it in other shards, and for GGUF files of it that lose nothing;
// another one after one bit is changed.
func TestFingerprint(t *testing.T) {
	for _, c := range checkpoints(t) {
		want := fingerprintOf(t, c)
		b, err := OpenBase(c)
		if err != nil {
			t.Fatal(err)
		}
		kinds := []convert.Type{convert.F32}
		if b.mainType() == tensor.BF16 {
			kinds = append(kinds, convert.BF16)
		}
		b.Close()
		for _, kind := range kinds {
			if got := fingerprintOf(t, toGGUF(t, c, kind)); got.Text != want.Text {
				t.Errorf("%s: %s as a checkpoint, %s as %s", filepath.Base(c), want, got, kind)
			}
		}
		one := reshard(t, c, -1)
		if got := fingerprintOf(t, one); got != want {
			t.Errorf("%s: %v in one file, %v before", filepath.Base(c), got, want)
		}
		if got := fingerprintOf(t, reshard(t, c, 0)); got.Text == want.Text {
			t.Errorf("%s: the same fingerprint after a change", filepath.Base(c))
		}
	}
}

func checkpoints(t *testing.T) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "checkpoints"), "*", "config.json"))
	if err != nil || len(found) == 0 {
		t.Fatalf("no checkpoints: %v", err)
	}
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// reshard writes a checkpoint as one file; flip, if not negative, is the index of a tensor whose first bit is changed.
func reshard(t *testing.T, dir string, flip int) string {
	t.Helper()
	out := t.TempDir()
	c, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var specs []tensor.Spec
	data := map[string][]byte{}
	for i := len(c.Tensors) - 1; i >= 0; i-- {
		s := &c.Tensors[i]
		if data[s.Name], err = s.ReadAll(); err != nil {
			t.Fatal(err)
		}
		if flip == i {
			data[s.Name][0] ^= 1
		}
		specs = append(specs, s.Spec)
	}
	f, err := os.Create(filepath.Join(out, "weights-of-another-name.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := safetensors.Write(f, specs, nil, data); err != nil {
		t.Fatal(err)
	}
	copyConfig(t, dir, out)
	return out
}

func copyConfig(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(from, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(to, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
}

// chainCase returns a case whose last stage was trained on a private intermediate, not on the stock base.
func chainCase(t *testing.T) (base string, adapters []string) {
	t.Helper()
	c := caseWhere(t, func(c mergeCase) bool { return len(c.adapters) > 1 })
	return testenv.OracleInputs(t, "models", "checkpoints", c.Base), c.adapters
}

// tryMerge merges with the given statement about the base and says what came of it.
func tryMerge(t *testing.T, base, out string, o MergeOptions, adapters ...string) (*Report, error) {
	t.Helper()
	p, err := openPlan(t, base, adapters...)
	if err != nil {
		t.Fatal(err)
	}
	o.Out = out
	report, err := p.Merge(context.Background(), o)
	if _, there := os.Stat(out); err != nil && there == nil {
		t.Errorf("%s was written although the merge failed", out)
	}
	return report, err
}

// TestCorrectBase walks through the ways in which a base can be shown, or not, to be the right one.
func TestCorrectBase(t *testing.T) {
	base, stages := chainCase(t)
	first, last := stages[0], stages[len(stages)-1]
	dir := t.TempDir()
	out := func(name string) string { return filepath.Join(dir, name) }
	state := func(path string) MergeOptions {
		return MergeOptions{JudgeOptions: JudgeOptions{Fingerprint: fingerprintOf(t, path).Text}}
	}
	mismatch := func(what string, err error) {
		t.Helper()
		var refused *MismatchError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v; want a MismatchError", what, err)
			return
		}
		for _, line := range []string{"published = ", "intended  = ", "missing   = ", "--accept-base-mismatch", "--base-fingerprint"} {
			if !strings.Contains(refused.Error(), line) {
				t.Errorf("%s: the message lacks %q:\n%v", what, line, err)
			}
		}
	}

	_, err := tryMerge(t, base, out("alone"), MergeOptions{}, last)
	mismatch("the last stage on the stock base", err)
	t.Logf("the message:\n%v", err)
	_, err = tryMerge(t, base, out("unshown"), MergeOptions{}, first)
	mismatch("a base that carries no hub id", err)
	if _, err = tryMerge(t, base, out("wrong"), MergeOptions{JudgeOptions: JudgeOptions{Fingerprint: "q1-00112233445566778899"}}, first); err == nil || !strings.Contains(err.Error(), "fingerprint") {
		t.Errorf("a wrong fingerprint: %v", err)
	}

	// The stages in order, the first shown by fingerprint; then the same step by step.
	chained, err := tryMerge(t, base, out("chained"), state(base), stages...)
	if err != nil {
		t.Fatal(err)
	}
	at, report, statement := base, (*Report)(nil), state(base)
	for i, stage := range stages {
		next := out("step") + string(rune('1'+i))
		if report, err = tryMerge(t, at, next, statement, stage); err != nil {
			t.Fatal(err)
		}
		at, statement = next, MergeOptions{} // from here on the record speaks
	}
	if report.Stages[0].Evidence != ByLineage {
		t.Errorf("the last step: %+v", report.Stages)
	}
	if report.Fingerprint != chained.Fingerprint {
		t.Errorf("the chain gives %s, step by step %s", chained.Fingerprint, report.Fingerprint)
	}

	// By lineage: the intermediate was recorded under the name that the next stage's adapter gives to it.
	a, err := Open(last)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	named := state(base)
	named.Name = a.Config.BaseModel
	intermediate := out("intermediate")
	if _, err := tryMerge(t, base, intermediate, named, stages[:len(stages)-1]...); err != nil {
		t.Fatal(err)
	}
	byLineage, err := tryMerge(t, intermediate, out("bylineage"), MergeOptions{}, last)
	if err != nil {
		t.Fatal(err)
	}
	if byLineage.Stages[0].Evidence != ByLineage || byLineage.Fingerprint != chained.Fingerprint {
		t.Errorf("by lineage: %+v", byLineage)
	}
	_, err = tryMerge(t, out("step1"), out("again"), MergeOptions{}, first)
	mismatch("the first stage on its own output", err)

	// A record whose weights were changed afterwards shows nothing.
	forged := reshard(t, intermediate, 3)
	record, err := os.ReadFile(filepath.Join(intermediate, LineageFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(forged, LineageFile), record, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := tryMerge(t, forged, out("forged"), MergeOptions{}, last); err == nil || !strings.Contains(err.Error(), "lineage record") {
		t.Errorf("changed weights under a record: %v", err)
	}

	// An accepted mismatch is written down, and stays in what is merged from it.
	published, err := tryMerge(t, base, out("published"), MergeOptions{JudgeOptions: accept}, last)
	if err != nil {
		t.Fatal(err)
	}
	if len(published.Warnings) == 0 || published.Fingerprint == chained.Fingerprint {
		t.Errorf("the mismatch left no trace: %+v", published)
	}
	_, err = tryMerge(t, out("published"), out("onwrong"), MergeOptions{}, last)
	mismatch("a private intermediate on a mismatched merge", err)
	further, err := tryMerge(t, out("published"), out("further"), state(out("published")), first)
	if err != nil {
		t.Fatal(err)
	}
	if lineageOf(t, out("further")).Mismatched() == false || len(further.Warnings) == 0 {
		t.Errorf("the mismatch was forgotten: %+v", further)
	}
	gguf, err := OpenBase(toGGUF(t, out("published"), convert.BF16))
	if err != nil {
		t.Fatal(err)
	}
	defer gguf.Close()
	if gguf.Origin.Lineage == nil || !gguf.Origin.Lineage.Mismatched() {
		t.Error("the GGUF of the merge has no lineage")
	}
}

func lineageOf(t *testing.T, dir string) *Lineage {
	t.Helper()
	b, err := OpenBase(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	return b.Origin.Lineage
}

// TestHubID: a base that carries the hub id that the adapter names is the right one; siblings are no chain.
func TestHubID(t *testing.T) {
	base, stages := chainCase(t)
	a, err := Open(stages[0])
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	if !isHubID(a.Config.BaseModel) {
		t.Skipf("the first stage names %s", a.Config.BaseModel)
	}
	dir := t.TempDir()
	carrying := withConfig(t, base, "_name_or_path", a.Config.BaseModel)
	report, err := tryMerge(t, carrying, filepath.Join(dir, "ok"), MergeOptions{}, stages[0])
	if err != nil || report.Stages[0].Evidence != ByHubID {
		t.Errorf("by hub id: %+v, %v", report, err)
	}
	other := withConfig(t, base, "_name_or_path", "someone/another-model")
	if _, err := tryMerge(t, other, filepath.Join(dir, "other"), MergeOptions{}, stages[0]); err == nil {
		t.Error("merged into a base that carries another hub id")
	}
	if _, err := tryMerge(t, carrying, filepath.Join(dir, "twins"), MergeOptions{}, stages[0], stages[0]); err == nil || !strings.Contains(err.Error(), "itself") {
		t.Errorf("two adapters of the same base as a chain: %v", err)
	}
	cached := filepath.Join(t.TempDir(), "models--"+strings.ReplaceAll(a.Config.BaseModel, "/", "--"), "snapshots", "0123abc")
	if err := os.MkdirAll(filepath.Dir(cached), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(base, cached); err != nil {
		t.Skip(err)
	}
	report, err = tryMerge(t, cached, filepath.Join(dir, "cached"), MergeOptions{}, stages[0])
	if err != nil || report.Stages[0].Evidence != ByHubID {
		t.Errorf("out of the download cache: %+v, %v", report, err)
	}
	ofCached := toGGUF(t, cached, convert.BF16) // the conversion passes the id on
	report, err = tryMerge(t, ofCached, filepath.Join(dir, "cached.gguf"), MergeOptions{}, stages[0])
	if err != nil || report.Stages[0].Evidence != ByHubID {
		t.Errorf("a GGUF of what was in the download cache: %+v, %v", report, err)
	}
	if !isFile(filepath.Join(dir, "cached", "config.json")) || !isFile(filepath.Join(dir, "cached", "tokenizer.json")) {
		t.Error("out of a linked folder: the files beside the weights are missing")
	}
}

func TestLastTwo(t *testing.T) {
	for address, want := range map[string]string{"org/name": "org/name", "https://hub.example/org/name": "org/name", "https://hub.example/org/name/": "org/name", "name": "name", "": ""} {
		if got := lastTwo(address); got != want {
			t.Errorf("%q: %q, want %q", address, got, want)
		}
	}
}

// withConfig copies a checkpoint, with one key of its config.json set.
func withConfig(t *testing.T, dir, key string, value any) string {
	t.Helper()
	out := reshard(t, dir, -1)
	var config map[string]any
	readJSON(t, filepath.Join(out, "config.json"), &config)
	config[key] = value
	data, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, "config.json"), data, 0o644); err != nil {
		t.Fatal(err)
	}
	return out
}
