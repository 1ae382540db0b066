package lora

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/dlclark/regexp2"
)

// allLinear as target_modules means every linear layer but the output head.
const allLinear = "all-linear"

// Targets says which modules of the base the adapter was put on (target_modules and the fields that narrow it).
type Targets struct {
	Modules moduleNames
	Exclude moduleNames
	Layers  map[int]bool // layers_to_transform; nil means all

	layersPattern []modulePattern // what precedes the layer number; nil means any name
}

// moduleNames is a list of names that a module's path may end with, or one regular expression for whole paths.
type moduleNames struct {
	names   []string
	set     bool
	all     bool
	regex   bool
	pattern modulePattern
}

// String returns the names as they stand in the configuration.
func (m moduleNames) String() string { return strings.Join(m.names, ", ") }

// matches returns which of the names fits, "" for none.
func (m moduleNames) matches(module string) (name string, ok bool) {
	if m.regex {
		return m.names[0], m.pattern.matches(module)
	}
	for _, name := range m.names {
		if module == name || strings.HasSuffix(module, "."+name) {
			return name, true
		}
	}
	return "", false
}

// Hits tells whether the configuration puts LoRA on a module, and which of its names says so. It follows PEFT's
// check_target_module_exists: exclusions first; a name that is a module's whole path ignores layers_to_transform.
func (c *Config) Hits(module string) (name string, ok bool) {
	t := &c.Targets
	if _, excluded := t.Exclude.matches(module); excluded || c.saves(module) {
		return "", false
	}
	if t.Modules.all {
		return allLinear, true
	}
	name, ok = t.Modules.matches(module)
	if !ok || t.Layers == nil || slices.Contains(t.Modules.names, module) {
		return name, ok
	}
	layer, ok := t.layerOf(module)
	return name, ok && t.Layers[layer]
}

// saves tells whether a module belongs to one in modules_to_save: PEFT matches the name anywhere in the path.
func (c *Config) saves(module string) bool {
	parts := "." + module + "."
	return slices.ContainsFunc(c.ModulesToSave, func(name string) bool {
		return name != "" && strings.Contains(parts, "."+name+".")
	})
}

var anyLayer = regexp.MustCompile(`^.*?\.[^.]*\.(\d+)\.`)

// layerOf returns the number of the layer that a module belongs to.
func (t *Targets) layerOf(module string) (int, bool) {
	if t.layersPattern == nil {
		return layerNumber(anyLayer.FindStringSubmatch(module))
	}
	for _, pattern := range t.layersPattern {
		if n, ok := layerNumber(pattern.groups(module)); ok {
			return n, true
		}
	}
	return 0, false
}

// layerNumber reads the last group of a match.
func layerNumber(groups []string) (int, bool) {
	if groups == nil {
		return 0, false
	}
	n, err := strconv.Atoi(groups[len(groups)-1])
	return n, err == nil
}

// modulePattern is a regular expression of an adapter's configuration. Such expressions are written for Python, whose
// look-aheads Go's linear-time engine lacks: these go to a backtracking engine, which gives up after a second, since the
// configuration comes from a stranger.
type modulePattern struct {
	linear       *regexp.Regexp
	backtracking *regexp2.Regexp
}

// compilePattern makes a pattern that has to match a whole module path.
func compilePattern(expr string) (modulePattern, error) { return compile(`\A(?:` + expr + `)$`) }

// compileLayerPattern makes a pattern that finds the number after the name of a list of layers.
func compileLayerPattern(name string) (modulePattern, error) {
	return compile(`\A(?:|.*?\.)` + name + `\.(\d+)\.`)
}

func compile(expr string) (modulePattern, error) {
	if linear, err := regexp.Compile(expr); err == nil {
		return modulePattern{linear: linear}, nil
	}
	backtracking, err := regexp2.Compile(expr, regexp2.RE2)
	if err != nil {
		return modulePattern{}, err
	}
	backtracking.MatchTimeout = time.Second
	return modulePattern{backtracking: backtracking}, nil
}

func (p modulePattern) matches(module string) bool { return p.groups(module) != nil }

// groups returns the match and its groups, nil where there is none.
func (p modulePattern) groups(module string) []string {
	if p.linear != nil {
		return p.linear.FindStringSubmatch(module)
	}
	match, err := p.backtracking.FindStringMatch(module)
	if err != nil || match == nil { // the only error is the time-out
		return nil
	}
	var groups []string
	for _, g := range match.Groups() {
		groups = append(groups, g.String())
	}
	return groups
}
