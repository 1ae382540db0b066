package lora

import (
	"fmt"
	"slices"
	"strings"

	"quern/tensor"
)

// Stage is one adapter of a chain, with the factor that its strength is multiplied by: 1 as trained.
type Stage struct {
	Adapter *Adapter
	Scale   float64
}

// Plan says which tensors of a base the stages change, and how. Making one proves that each adapter fits: every tensor
// of it lands on exactly one tensor of the base, in the right shape, and every target that its configuration declares
// is hit. The base and the adapters must stay open while the Plan is used.
type Plan struct {
	Base   *Base
	Stages []Stage
	Notes  []string // what a person should know: an untied head, for one

	targets map[*Weight]*target
	head    *target // the output head, once it is no longer the embedding
	// contradictions are tensors of the base that an adapter holds a different copy of, by stage.
	contradictions map[int][]string
}

// target is a tensor that is changed.
type target struct {
	source *Weight
	edits  []stagedEdit
}

// NewPlan plans the merge of the stages, in order, into the base.
func NewPlan(base *Base, stages []Stage) (*Plan, error) {
	p := &Plan{Base: base, Stages: stages, targets: map[*Weight]*target{}, contradictions: map[int][]string{}}
	for i := range stages {
		s := &stagePlanner{Plan: p, stage: i + 1, Stage: stages[i], modules: stages[i].Adapter.Modules}
		if err := s.plan(); err != nil {
			return nil, fmt.Errorf("adapter %s does not fit %s: %w", stages[i].Adapter.Path, base.Path, err)
		}
	}
	return p, nil
}

// stagePlanner adds one adapter to a Plan.
type stagePlanner struct {
	*Plan
	Stage
	stage   int       // counted from 1
	modules []*Module // the adapter's, less those that say again what another says
}

func (s *stagePlanner) plan() error {
	if err := s.checkPlaces(); err != nil {
		return err
	}
	if err := s.untie(); err != nil {
		return err
	}
	for _, m := range s.modules {
		if err := s.addModule(m); err != nil {
			return fmt.Errorf("module %s: %w", m.Path, err)
		}
	}
	return s.checkDeclared()
}

// checkPlaces finds the modules that the base does not have, and those that two names of the adapter stand for.
func (s *stagePlanner) checkPlaces() error {
	var missing []string
	byKey := map[string]*Module{}
	for _, m := range s.modules {
		key := rootless(m.Path)
		if twin := byKey[key]; twin != nil {
			return fmt.Errorf("%s and %s are names of the same module", twin.Path, m.Path)
		}
		byKey[key] = m
		if s.Base.hasModule(key) || key == "lm_head" && s.Base.tied() {
			continue
		}
		missing = append(missing, m.Path)
	}
	if len(missing) == 0 {
		return s.checkTargeted()
	}
	var list []string
	for _, path := range missing[:min(3, len(missing))] {
		list = append(list, fmt.Sprintf("%s (nearest: %s)", path, strings.Join(nearest(path, s.Base.moduleNames(), 2), ", ")))
	}
	return fmt.Errorf("%d of its %d modules are not in the base: %s%s", len(missing), len(s.modules),
		strings.Join(list, "; "), ellipsis(len(missing) > 3))
}

// checkTargeted finds modules with LoRA that the configuration does not put it on; PEFT would leave them out.
func (s *stagePlanner) checkTargeted() error {
	c := s.Adapter.Config
	for _, m := range s.modules {
		if (m.isLinear() || m.isEmbedding()) && !c.targets(m.Path) {
			return fmt.Errorf("module %s has LoRA tensors, but target_modules (%s) and what narrows them do not name it", m.Path, c.Targets.Modules)
		}
	}
	return nil
}

func ellipsis(more bool) string {
	if more {
		return "; …"
	}
	return ""
}

// hasModule tells whether the base has a weight or a bias of that module.
func (b *Base) hasModule(key string) bool {
	return len(b.byKey[key+".weight"])+len(b.byKey[key+".bias"]) > 0
}

// moduleNames returns the base's modules as its tensors name them.
func (b *Base) moduleNames() []string {
	var names []string
	for _, w := range b.Weights {
		name := w.Name
		if b.IsGGUF() {
			name = "model." + w.Key
		}
		if module, ok := strings.CutSuffix(name, ".weight"); ok {
			names = append(names, module)
		}
	}
	return names
}

// module returns the adapter's module of that key, nil if it has none.
func (s *stagePlanner) module(key string) *Module {
	for _, m := range s.Adapter.Modules {
		if rootless(m.Path) == key {
			return m
		}
	}
	return nil
}

// addModule adds the edits of one module.
func (s *stagePlanner) addModule(m *Module) error {
	weight, bias, err := s.places(m)
	if err != nil {
		return err
	}
	for _, copied := range []struct {
		role role
		to   *target
	}{{roleBaseWeight, weight}, {roleBaseBias, bias}, {roleWeight, weight}, {roleBias, bias}} {
		if t := m.tensors[copied.role]; t != nil {
			if err := s.addWhole(m, copied.role, t, copied.to); err != nil {
				return err
			}
		}
	}
	if m.isLinear() || m.isEmbedding() {
		if err := s.addLowRank(m, weight); err != nil {
			return err
		}
	}
	if t := m.tensors[roleBBias]; t != nil {
		if bias == nil {
			return fmt.Errorf("lora_bias needs a bias of the base to be added to, and the base has none there")
		}
		if t.Shape[0] != bias.source.width {
			return fmt.Errorf("%s has %d values, the bias of the base has %d", roleBBias, t.Shape[0], bias.source.width)
		}
		bias.add(s.stage, &addBias{t, m.Scale * s.Scale})
	}
	if t := m.tensors[roleTokens]; t != nil {
		return s.addTokens(m, t, weight)
	}
	return nil
}

// places returns the targets for a module's weight and bias, nil for what the base does not have.
func (s *stagePlanner) places(m *Module) (weight, bias *target, err error) {
	key := rootless(m.Path)
	if key == "lm_head" && s.head != nil {
		return s.head, nil, nil
	}
	if key == "lm_head" && s.Base.tied() {
		key = "embed_tokens"
	}
	find := func(key string) (*target, error) {
		w, err := s.Base.lookup(key)
		if w == nil || err != nil {
			return nil, err
		}
		return s.target(w), nil
	}
	if weight, err = find(key + ".weight"); err != nil {
		return nil, nil, err
	}
	bias, err = find(key + ".bias")
	return weight, bias, err
}

func (p *Plan) target(w *Weight) *target {
	t := p.targets[w]
	if t == nil {
		t = &target{source: w}
		p.targets[w] = t
	}
	return t
}

func (t *target) add(stage int, e edit) { t.edits = append(t.edits, stagedEdit{stage, e}) }

// addLowRank adds LoRA or DoRA to a weight.
func (s *stagePlanner) addLowRank(m *Module, to *target) error {
	if to == nil {
		return fmt.Errorf("the base has no weight there")
	}
	roleOfA, roleOfB := m.factorRoles()
	a, b := m.tensors[roleOfA].Shape, m.tensors[roleOfB].Shape
	shape := to.source.Shape
	want := tensor.Shape{b[0], a[1]}
	if m.isEmbedding() {
		want = tensor.Shape{a[1], b[0]}
	}
	if !shape.Equal(want) {
		return fmt.Errorf("%s %v and %s %v make a change of %v, but %s of the base is %v%s: was it made for another base?", roleOfA, a, roleOfB, b, want, to.source.Name, shape, vocabularyHint(to.source, want))
	}
	e := lowRank{module: m, scale: m.Scale * s.Scale, roundDelta: m.isEmbedding() || s.Adapter.Config.Init == initMiCA}
	switch {
	case m.has(roleMagnitude) && m.isEmbedding():
		d := &doraEmbedding{lowRank: e}
		d.columns = columns(to.source, slices.Clone(to.edits))
		to.add(s.stage, d)
	case m.has(roleMagnitude):
		to.add(s.stage, &dora{e})
	default:
		to.add(s.stage, &e)
	}
	return nil
}

// vocabularyHint explains a different number of rows of an embedding or a head.
func vocabularyHint(w *Weight, want tensor.Shape) string {
	if (w.Key == embedKey || w.Key == headKey) && len(want) == 2 && want[1] == w.Shape[1] {
		return " (another size of the vocabulary, which is not supported; resize the base's embeddings first)"
	}
	return ""
}

// addWhole adds a tensor that the adapter holds whole: a trained one takes the place of the base's, a copy of the
// base's must equal it.
func (s *stagePlanner) addWhole(m *Module, r role, t *tensor.Stored, to *target) error {
	if to == nil {
		return fmt.Errorf("the adapter holds its %s, but the base has none there", r)
	}
	w := to.source
	if !t.Shape.Equal(w.Shape) {
		n, err := t.Shape.Elements()
		if err != nil || !w.isVector() || n != w.width { // GGUF drops axes of 1
			return fmt.Errorf("%s is %v, but %s of the base is %v%s", r, t.Shape, w.Name, w.Shape, vocabularyHint(w, t.Shape))
		}
	}
	trained := s.Adapter.Config.saves(m.Path) && (r == roleWeight || r == roleBias) ||
		s.Adapter.Config.Bias != "none" && (r == roleBias || r == roleBaseBias)
	if !trained {
		if same, err := sameValues(t, w); same || err != nil {
			return err
		}
		s.contradictions[s.stage] = append(s.contradictions[s.stage], w.Name)
	}
	to.add(s.stage, &replace{t})
	return nil
}

// isVector tells whether a tensor has one axis only.
func (w *Weight) isVector() bool { return len(w.Shape) < 2 }

// addTokens adds the trained rows of an embedding. A head that is the embedding gets them with it.
func (s *stagePlanner) addTokens(m *Module, t *tensor.Stored, to *target) error {
	if to == nil {
		return fmt.Errorf("the base has no weight there")
	}
	ids, _ := s.Adapter.Config.tokensOf(m.Path)
	if t.Shape[1] != to.source.width {
		return fmt.Errorf("its trained tokens are %d wide, %s of the base is %d", t.Shape[1], to.source.Name, to.source.width)
	}
	if err := checkTokenIDs(ids, to.source.rows); err != nil {
		return err
	}
	to.add(s.stage, &tokenRows{t, ids})
	return nil
}

// untie gives the base a head of its own where the adapter changes the head or the embedding but not both alike.
func (s *stagePlanner) untie() error {
	if !s.Base.tied() || s.head != nil {
		return nil
	}
	embed, head := s.module("embed_tokens"), s.module("lm_head")
	changed := func(m *Module) bool {
		return m != nil && (m.isLinear() || m.isEmbedding() || m.has(roleWeight) && s.Adapter.Config.saves(m.Path))
	}
	tokensApart := head != nil && head.has(roleTokens)
	if !changed(embed) && !changed(head) && !tokensApart {
		return nil
	}
	if s.Adapter.Config.TiedWeights && embed != nil && head != nil {
		alike, err := sameChange(embed, head)
		if err != nil {
			return err
		}
		if alike { // ensure_weight_tying: the adapter holds the one change twice
			s.modules = slices.DeleteFunc(slices.Clone(s.modules), func(m *Module) bool { return m == head })
			return nil
		}
	}
	source, err := s.Base.lookup(embedKey)
	if err != nil {
		return err
	}
	s.head = &target{source: source}
	if before := s.targets[source]; before != nil {
		s.head.edits = slices.Clone(before.edits)
	}
	s.Notes = append(s.Notes, fmt.Sprintf("the base shares one tensor between embedding and output head, and %s changes only one of them, or each in its own way: the merged model has a head of its own (tie_word_embeddings is false)", s.Adapter.Name()))
	return nil
}

// sameChange tells whether the head's tensors say the same as the embedding's, with A and B transposed and exchanged.
func sameChange(embed, head *Module) (bool, error) {
	if embed.has(roleWeight) && head.has(roleWeight) {
		return sameBytes(embed.tensors[roleWeight], head.tensors[roleWeight])
	}
	if !embed.isEmbedding() || !head.isLinear() || embed.has(roleMagnitude) {
		return false, nil
	}
	a, err := transposed(embed.tensors[roleEmbedB])
	if err != nil {
		return false, err
	}
	b, err := transposed(embed.tensors[roleEmbedA])
	if err != nil {
		return false, err
	}
	headA, err := head.tensors[roleA].ReadFloats()
	if err != nil {
		return false, err
	}
	headB, err := head.tensors[roleB].ReadFloats()
	return slices.Equal(a, headA) && slices.Equal(b, headB), err
}

func transposed(t *tensor.Stored) ([]float32, error) {
	x, err := t.ReadFloats()
	if err != nil {
		return nil, err
	}
	return transpose(x, int(t.Shape[0]), int(t.Shape[1])), nil
}

func sameBytes(a, b *tensor.Stored) (bool, error) {
	x, err := a.ReadAll()
	if err != nil {
		return false, err
	}
	y, err := b.ReadAll()
	return string(x) == string(y) && a.DType == b.DType, err
}

// sameValues compares a copy in an adapter with the base's tensor: equal once either is rounded to the other's type.
func sameValues(t *tensor.Stored, w *Weight) (bool, error) {
	copied, err := t.ReadFloats()
	if err != nil {
		return false, err
	}
	base, err := w.values()
	if err != nil {
		return false, err
	}
	return equalIn(copied, base, w.DType) || equalIn(base, copied, t.DType), nil
}

// equalIn tells whether x rounded to the type is y.
func equalIn(x, y []float32, t tensor.DType) bool {
	if len(x) != len(y) || !isFloat(t) {
		return false
	}
	for i, v := range x {
		if rounded(v, t) != y[i] {
			return false
		}
	}
	return true
}

// values reads a whole tensor in the checkpoint's layout.
func (w *Weight) values() ([]float32, error) {
	all := make([]float32, w.rows*w.width)
	err := w.eachBlock(func(x []float32, first int) error {
		copy(all[int64(first)*w.width:], x)
		return nil
	})
	return all, err
}

// eachBlock visits the values of a tensor, some rows at a time.
func (w *Weight) eachBlock(visit func(x []float32, first int) error) error {
	j := newJob(w, w.Spec, nil, false, 0)
	r := &renderer{}
	for block := range w.numBlocks() {
		if _, err := r.block(j, block); err != nil {
			return err
		}
		x := make([]float32, int64(len(r.in))/int64(w.DType.BlockBytes())*int64(w.DType.BlockLen()))
		if err := w.decode(x, r.in, w.DType, w.width); err != nil {
			return err
		}
		if err := visit(x, int(block*w.blockRows())); err != nil {
			return err
		}
	}
	return nil
}

// columns makes a function that visits a tensor's values after the given edits, for an edit that needs all rows.
// stored is the type that the values are kept in.
func columns(w *Weight, edits []stagedEdit) func(stored tensor.DType, visit func(x []float32, first int)) error {
	return func(stored tensor.DType, visit func(x []float32, first int)) error {
		loaded := make([]loadedEdit, len(edits))
		for i, e := range edits {
			var err error
			if loaded[i], err = e.load(stored); err != nil {
				return err
			}
		}
		return w.eachBlock(func(x []float32, first int) error {
			roundTo(x, stored)
			for i := range loaded {
				loaded[i].apply(x, first)
				roundTo(x, stored)
			}
			visit(x, first)
			return nil
		})
	}
}

// checkDeclared checks that what the configuration announces is there: for each of the base's modules that it targets
// there must be LoRA tensors, and each of its names must stand for something.
func (s *stagePlanner) checkDeclared() error {
	c := s.Adapter.Config
	if missing := s.biasesWithoutTensors(); len(missing) > 0 {
		return fmt.Errorf("its bias is %q, but it holds no trained bias for %s%s; is the adapter whole?", c.Bias, missing[0], ellipsis(len(missing) > 1))
	}
	if missing := s.targetsWithoutTensors(); len(missing) > 0 {
		return fmt.Errorf("its configuration targets %d modules that it holds no tensors for: %s%s; is the adapter whole?",
			len(missing), strings.Join(missing[:min(3, len(missing))], ", "), ellipsis(len(missing) > 3))
	}
	if !c.Targets.Modules.regex && !c.Targets.Modules.all {
		for _, name := range c.Targets.Modules.names {
			if !s.standsForSomething(name) {
				return fmt.Errorf("its configuration targets %q, but the base has no such module (nearest: %s)",
					name, strings.Join(nearest(name, s.Base.leafNames(), 2), ", "))
			}
		}
	}
	for _, name := range c.ModulesToSave {
		saved := slices.ContainsFunc(s.Adapter.Modules, func(m *Module) bool {
			return m.has(roleWeight) && (&Config{ModulesToSave: []string{name}}).saves(m.Path)
		})
		if !saved && !(name == "lm_head" && c.TiedWeights) {
			return fmt.Errorf("modules_to_save names %q, but the adapter holds no such tensor", name)
		}
	}
	if len(c.TrainableTokens) > 0 && !slices.ContainsFunc(s.Adapter.Modules, func(m *Module) bool { return m.has(roleTokens) }) {
		return fmt.Errorf("trainable_token_indices is set, but the adapter holds no trained tokens")
	}
	return nil
}

// biasesWithoutTensors lists the modules of the language model whose bias was trained, but is not in the adapter.
func (s *stagePlanner) biasesWithoutTensors() []string {
	c := s.Adapter.Config
	var missing []string
	for _, w := range s.Base.Weights {
		key, isBias := strings.CutSuffix(w.Key, ".bias")
		if !isBias || w.part != partText || c.Bias == "none" {
			continue
		}
		m := s.module(key)
		adapted := m != nil && (m.isLinear() || m.isEmbedding())
		if (c.Bias == "all" || adapted) && (m == nil || !m.has(roleBias) && !m.has(roleBaseBias)) {
			missing = append(missing, key)
		}
	}
	return missing
}

// targetsWithoutTensors lists the linear layers of the language model that the configuration puts LoRA on, but for
// which the adapter has none.
func (s *stagePlanner) targetsWithoutTensors() []string {
	c := s.Adapter.Config
	have := map[string]bool{}
	root := ""
	for _, m := range s.Adapter.Modules {
		key := rootless(m.Path)
		have[key] = have[key] || m.isLinear() || m.isEmbedding()
		if strings.HasPrefix(key, "layers.") {
			root = strings.TrimSuffix(m.Path, key)
		}
	}
	var missing []string
	for _, w := range s.Base.Weights {
		key, isWeight := strings.CutSuffix(w.Key, ".weight")
		plainLinear := w.isLinear() && !(c.Targets.Modules.all && isRouting(key))
		if !isWeight || have[key] || !plainLinear && (c.Targets.Modules.all || w.Key != embedKey && w.Key != headKey) {
			continue
		}
		path := root + key
		if w.Key == headKey {
			path = key
		}
		if _, hit := c.Hits(path); c.Targets.Modules.set && hit {
			missing = append(missing, path)
		}
	}
	return missing
}

// isRouting tells whether a module is one that PEFT's all-linear may not see as a linear layer: experts and what
// chooses them.
func isRouting(key string) bool {
	return strings.Contains(key, ".experts.") || strings.HasSuffix(key, ".mlp.gate") || strings.HasSuffix(key, ".shared_expert_gate")
}

// standsForSomething tells whether a name among the targets is hit by the adapter, or names modules of the base that
// other fields of the configuration exclude.
func (s *stagePlanner) standsForSomething(name string) bool {
	only := moduleNames{names: []string{name}, set: true}
	named := func(module string) bool {
		return slices.ContainsFunc(spellings(module), func(other string) bool {
			_, ok := only.matches(other)
			return ok
		})
	}
	if slices.ContainsFunc(s.Adapter.Modules, func(m *Module) bool { return named(m.Path) }) {
		return true
	}
	return slices.ContainsFunc(s.Base.Weights, func(w *Weight) bool {
		module, ok := strings.CutSuffix(w.Key, ".weight")
		return ok && w.part == partText && named(module)
	})
}

// leafNames returns the last elements of the base's module names, each once.
func (b *Base) leafNames() []string {
	seen := map[string]bool{}
	for _, name := range b.moduleNames() {
		seen[name[strings.LastIndexByte(name, '.')+1:]] = true
	}
	return sortedKeys(seen)
}
