package lora

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/convert"
	"quern/gguf"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

// The faults that people reported of other tools, tried on this one.

// changeAdapter copies an adapter with its configuration and its tensors changed. edit may rename a tensor, change its
// values in place, or drop it by returning "".
func changeAdapter(t *testing.T, dir string, config map[string]any, edit func(name string, data []byte) string) string {
	t.Helper()
	var fields map[string]any
	readJSON(t, filepath.Join(dir, ConfigFile), &fields)
	for key, value := range config {
		fields[key] = value
	}
	f, err := safetensors.Open(filepath.Join(dir, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var specs []tensor.Spec
	contents := map[string][]byte{}
	for i := range f.Tensors {
		s := &f.Tensors[i]
		data, err := s.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		name := s.Name
		if edit != nil {
			name = edit(s.Name, data)
		}
		if name != "" {
			specs = append(specs, tensor.Spec{Name: name, DType: s.DType, Shape: s.Shape})
			contents[name] = data
		}
	}
	out := t.TempDir()
	text, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(out, ConfigFile), text, 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := os.Create(filepath.Join(out, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if err := safetensors.Write(w, specs, nil, contents); err != nil {
		t.Fatal(err)
	}
	return out
}

// plainCase returns a case with one stage of plain LoRA on the layers of its base.
func plainCase(t *testing.T) (base, adapter string) {
	t.Helper()
	c := caseWhere(t, func(c mergeCase) bool {
		a, err := Open(c.adapters[0])
		if err != nil {
			t.Fatal(err)
		}
		defer a.Close()
		plain := len(c.adapters) == 1 && a.Config.kind() == "LoRA" && !a.Config.Targets.Modules.regex && len(a.Config.RankPattern)+len(a.Config.AlphaPattern) == 0
		for _, m := range a.Modules {
			plain = plain && m.isLinear() && len(m.tensors) == 2 && strings.HasPrefix(m.Path, "model.layers.")
		}
		return plain
	})
	return testenv.OracleInputs(t, "models", "checkpoints", c.Base), c.adapters[0]
}

// TestSpellings: the same adapter under all the names that its modules go by gives the same merge.
func TestSpellings(t *testing.T) {
	base, adapter := plainCase(t)
	want := fingerprintOf(t, merge(t, base, MergeOptions{}, adapter))
	for _, root := range []string{"model.language_model.layers.", "language_model.model.layers.", "layers.", "_orig_mod.model.layers.", "base_model.model.model.layers."} {
		renamed := changeAdapter(t, adapter, nil, func(name string, _ []byte) string { return strings.Replace(name, "model.layers.", root, 1) })
		if got := fingerprintOf(t, merge(t, base, MergeOptions{}, renamed)); got != want {
			t.Errorf("%s: another merge", root)
		}
	}
	named := changeAdapter(t, adapter, nil, func(name string, _ []byte) string { return strings.Replace(name, ".weight", ".default.weight", 1) })
	if got := fingerprintOf(t, merge(t, base, MergeOptions{}, named)); got != want {
		t.Error("with the adapter's name in the tensors: another merge")
	}
	both := changeAdapter(t, adapter, nil, func(name string, _ []byte) string {
		if strings.Contains(name, ".layers.0.") && strings.Contains(name, "lora_A") {
			return strings.Replace(name, "model.layers.", "model.language_model.layers.", 1)
		}
		return name
	})
	if _, err := openPlan(t, base, both); err == nil {
		t.Error("one module under two names was taken")
	}
	odd := changeAdapter(t, adapter, nil, func(name string, _ []byte) string { return strings.Replace(name, "model.layers.", "model.blocks.", 1) })
	if _, err := openPlan(t, base, odd); err == nil || !strings.Contains(err.Error(), "nearest: model.layers.") {
		t.Errorf("names that the base does not have: %v", err)
	}
}

// TestScale: a scale of 2 is the same as twice the alpha.
func TestScale(t *testing.T) {
	base, adapter := plainCase(t)
	a, err := Open(adapter)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	doubled := changeAdapter(t, adapter, map[string]any{"lora_alpha": 2 * a.Config.Alpha}, nil)
	want := fingerprintOf(t, merge(t, base, MergeOptions{}, doubled))
	p, err := openPlan(t, base, adapter)
	if err != nil {
		t.Fatal(err)
	}
	p, err = NewPlan(p.Base, []Stage{{p.Stages[0].Adapter, 2}})
	if err != nil {
		t.Fatal(err)
	}
	report, err := p.Merge(context.Background(), MergeOptions{Out: filepath.Join(t.TempDir(), "m"), JudgeOptions: accept})
	if err != nil {
		t.Fatal(err)
	}
	if report.Fingerprint != want.Text || report.Stages[0].Scale != 2 {
		t.Errorf("%+v, want %s", report, want)
	}
}

// TestNothingChanges: a merge that would give the base again is an error, since something has gone wrong before.
func TestNothingChanges(t *testing.T) {
	base, adapter := plainCase(t)
	empty := changeAdapter(t, adapter, nil, func(name string, data []byte) string {
		if strings.Contains(name, "lora_B") {
			clear(data)
		}
		return name
	})
	out := filepath.Join(t.TempDir(), "m")
	if _, err := tryMerge(t, base, out, MergeOptions{JudgeOptions: accept}, empty); err == nil || !strings.Contains(err.Error(), "base itself") {
		t.Errorf("a merge without changes: %v", err)
	}
	partly := changeAdapter(t, adapter, nil, func(name string, data []byte) string {
		if strings.Contains(name, "lora_B") && strings.Contains(name, ".layers.0.") {
			clear(data)
		}
		return name
	})
	report, err := tryMerge(t, base, out, MergeOptions{JudgeOptions: accept}, partly)
	if err != nil || !strings.Contains(strings.Join(report.Warnings, "\n"), "did not change") {
		t.Errorf("a merge with some changes: %+v, %v", report, err)
	}
}

// TestQuantisedBase: the warning says what storing the weights again costs; a finer type costs less; what cannot be
// written is refused with the way out.
func TestQuantisedBase(t *testing.T) {
	base, adapter := plainCase(t)
	q8 := toGGUF(t, base, convert.Q8_0)
	cost := func(o MergeOptions) string {
		t.Helper()
		o.JudgeOptions = accept
		report, err := tryMerge(t, q8, filepath.Join(t.TempDir(), "m.gguf"), o, adapter)
		if err != nil {
			t.Fatal(err)
		}
		for _, w := range report.Warnings {
			if strings.Contains(w, "quantised") {
				return w
			}
		}
		return ""
	}
	same, coarse, fine := cost(MergeOptions{}), cost(MergeOptions{Type: tensor.Q4_0}), cost(MergeOptions{Type: tensor.F32})
	t.Logf("same type: %s\nQ4_0: %s\nF32: %s", same, coarse, fine)
	if !strings.Contains(same, "%") || coarse == same || !strings.Contains(fine, "no error") {
		t.Error("the warnings do not say what was measured")
	}

	wide := wideGGUF(t, tensor.Q4_K)
	b, err := OpenBase(wide)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	on := writeAdapter(t, b, "model.layers.0.self_attn.q_proj")
	out := filepath.Join(t.TempDir(), "m.gguf")
	if _, err := tryMerge(t, wide, out, MergeOptions{JudgeOptions: accept}, on); err == nil || !strings.Contains(err.Error(), "--type") {
		t.Errorf("a K-quant in its own type: %v", err)
	}
	report, err := tryMerge(t, wide, out, MergeOptions{JudgeOptions: accept, Type: tensor.Q8_0}, on)
	if err != nil {
		t.Fatal(err)
	}
	if len(report.Changed) != 1 || report.Changed[0].Type != "Q8_0" {
		t.Errorf("%+v", report.Changed)
	}
	if fit := verify(t, wide, out, on); fit.Verdict != Merged {
		t.Errorf("%+v", fit)
	}
}

// wideGGUF writes a tiny model whose rows fill blocks of 256, its matrices in the given type.
func wideGGUF(t *testing.T, kind tensor.DType) string {
	t.Helper()
	const n = 256
	rng := rand.New(rand.NewPCG(11, 12))
	specs := []tensor.Spec{{Name: "token_embd.weight", DType: tensor.F32, Shape: tensor.Shape{8, n}}, {Name: "output_norm.weight", DType: tensor.F32, Shape: tensor.Shape{n}}}
	for name, shape := range map[string]tensor.Shape{"attn_q.weight": {n, n}, "attn_k.weight": {n, n}, "attn_v.weight": {n, n}, "attn_output.weight": {n, n},
		"attn_q.bias": {n}, "attn_k.bias": {n}, "attn_v.bias": {n}, "attn_norm.weight": {n}, "ffn_norm.weight": {n},
		"ffn_gate.weight": {n, n}, "ffn_up.weight": {n, n}, "ffn_down.weight": {n, n}} {
		spec := tensor.Spec{Name: "blk.0." + name, DType: tensor.F32, Shape: shape}
		if len(shape) > 1 {
			spec.DType = kind
		}
		specs = append(specs, spec)
	}
	data := map[string][]byte{}
	for _, s := range specs {
		size, err := s.DType.Bytes(s.Shape)
		if err != nil {
			t.Fatal(err)
		}
		data[s.Name] = make([]byte, size)
		if s.DType == tensor.F32 {
			for i := range size / 4 {
				binary.LittleEndian.PutUint32(data[s.Name][4*i:], 0x3f000000+rng.Uint32N(1<<20))
			}
			continue
		}
		for block := range size / int64(s.DType.BlockBytes()) { // small scales in front, then anything
			b := data[s.Name][block*int64(s.DType.BlockBytes()):][:s.DType.BlockBytes()]
			for i := range b {
				b[i] = byte(rng.Uint32())
			}
			binary.LittleEndian.PutUint16(b, 0x1000)
			binary.LittleEndian.PutUint16(b[2:], 0x1000)
		}
	}
	out := filepath.Join(t.TempDir(), "wide.gguf")
	f, err := os.Create(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	meta := gguf.Metadata{{Key: "general.architecture", Value: "qwen2"}, {Key: "qwen2.block_count", Value: uint32(1)}, {Key: "qwen2.context_length", Value: uint32(64)},
		{Key: "qwen2.embedding_length", Value: uint32(n)}, {Key: "qwen2.feed_forward_length", Value: uint32(n)},
		{Key: "qwen2.attention.head_count", Value: uint32(4)}, {Key: "qwen2.attention.head_count_kv", Value: uint32(4)}}
	if err := gguf.Write(f, meta, specs, data); err != nil {
		t.Fatal(err)
	}
	return out
}

// TestWholeHeadOfTied: trained embedding and head on a base where they are one tensor give two, and stay two.
func TestWholeHeadOfTied(t *testing.T) {
	for _, c := range checkpoints(t) {
		b, err := OpenBase(c)
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		if !b.tied() {
			continue
		}
		w := b.byKey[embedKey][0]
		adapter := writeWhole(t, w.Shape, "model.embed_tokens", "lm_head")
		out := merge(t, c, MergeOptions{}, adapter)
		if checkpointHash(t, out, "lm_head.weight") == checkpointHash(t, out, "model.embed_tokens.weight") {
			t.Errorf("%s: one tensor for both", filepath.Base(c))
		}
		var config struct {
			Tied bool `json:"tie_word_embeddings"`
		}
		readJSON(t, filepath.Join(out, "config.json"), &config)
		if config.Tied {
			t.Errorf("%s: the configuration ties them again", filepath.Base(c))
		}
		larger := writeWhole(t, tensor.Shape{w.Shape[0] + 2, w.Shape[1]}, "model.embed_tokens", "lm_head")
		if _, err := openPlan(t, c, larger); err == nil || !strings.Contains(err.Error(), "vocabulary") {
			t.Errorf("%s: an adapter of a larger vocabulary: %v", filepath.Base(c), err)
		}
	}
}

// writeWhole makes an adapter that holds whole weights of modules (modules_to_save), and nothing else.
func writeWhole(t *testing.T, shape tensor.Shape, modules ...string) string {
	t.Helper()
	dir := t.TempDir()
	rng := rand.New(rand.NewPCG(13, 14))
	var specs []tensor.Spec
	data := map[string][]byte{}
	for _, m := range modules {
		s := tensor.Spec{Name: "base_model.model." + m + ".modules_to_save.weight", DType: tensor.BF16, Shape: shape}
		n, _ := s.DType.Bytes(shape)
		data[s.Name] = make([]byte, n)
		for i := range n / 2 {
			binary.LittleEndian.PutUint16(data[s.Name][2*i:], 0x3c00+uint16(rng.Uint32N(256)))
		}
		specs = append(specs, s)
	}
	f, err := os.Create(filepath.Join(dir, weightsFile))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := safetensors.Write(f, specs, nil, data); err != nil {
		t.Fatal(err)
	}
	config := `{"peft_type":"LORA","target_modules":[],"modules_to_save":["embed_tokens","lm_head"]}`
	if err := os.WriteFile(filepath.Join(dir, ConfigFile), []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// TestBrokenBase: bases that were cut short are refused before anything is written.
func TestBrokenBase(t *testing.T) {
	base, adapter := plainCase(t)
	file := toGGUF(t, base, convert.BF16)
	if err := os.Truncate(file, 300_000); err != nil {
		t.Fatal(err)
	}
	if _, err := openPlan(t, file, adapter); err == nil {
		t.Error("a GGUF that was cut short was taken")
	}
	dir := reshard(t, base, -1)
	if err := os.Truncate(filepath.Join(dir, "weights-of-another-name.safetensors"), 200_000); err != nil {
		t.Fatal(err)
	}
	if _, err := openPlan(t, dir, adapter); err == nil {
		t.Error("a checkpoint that was cut short was taken")
	}
	if _, err := openPlan(t, withConfig(t, base, "quantization_config", map[string]any{"quant_method": "bitsandbytes"}), adapter); err == nil || !strings.Contains(err.Error(), "quantised") {
		t.Errorf("a base in 4 bits: %v", err)
	}
}

// TestBNBName: an adapter that names a base in 4 bits says so when it is refused.
func TestBNBName(t *testing.T) {
	base, adapter := plainCase(t)
	named := changeAdapter(t, adapter, map[string]any{"base_model_name_or_path": "someone/model-bnb-4bit"}, nil)
	if _, err := tryMerge(t, base, filepath.Join(t.TempDir(), "m"), MergeOptions{}, named); err == nil || !strings.Contains(err.Error(), "4 bits") {
		t.Errorf("%v", err)
	}
}

// TestCancel: a merge that is stopped leaves nothing behind.
func TestCancel(t *testing.T) {
	base, adapter := plainCase(t)
	for _, from := range []string{base, toGGUF(t, base, convert.BF16)} {
		p, err := openPlan(t, from, adapter)
		if err != nil {
			t.Fatal(err)
		}
		dir := t.TempDir()
		out := filepath.Join(dir, "m")
		if p.Base.IsGGUF() {
			out += ".gguf"
		}
		ctx, cancel := context.WithCancel(context.Background())
		_, err = p.Merge(ctx, MergeOptions{Out: out, JudgeOptions: accept, Progress: func(int64, int64) { cancel() }})
		if err != context.Canceled {
			t.Errorf("%v", err)
		}
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	}
}

// TestCopyOfBase: an adapter that carries a copy of its base's embedding shows that another base is not its own.
func TestCopyOfBase(t *testing.T) {
	for _, c := range mergeCases(t) {
		p, err := openPlan(t, testenv.OracleInputs(t, "models", "checkpoints", c.Base), c.adapters...)
		if err != nil {
			t.Fatal(err)
		}
		last := p.Stages[len(p.Stages)-1].Adapter
		for _, m := range last.Modules {
			if !m.has(roleBaseWeight) || len(p.Stages) > 1 {
				continue
			}
			other := reshard(t, testenv.OracleInputs(t, "models", "checkpoints", c.Base), indexOf(t, p.Base, m))
			q, err := openPlan(t, other, c.adapters...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = q.Judge(context.Background(), JudgeOptions{Fingerprint: fingerprintOf(t, other).Text})
			if err == nil || !strings.Contains(err.Error(), "copy") {
				t.Errorf("%s: another embedding under the adapter's copy: %v", c.Case, err)
			}
			return
		}
	}
	t.Log("no adapter here carries a copy")
}

// indexOf returns the place of a module's weight among the checkpoint's tensors.
func indexOf(t *testing.T, b *Base, m *Module) int {
	t.Helper()
	for i, w := range b.Weights {
		if w.Key == rootless(m.Path)+".weight" {
			return i
		}
	}
	t.Fatalf("no weight for %s", m.Path)
	return 0
}
