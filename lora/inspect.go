package lora

import (
	"math"
	"slices"
	"strconv"
	"strings"

	"quern/tensor"
)

// Inspection describes an adapter. Its JSON is the output of `quern lora inspect --json`.
type Inspection struct {
	Path      string         `json:"path"`
	SHA256    AdapterHash    `json:"sha256"`
	TrainedOn string         `json:"trained_on"`
	Private   bool           `json:"private_base"` // trained_on is no hub id but a name on the machine of the training
	Revision  string         `json:"revision,omitempty"`
	PEFT      string         `json:"peft_version,omitempty"`
	Kind      string         `json:"kind"` // LoRA, rsLoRA, DoRA, …
	Rank      int            `json:"r"`
	Alpha     float64        `json:"alpha"`
	Targets   []string       `json:"target_modules"`
	Saved     []string       `json:"modules_to_save,omitempty"`
	Hits      []Hit          `json:"hits"`   // the targets, and where they were hit
	Layers    []int          `json:"layers"` // that it touches
	Types     []string       `json:"types"`  // that its tensors are stored as
	Values    int64          `json:"values"`
	Modules   []ModuleReport `json:"modules"`
}

// Hit is one kind of module that has LoRA: the last part of its path, and the layers in which it has it.
type Hit struct {
	Target string `json:"target"`
	Layers []int  `json:"layers"` // none for a module outside the layers
}

// ModuleReport is what an adapter holds for one module.
type ModuleReport struct {
	Path  string   `json:"path"`
	What  []string `json:"what"` // LoRA, DoRA, bias, weight, tokens, copy
	Rank  int      `json:"rank,omitempty"`
	Scale float64  `json:"scale,omitempty"`
	Shape []int64  `json:"shape,omitempty"` // of the change
	Norm  float64  `json:"norm,omitempty"`  // Frobenius norm of the change, scale included; of B · A for DoRA
}

// Inspect reads all of an adapter.
func (a *Adapter) Inspect() (*Inspection, error) {
	c := a.Config
	i := &Inspection{Path: a.Path, SHA256: a.SHA256, TrainedOn: c.BaseModel, Private: !isHubID(c.BaseModel), Revision: c.Revision,
		PEFT: c.PEFTVersion, Kind: c.kind(), Rank: c.Rank, Alpha: c.Alpha, Targets: c.Targets.Modules.names, Saved: c.ModulesToSave}
	layers, types, hits := map[int]bool{}, map[string]bool{}, map[string][]int{}
	for _, m := range a.Modules {
		r, err := m.report()
		if err != nil {
			return nil, err
		}
		i.Modules = append(i.Modules, r)
		leaf := m.Path[strings.LastIndexByte(m.Path, '.')+1:]
		n, inLayer := layerOf(m.Path)
		if inLayer {
			layers[n] = true
		}
		if m.Rank > 0 {
			if hits[leaf] == nil {
				hits[leaf] = []int{}
			}
			if inLayer {
				hits[leaf] = append(hits[leaf], n)
			}
		}
		for _, t := range m.tensors {
			types[t.DType.String()] = true
			n, _ := t.Shape.Elements() // checked when it was opened
			i.Values += n
		}
	}
	i.Layers, i.Types = sortedKeys(layers), sortedKeys(types)
	for _, target := range sortedKeys(hits) {
		slices.Sort(hits[target])
		i.Hits = append(i.Hits, Hit{target, hits[target]})
	}
	return i, nil
}

// kind names the method.
func (c *Config) kind() string {
	kind := "LoRA"
	if c.RSLoRA {
		kind = "rsLoRA"
	}
	if c.DoRA {
		kind = strings.Replace(kind, "LoRA", "DoRA", 1)
	}
	return kind
}

// layerOf returns the number after "layers." or "blocks." in a path.
func layerOf(path string) (int, bool) {
	parts := strings.Split(path, ".")
	for i, part := range parts[:len(parts)-1] {
		if part == "layers" || part == "blocks" {
			n, err := strconv.Atoi(parts[i+1])
			return n, err == nil
		}
	}
	return 0, false
}

func (m *Module) report() (ModuleReport, error) {
	r := ModuleReport{Path: m.Path, Rank: m.Rank, Scale: m.Scale}
	for _, part := range []struct {
		role role
		name string
	}{{roleA, "LoRA"}, {roleEmbedA, "embedding LoRA"}, {roleMagnitude, "DoRA magnitude"}, {roleBBias, "LoRA bias"},
		{roleWeight, "weight"}, {roleBias, "bias"}, {roleBaseBias, "bias"}, {roleBaseWeight, "copy of the base's weight"}, {roleTokens, "tokens"}} {
		if m.has(part.role) {
			r.What = append(r.What, part.name)
		}
	}
	if m.Rank == 0 {
		return r, nil
	}
	roleOfA, roleOfB := m.factorRoles()
	a, b := m.tensors[roleOfA], m.tensors[roleOfB]
	r.Shape = []int64{b.Shape[0], a.Shape[1]}
	norm, err := productNorm(a, b)
	r.Norm = norm * math.Abs(m.Scale)
	return r, err
}

// productNorm is the Frobenius norm of B · A, without computing the product: ‖BA‖² is the sum over all pairs of ranks
// of (BᵀB)·(AAᵀ).
func productNorm(a, b *tensor.Stored) (float64, error) {
	x, err := a.ReadFloats()
	if err != nil {
		return 0, err
	}
	y, err := b.ReadFloats()
	if err != nil {
		return 0, err
	}
	rank := int(a.Shape[0])
	cols := len(x) / rank
	columns := transpose(y, len(y)/rank, rank)
	rows := len(y) / rank
	var sum float64
	for i := range rank {
		for j := range rank {
			sum += dot(x[i*cols:(i+1)*cols], x[j*cols:(j+1)*cols]) * dot(columns[i*rows:(i+1)*rows], columns[j*rows:(j+1)*rows])
		}
	}
	return math.Sqrt(max(0, sum)), nil
}

func dot(x, y []float32) (sum float64) {
	for i, v := range x {
		sum += float64(v) * float64(y[i])
	}
	return sum
}
