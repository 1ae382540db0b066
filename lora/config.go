package lora

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strings"
)

// ConfigFile is the name under which PEFT saves an adapter's configuration.
const ConfigFile = "adapter_config.json"

// Config is what adapter_config.json says, as far as it has a bearing on a merge (PEFT 0.21: LoraConfig). Fields that
// concern training only are not kept; those that change the result in a way that is not supported make ParseConfig
// fail.
type Config struct {
	BaseModel   string // base_model_name_or_path: a hub id or a path of the training machine
	Revision    string
	PEFTVersion string

	Rank         int
	Alpha        float64
	RankPattern  []ranked // in file order: the first that matches wins
	AlphaPattern []ranked

	RSLoRA   bool
	DoRA     bool
	LoRABias bool   // lora_bias: B has a bias too
	Bias     string // "none", "all" or "lora_only": which biases of the base were trained
	Init     string // init_lora_weights, "" for the default ones

	Targets         Targets
	ModulesToSave   []string
	TrainableTokens map[string][]int // by module; "" is the input embedding
	TiedWeights     bool             // ensure_weight_tying
}

// ranked is a rank or an alpha for the modules that a pattern names.
type ranked struct {
	pattern modulePattern
	value   float64
}

// neutralFields have no bearing on a merge: they say how the adapter was trained, or are set aside by other fields.
// fan_in_fan_out is for Conv1D layers; PEFT ignores it for linear ones, and no supported architecture has others.
var neutralFields = map[string]bool{
	"auto_mapping": true, "inference_mode": true, "task_type": true, "lora_dropout": true, "fan_in_fan_out": true,
	"megatron_config": true, "megatron_core": true, "loftq_config": true, "eva_config": true, "corda_config": true,
	"lora_ga_config": true, "qalora_group_size": true, "runtime_config": true,
	// of trainers around PEFT
	"unsloth_fixed": true, "lora_dtype": true, "lorap_lr_ratio": true, "lorap_emb_lr": true, "merge_weights": true,
}

// refusedFields change what a merge has to compute. They are refused unless they are empty.
var refusedFields = map[string]string{
	"layer_replication":       "it repeats layers, which changes the layout of the base model",
	"target_parameters":       "it adapts parameters that belong to no linear layer",
	"alora_invocation_tokens": "an activated LoRA works on some tokens only, so it cannot be part of the weights",
	"use_qalora":              "QALoRA pools the inputs of lora_A, so B · A is not the change of the weight",
	"use_bdlora":              "BD-LoRA stores block-diagonal factors",
	"arrow_config":            "Arrow chooses between adapters for each token, so it cannot be part of the weights",
	"kasa_config":             "KaSA truncates the base weights and has a diagonal between B and A",
	"monteclora_config":       "MonteCLoRA adds sampled parameters",
	"velora_config":           "VeLoRA adds parameters of its own",
}

// mutatingInits are initialisations that take something out of the base weights before training. Such an adapter fits
// the changed base, which PEFT saves nowhere.
var mutatingInits = map[string]string{
	"pissa": "PiSSA", "corda": "CorDA", "olora": "OLoRA", "loftq": "LoftQ", "lora_ga": "LoRA-GA",
}

// plainInits leave the base as it is.
var plainInits = map[string]bool{"gaussian": true, "eva": true, "orthogonal": true, initMiCA: true}

// initMiCA is the one plain initialisation whose merge PEFT rounds differently: the delta first, to the base's type.
const initMiCA = "mica"

// ParseConfig reads adapter_config.json. The error names the field that is missing, wrong or not supported.
func ParseConfig(data []byte) (*Config, error) {
	fields, err := parseObject(bytes.TrimPrefix(data, []byte("\ufeff")))
	if err != nil {
		return nil, fmt.Errorf("%s is not JSON: %w", ConfigFile, err)
	}
	p := configParser{fields: map[string]json.RawMessage{}, known: map[string]bool{}}
	for _, f := range fields {
		p.fields[f.key] = f.value
	}
	if err := p.checkType(); err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigFile, err)
	}
	c := p.parse()
	for _, f := range fields {
		p.checkUnread(f)
	}
	if p.err == nil {
		p.err = c.check()
	}
	if p.err != nil {
		return nil, fmt.Errorf("%s: %w", ConfigFile, p.err)
	}
	return c, nil
}

// configParser takes fields out of the object; the first complaint is kept in err.
type configParser struct {
	fields map[string]json.RawMessage
	known  map[string]bool
	err    error
}

func (p *configParser) checkType() error {
	var kind string
	if err := json.Unmarshal(p.fields["peft_type"], &kind); err != nil || kind == "" {
		return errors.New("no peft_type, so this is no adapter that PEFT saved")
	}
	p.known["peft_type"] = true
	if !strings.EqualFold(kind, "LORA") {
		return fmt.Errorf("peft_type %s is not LoRA; only LoRA adapters (rsLoRA and DoRA among them) can be merged", kind)
	}
	return nil
}

func (p *configParser) parse() *Config {
	c := &Config{Bias: "none"}
	p.read("base_model_name_or_path", &c.BaseModel)
	p.read("revision", &c.Revision)
	p.read("peft_version", &c.PEFTVersion)
	c.Rank = int(p.whole("r", 8))
	c.Alpha = p.number("lora_alpha", 8)
	c.RankPattern = p.patterns("rank_pattern")
	c.AlphaPattern = p.patterns("alpha_pattern")
	p.read("use_rslora", &c.RSLoRA)
	p.read("use_dora", &c.DoRA)
	p.read("lora_bias", &c.LoRABias)
	p.read("bias", &c.Bias)
	c.Init = p.init()
	c.Targets = p.targets()
	p.read("modules_to_save", &c.ModulesToSave)
	c.TrainableTokens = p.tokens()
	p.read("ensure_weight_tying", &c.TiedWeights)
	return c
}

// raw returns a field's value, nil where it is absent or null.
func (p *configParser) raw(name string) json.RawMessage {
	p.known[name] = true
	value := p.fields[name]
	if string(value) == "null" {
		return nil
	}
	return value
}

func (p *configParser) fail(name, format string, args ...any) {
	if p.err == nil {
		p.err = fmt.Errorf("%s "+format, append([]any{name}, args...)...)
	}
}

// read fills dst where the field is there and not null.
func (p *configParser) read(name string, dst any) {
	if value := p.raw(name); value != nil {
		if err := json.Unmarshal(value, dst); err != nil {
			p.fail(name, "is %s, which is not what PEFT writes there", abbreviate(value))
		}
	}
}

func (p *configParser) number(name string, absent float64) float64 {
	n := absent
	p.read(name, &n)
	return n
}

func (p *configParser) whole(name string, absent float64) float64 {
	n := p.number(name, absent)
	if n != math.Trunc(n) || n < 1 || n > math.MaxInt32 {
		p.fail(name, "is %v; a rank is a whole number of at least 1", n)
	}
	return n
}

// patterns reads rank_pattern or alpha_pattern.
func (p *configParser) patterns(name string) []ranked {
	value := p.raw(name)
	if value == nil {
		return nil
	}
	members, err := parseObject(value)
	if err != nil {
		p.fail(name, "is not an object: %v", err)
		return nil
	}
	var list []ranked
	for _, m := range members {
		var n float64
		if err := json.Unmarshal(m.value, &n); err != nil || name == "rank_pattern" && (n != math.Trunc(n) || n < 1) {
			p.fail(name, "has %s for %q", abbreviate(m.value), m.key)
			return nil
		}
		pattern, err := compilePattern(`(?:.*\.)?(?:` + m.key + `)`)
		if err != nil {
			p.fail(name, "has the key %q, which is no regular expression: %v", m.key, err)
			return nil
		}
		list = append(list, ranked{pattern, n})
	}
	return list
}

// init reads init_lora_weights, and refuses the ways to initialise that changed the base.
func (p *configParser) init() string {
	value := p.raw("init_lora_weights")
	var name string
	if value == nil || string(value) == "true" || string(value) == "false" {
		return ""
	}
	if err := json.Unmarshal(value, &name); err != nil {
		p.fail("init_lora_weights", "is %s, which is not what PEFT writes there", abbreviate(value))
		return ""
	}
	name = strings.ToLower(name)
	family, _, _ := strings.Cut(name, "_niter_")
	switch method := mutatingInits[family]; {
	case method != "":
		p.fail("init_lora_weights", `is %q: %s takes a part out of the base weights before training, so this adapter does not fit the original base. Save it from PEFT as a plain LoRA: save_pretrained(…, path_initial_model_for_weight_conversion=…)`, name, method)
	case !plainInits[name]:
		p.fail("init_lora_weights", "is %q, which is not known here; it may have changed the base weights", name)
	}
	return name
}

func (p *configParser) targets() Targets {
	var t Targets
	if value := p.raw("target_modules"); value != nil {
		t.Modules = p.names("target_modules", value)
	}
	if value := p.raw("exclude_modules"); value != nil {
		t.Exclude = p.names("exclude_modules", value)
	}
	if value := p.raw("layers_to_transform"); value != nil && !isEmptyList(value) {
		t.Layers = p.layers(value)
	}
	if value := p.raw("layers_pattern"); value != nil {
		t.layersPattern = p.layersPattern(value)
	}
	if t.Modules.regex && t.Layers != nil {
		p.fail("layers_to_transform", "cannot go with target_modules that is a regular expression")
	}
	if t.layersPattern != nil && t.Layers == nil {
		p.fail("layers_pattern", "needs layers_to_transform")
	}
	return t
}

// names reads a list of module names, or a string: a regular expression over whole module paths.
func (p *configParser) names(field string, value json.RawMessage) moduleNames {
	var text string
	if json.Unmarshal(value, &text) == nil {
		if strings.EqualFold(text, allLinear) {
			return moduleNames{names: []string{allLinear}, set: true, all: true}
		}
		pattern, err := compilePattern(text)
		if err != nil {
			p.fail(field, "is no regular expression: %v", err)
		}
		return moduleNames{names: []string{text}, set: true, regex: true, pattern: pattern}
	}
	var list []string
	if err := json.Unmarshal(value, &list); err != nil {
		p.fail(field, "is %s; PEFT writes a list of names or a regular expression", abbreviate(value))
	}
	return moduleNames{names: list, set: true}
}

func isEmptyList(value json.RawMessage) bool {
	var list []json.RawMessage
	return json.Unmarshal(value, &list) == nil && len(list) == 0
}

func (p *configParser) layers(value json.RawMessage) map[int]bool {
	var one int
	var list []int
	if json.Unmarshal(value, &one) == nil {
		list = []int{one}
	} else if err := json.Unmarshal(value, &list); err != nil {
		p.fail("layers_to_transform", "is %s; PEFT writes a layer number or a list of them", abbreviate(value))
	}
	layers := map[int]bool{}
	for _, n := range list {
		layers[n] = true
	}
	return layers
}

func (p *configParser) layersPattern(value json.RawMessage) []modulePattern {
	var one string
	var list []string
	if json.Unmarshal(value, &one) == nil {
		list = []string{one}
	} else if err := json.Unmarshal(value, &list); err != nil {
		p.fail("layers_pattern", "is %s; PEFT writes a name or a list of names", abbreviate(value))
	}
	var patterns []modulePattern
	for _, name := range list {
		if name == "" {
			continue
		}
		pattern, err := compileLayerPattern(name)
		if err != nil {
			p.fail("layers_pattern", "has %q, which is no regular expression: %v", name, err)
		}
		patterns = append(patterns, pattern)
	}
	return patterns
}

func (p *configParser) tokens() map[string][]int {
	value := p.raw("trainable_token_indices")
	if value == nil {
		return nil
	}
	var list []int
	if json.Unmarshal(value, &list) == nil {
		return map[string][]int{"": list}
	}
	var byModule map[string][]int
	if err := json.Unmarshal(value, &byModule); err != nil {
		p.fail("trainable_token_indices", "is %s; PEFT writes token ids, or such lists by module", abbreviate(value))
	}
	return byModule
}

// checkUnread refuses a field that parse did not take, unless it has no bearing on the result.
func (p *configParser) checkUnread(f member) {
	switch why := refusedFields[f.key]; {
	case p.known[f.key] || neutralFields[f.key] || isEmptyJSON(f.value):
	case why != "":
		p.fail(f.key, "is set: %s. Such adapters are not supported", why)
	default:
		p.fail(f.key, "is %s: this field is not known here, and it may change what the adapter computes", abbreviate(f.value))
	}
}

// check looks at fields together, as LoraConfig does.
func (c *Config) check() error {
	for _, text := range append([]string{c.BaseModel, c.Revision, c.PEFTVersion}, c.Targets.Modules.names...) {
		if hasControl(text) {
			return fmt.Errorf("a value has control characters: %q", text)
		}
	}
	switch {
	case c.Bias != "none" && c.Bias != "all" && c.Bias != "lora_only":
		return fmt.Errorf(`bias is %q; PEFT knows "none", "all" and "lora_only"`, c.Bias)
	case c.LoRABias && c.DoRA:
		return errors.New("lora_bias cannot go with use_dora")
	case math.IsInf(c.Alpha, 0) || math.IsNaN(c.Alpha):
		return fmt.Errorf("lora_alpha is %v", c.Alpha)
	}
	return nil
}

// RankOf returns the rank of a module, given by its path in the model that the adapter was trained on.
func (c *Config) RankOf(module string) int {
	return int(firstMatch(c.RankPattern, module, float64(c.Rank)))
}

// ScaleOf returns the factor of B · A for a module: alpha/r, or alpha/√r for rsLoRA.
func (c *Config) ScaleOf(module string) float64 {
	rank := float64(c.RankOf(module))
	alpha := firstMatch(c.AlphaPattern, module, c.Alpha)
	if c.RSLoRA {
		return alpha / math.Sqrt(rank)
	}
	return alpha / rank
}

func firstMatch(patterns []ranked, module string, otherwise float64) float64 {
	for _, r := range patterns {
		if r.pattern.matches(module) {
			return r.value
		}
	}
	return otherwise
}

// abbreviate shortens a JSON value for a message.
func abbreviate(value []byte) string {
	const limit = 60
	if len(value) > limit {
		return strings.ToValidUTF8(string(value[:limit]), "") + "…"
	}
	return string(value)
}
