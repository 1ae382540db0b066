package lora

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"unicode"

	"quern/safetensors"
	"quern/tensor"
)

// Adapter is an open PEFT adapter whose parts fit each other: every module has all the tensors that the configuration
// asks for, of the right shapes, and no number in them is infinite or NaN. Close it after use.
type Adapter struct {
	Path    string
	Config  *Config
	Modules []*Module // in the order of their paths
	SHA256  AdapterHash

	source *source
}

// AdapterHash identifies an adapter by content, whatever it is packed in. Hex.
type AdapterHash struct {
	Weights string `json:"weights"` // of the safetensors file
	Config  string `json:"config"`  // of adapter_config.json
}

// Module is what an adapter holds for one module of the base.
type Module struct {
	Path  string  // in the model that the adapter was trained on
	Rank  int     // 0 where the module has no LoRA
	Scale float64 // of B · A

	tensors map[role]*tensor.Stored
}

// Name returns the adapter's file or folder name, for messages and records.
func (a *Adapter) Name() string { return filepath.Base(a.Path) }

// Open reads an adapter: a folder that PEFT saved, its .safetensors file with adapter_config.json beside it, or a zip
// archive with exactly one adapter at any depth. Whatever is not a whole and consistent LoRA adapter is refused.
func Open(path string) (*Adapter, error) {
	s, err := openSource(path)
	if err != nil {
		return nil, err
	}
	a := &Adapter{Path: path, source: s}
	if err := a.load(); err != nil {
		s.Close()
		return nil, fmt.Errorf("adapter %s: %w", path, err)
	}
	return a, nil
}

// Close releases the adapter's weights.
func (a *Adapter) Close() error {
	a.source.Close()
	return nil
}

func (a *Adapter) load() error {
	var err error
	if a.Config, err = ParseConfig(a.source.config); err != nil {
		return err
	}
	info, err := a.source.weights.Stat()
	if err != nil {
		return err
	}
	file, err := safetensors.Read(a.source.weights, info.Size())
	if err != nil {
		return fmt.Errorf("%s: %w", weightsFile, err)
	}
	if err := a.group(file.Tensors); err != nil {
		return err
	}
	for _, m := range a.Modules {
		if err := a.Config.checkModule(m); err != nil {
			return fmt.Errorf("module %s: %w", m.Path, err)
		}
	}
	if !slices.ContainsFunc(a.Modules, (*Module).trained) {
		return errors.New("it holds no trained tensor")
	}
	if err := checkFinite(file.Tensors); err != nil {
		return err
	}
	return a.hash(info.Size())
}

// group sorts the tensors by module.
func (a *Adapter) group(tensors []tensor.Stored) error {
	modules := map[string]*Module{}
	adapterName := ""
	for i := range tensors {
		t := &tensors[i]
		if hasControl(t.Name) {
			return fmt.Errorf("a tensor's name has control characters: %q", t.Name)
		}
		k, err := parseKey(t.Name)
		if err != nil {
			return err
		}
		if k.adapter != "" {
			if adapterName != "" && k.adapter != adapterName {
				return fmt.Errorf("the file holds two adapters, %q and %q; save the one that is meant", adapterName, k.adapter)
			}
			adapterName = k.adapter
		}
		m := modules[k.module]
		if m == nil {
			m = &Module{Path: k.module, tensors: map[role]*tensor.Stored{}}
			modules[k.module] = m
		}
		if twin := m.tensors[k.role]; twin != nil {
			return fmt.Errorf("%s and %s are the same tensor of the same module", twin.Name, t.Name)
		}
		m.tensors[k.role] = t
	}
	for _, path := range sortedKeys(modules) {
		a.Modules = append(a.Modules, modules[path])
	}
	return nil
}

// hasControl tells whether a text from a stranger's file would do things to a terminal.
func hasControl(text string) bool { return strings.ContainsFunc(text, unicode.IsControl) }

// has tells whether the module has a tensor of that role.
func (m *Module) has(r role) bool { return m.tensors[r] != nil }

// isLinear and isEmbedding tell what kind of LoRA the module has, if any.
func (m *Module) isLinear() bool    { return m.has(roleA) || m.has(roleB) }
func (m *Module) isEmbedding() bool { return m.has(roleEmbedA) || m.has(roleEmbedB) }

// trained tells whether the module changes the base, by more than copies of the base's tensors.
func (m *Module) trained() bool {
	return m.isLinear() || m.isEmbedding() || m.has(roleTokens) || m.has(roleWeight) || m.has(roleBias) || m.has(roleBaseBias)
}

// factorRoles returns the two factors' roles: A and B, or those of an embedding.
func (m *Module) factorRoles() (a, b role) {
	if m.isEmbedding() {
		return roleEmbedA, roleEmbedB
	}
	return roleA, roleB
}

// checkModule checks a module's tensors against the configuration, and fills in rank and scale.
func (c *Config) checkModule(m *Module) error {
	for _, r := range sortedKeys(m.tensors) {
		t := m.tensors[r]
		if t.DType != tensor.F32 && t.DType != tensor.F16 && t.DType != tensor.BF16 {
			return fmt.Errorf("%s is stored as %v; adapters are F32, F16 or BF16", r, t.DType)
		}
	}
	if m.isLinear() && m.isEmbedding() {
		return errors.New("it has LoRA tensors of a linear layer and of an embedding")
	}
	if m.isLinear() || m.isEmbedding() {
		if err := c.checkFactors(m); err != nil {
			return err
		}
	} else if r, stray := m.strayRole(); stray {
		return fmt.Errorf("it has %s but no lora_A and lora_B", r)
	}
	return c.checkOthers(m)
}

func (m *Module) strayRole() (role, bool) {
	for _, r := range []role{roleBBias, roleMagnitude} {
		if m.has(r) {
			return r, true
		}
	}
	return "", false
}

// checkFactors checks the shapes of A and B and that what belongs to them is there.
func (c *Config) checkFactors(m *Module) error {
	roleOfA, roleOfB := m.factorRoles()
	a, b := m.tensors[roleOfA], m.tensors[roleOfB]
	switch {
	case b == nil:
		return fmt.Errorf("it has %s but no %s", roleOfA, roleOfB)
	case a == nil:
		return fmt.Errorf("it has %s but no %s", roleOfB, roleOfA)
	}
	for _, t := range []*tensor.Stored{a, b} {
		if n, err := t.Shape.Elements(); err != nil || len(t.Shape) != 2 || n == 0 {
			return fmt.Errorf("%s has the shape %v; a factor has two dimensions. Was it saved while DeepSpeed or FSDP held the weights in parts?", t.Name, t.Shape)
		}
	}
	m.Rank = c.RankOf(m.Path)
	m.Scale = c.ScaleOf(m.Path)
	out := b.Shape[0]
	switch {
	case a.Shape[0] != int64(m.Rank) || b.Shape[1] != int64(m.Rank):
		return fmt.Errorf("%s is %v and %s is %v, but the configuration gives it rank %d", roleOfA, a.Shape, roleOfB, b.Shape, m.Rank)
	case c.DoRA != m.has(roleMagnitude):
		return fmt.Errorf("use_dora is %v, but %s is %s", c.DoRA, roleMagnitude, presence(m.has(roleMagnitude)))
	case c.LoRABias && m.isLinear() != m.has(roleBBias), !c.LoRABias && m.has(roleBBias):
		return fmt.Errorf("lora_bias is %v, but %s is %s", c.LoRABias, roleBBias, presence(m.has(roleBBias)))
	}
	for _, r := range []role{roleMagnitude, roleBBias} {
		if t := m.tensors[r]; t != nil && !t.Shape.Equal(tensor.Shape{out}) {
			return fmt.Errorf("%s is %v, but %s has %d rows", r, t.Shape, roleOfB, out)
		}
	}
	return nil
}

func presence(there bool) string {
	if there {
		return "there"
	}
	return "missing"
}

// targets tells whether the configuration puts LoRA on a module that has it.
func (c *Config) targets(module string) bool {
	_, hit := c.Hits(module)
	return hit || !c.Targets.Modules.set || c.hitsOtherwise(module) || c.tiesHead(module)
}

// hitsOtherwise tells whether the targets name the module under another of the spellings of its path: names are
// sometimes rewritten after training, the configuration is not.
func (c *Config) hitsOtherwise(module string) bool {
	return slices.ContainsFunc(spellings(module), func(other string) bool {
		_, hit := c.Hits(other)
		return hit
	})
}

// tiesHead tells whether the module is the output head, which ensure_weight_tying adds to the embedding's changes.
func (c *Config) tiesHead(module string) bool { return c.TiedWeights && rootless(module) == "lm_head" }

// checkOthers checks the tensors that are not LoRA factors: each must be one that the configuration announces, or a
// copy of the base's.
func (c *Config) checkOthers(m *Module) error {
	_, trainsTokens := c.tokensOf(m.Path)
	switch {
	case m.has(roleTokens) && !trainsTokens:
		return errors.New("it has trained tokens, but trainable_token_indices does not name it")
	case m.has(roleWeight) && !c.saves(m.Path) && !c.tiesHead(m.Path) && !isInputEmbedding(m.Path) && rootless(m.Path) != "lm_head":
		return errors.New("it holds a whole weight, but modules_to_save does not name it")
	case m.has(roleBias) && c.Bias != "all" && !c.saves(m.Path):
		return fmt.Errorf("it has a bias, but bias is %q and modules_to_save does not name it", c.Bias)
	case c.saves(m.Path) && (m.isLinear() || m.isEmbedding()):
		return errors.New("it is in modules_to_save and has LoRA tensors as well")
	}
	if m.has(roleTokens) {
		ids, _ := c.tokensOf(m.Path)
		shape := m.tensors[roleTokens].Shape
		if len(shape) != 2 || shape[0] != int64(len(ids)) {
			return fmt.Errorf("its trained tokens are %v for %d token ids", shape, len(ids))
		}
	}
	return nil
}

// tokensOf returns the token ids whose rows a module replaces, in the order of the rows.
func (c *Config) tokensOf(module string) ([]int, bool) {
	for _, name := range sortedKeys(c.TrainableTokens) {
		if name == "" && isInputEmbedding(module) || name != "" && (module == name || strings.HasSuffix(module, "."+name)) {
			return c.TrainableTokens[name], true
		}
	}
	return nil, false
}

// checkFinite looks for numbers that are none, in all tensors at once.
func checkFinite(tensors []tensor.Stored) error {
	errs := make([]error, len(tensors))
	next := make(chan int)
	var workers sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			for i := range next {
				errs[i] = checkFiniteTensor(&tensors[i])
			}
		})
	}
	for i := range tensors {
		next <- i
	}
	close(next)
	workers.Wait()
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func checkFiniteTensor(t *tensor.Stored) error {
	data, err := t.ReadAll()
	if err != nil {
		return err
	}
	size := t.DType.BlockBytes()
	exponent := map[tensor.DType]byte{tensor.F32: 0x7f, tensor.BF16: 0x7f, tensor.F16: 0x7c}[t.DType]
	for at := size - 1; at < len(data); at += size {
		if data[at]&exponent != exponent { // the top byte of a finite number, but for the largest
			continue
		}
		if v := loadFloat(data[at-size+1:], t.DType); v-v != 0 {
			return fmt.Errorf("%s holds %v at element %d: the training diverged or the file is damaged", t.Name, v, at/size)
		}
	}
	return nil
}

func (a *Adapter) hash(size int64) error {
	h := sha256.New()
	if _, err := io.Copy(h, io.NewSectionReader(a.source.weights, 0, size)); err != nil {
		return fmt.Errorf("read %s: %w", weightsFile, err)
	}
	config := sha256.Sum256(a.source.config)
	a.SHA256 = AdapterHash{Weights: hex.EncodeToString(h.Sum(nil)), Config: hex.EncodeToString(config[:])}
	return nil
}
