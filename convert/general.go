package convert

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"

	"quern/gguf"
)

// lineageFile is the record of merges that `lora merge` leaves in a checkpoint folder; it travels under lineageKey.
const (
	lineageFile = "quern_lineage.json"
	lineageKey  = "quern.lineage"
)

// samplingKeys maps generation_config.json to the sampling defaults of GGUF (gguf-py/gguf/metadata.py). The first of
// the names that is there counts.
var samplingKeys = []struct {
	key     string
	integer bool
	names   []string
}{
	{"general.sampling.top_k", true, []string{"top_k"}},
	{"general.sampling.top_p", false, []string{"top_p"}},
	{"general.sampling.min_p", false, []string{"min_p"}},
	{"general.sampling.xtc_probability", false, []string{"xtc_probability"}},
	{"general.sampling.xtc_threshold", false, []string{"xtc_threshold"}},
	{"general.sampling.temp", false, []string{"temperature"}},
	{"general.sampling.penalty_last_n", true, []string{"penalty_last_n"}},
	{"general.sampling.penalty_repeat", false, []string{"penalty_repeat", "repetition_penalty"}},
	{"general.sampling.mirostat", true, []string{"mirostat"}},
	{"general.sampling.mirostat_tau", false, []string{"mirostat_tau"}},
	{"general.sampling.mirostat_eta", false, []string{"mirostat_eta"}},
}

// generalMetadata returns the entries that say what the model is: kind, sampling defaults, names, lineage.
func generalMetadata(dir, arch, name string, params int64) (gguf.Metadata, error) {
	files := os.DirFS(dir)
	var m gguf.Metadata
	m.Set("general.architecture", arch)
	m.Set("general.type", "model")
	var generation map[string]json.RawMessage
	if err := readJSON(files, "generation_config.json", &generation); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, s := range samplingKeys {
		for _, n := range s.names {
			var v *float64
			if raw, ok := generation[n]; ok && json.Unmarshal(raw, &v) == nil && v != nil {
				if s.integer {
					m.Set(s.key, int32(*v))
				} else {
					m.Set(s.key, float32(*v))
				}
				break
			}
		}
	}
	if err := setNames(&m, files, dir, name, params); err != nil {
		return nil, err
	}
	lineage, err := fs.ReadFile(files, lineageFile)
	if err == nil {
		m.Set(lineageKey, string(lineage))
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	return m, nil
}

// cachedAs is the folder of a model in the hub's cache.
var cachedAs = regexp.MustCompile(`models--([^/]+?)--([^/]+)/snapshots/[^/]+$`)

// setNames writes general.name and its parts: from name if given, else from the hub id in config.json, else from the
// folder. A folder in the hub's cache says by its path which model it is, and that is recorded.
func setNames(m *gguf.Metadata, files fs.FS, dir, name string, params int64) error {
	var config struct {
		NameOrPath string `json:"_name_or_path"`
	}
	if err := readJSON(files, "config.json", &config); err != nil {
		return err
	}
	absolute, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	parts := map[string]string{"name": name}
	candidates := []string{filepath.Base(absolute)}
	cached := cachedAs.FindStringSubmatch(filepath.ToSlash(absolute))
	if cached != nil {
		candidates[0] = cached[1] + "/" + cached[2]
	}
	if config.NameOrPath != "" && strings.Count(config.NameOrPath, "/") <= 1 { // more slashes: a path of some machine
		candidates = slices.Insert(candidates, 0, config.NameOrPath)
	}
	for _, id := range candidates {
		for part, value := range nameParts(id, params) {
			if parts[part] == "" {
				parts[part] = value
			}
		}
	}
	if parts["size_label"] == "" {
		parts["size_label"] = roundedCount(params)
	}
	for _, part := range []string{"name", "version", "organization", "finetune", "basename", "size_label"} {
		if parts[part] != "" {
			m.Set("general."+part, parts[part])
		}
	}
	if cached != nil {
		m.Set("general.source.huggingface.repository", candidates[len(candidates)-1])
	}
	return nil
}

var (
	versionPart = regexp.MustCompile(`(?i)^(v|iter)?\d+(\.\d+)*$`)
	typePart    = regexp.MustCompile(`(?i)^(i?q\d(_\w)*|b?fp?(16|32))$`)
	sizePart    = regexp.MustCompile(`(?i)^((A|\d+x)?\d+([._]\d+)?[KMBT]\d?|small|mini|medium|large|x?xl)$`)
	tuningPart  = regexp.MustCompile(`(?i)^(chat|instruct|vision|lora)$`)
)

// nameParts takes a model id like "Qwen/Qwen2.5-0.5B-Instruct" apart as llama.cpp's converter does
// (gguf-py/gguf/metadata.py: get_model_id_components): words that look like a version, a size, a tuning; the words in
// front of them are the base name.
func nameParts(id string, params int64) map[string]string {
	org, full, hasOrg := strings.Cut(id, "/")
	if strings.Contains(id, " ") || !hasOrg {
		org, full = "", id
	}
	parts := map[string]string{"name": title(full)}
	if org != "" && org[0] != '.' {
		parts["organization"] = title(org)
	}
	if strings.Contains(id, " ") {
		parts["name"] = id
		return parts
	}
	words := strings.FieldsFunc(full, func(r rune) bool { return r == '-' })
	kinds := make([]string, len(words))
	for i, w := range words {
		switch {
		case versionPart.MatchString(w):
			kinds[i] = "version"
		case typePart.MatchString(w):
			kinds[i], words[i] = "type", strings.ToUpper(w)
		case i > 0 && sizePart.MatchString(w):
			kinds[i], words[i] = sizeOrContext(w, params)
		case i > 0 && tuningPart.MatchString(w):
			kinds[i] = "finetune"
		}
	}
	dropWordSizes(words, kinds)
	basename := markBase(words, kinds)
	join := func(kind string) string {
		var found []string
		for i, w := range words {
			if kinds[i] == kind && !(kind == "size_label" && slices.Contains(found, w)) {
				found = append(found, w)
			}
		}
		return strings.Join(found, "-")
	}
	for _, kind := range []string{"size_label", "finetune", "version"} {
		parts[kind] = join(kind)
	}
	if parts["size_label"]+parts["finetune"]+parts["version"] != "" { // else it is too little to tell a base name by
		parts["basename"] = basename
	}
	return parts
}

// sizeOrContext decides what a number with a unit means: the size of the model, unless it is far from it.
func sizeOrContext(w string, params int64) (kind, word string) {
	w = strings.ReplaceAll(w, "_", ".")
	if n := len(w); unicode.IsDigit(rune(w[n-1])) && n > 2 { // 7b1 means 7.1b
		w = w[:n-2] + "." + w[n-1:] + w[n-2:n-1]
	}
	n := len(w)
	if n > 1 && unicode.IsDigit(rune(w[n-2])) {
		w = w[:n-1] + strings.ToUpper(w[n-1:])
	}
	var count float64
	if _, err := fmt.Sscanf(w[:n-1]+" ", "%g ", &count); err == nil && params > 0 {
		for range strings.Index(" KMBT", w[n-1:]) {
			count *= 1000
		}
		if diff := count - float64(params); max(diff, -diff) > float64(7*params/8) {
			return "finetune", w[:n-1] + strings.ToLower(w[n-1:])
		}
	}
	return "size_label", w
}

// dropWordSizes forgets sizes that are words ("small") where there is a number.
func dropWordSizes(words, kinds []string) {
	hasDigit := func(w string) bool { return strings.ContainsFunc(w, unicode.IsDigit) }
	numbered := false
	for i, w := range words {
		numbered = numbered || kinds[i] == "size_label" && hasDigit(w)
	}
	for i, w := range words {
		if numbered && kinds[i] == "size_label" && !hasDigit(w) {
			kinds[i] = ""
		}
	}
}

// markBase returns the base name, the words and versions in front, and marks other unknown words as tuning. Versions
// at the end of the base name are not part of it.
func markBase(words, kinds []string) string {
	n := 0
	for n < len(words) && (kinds[n] == "version" || kinds[n] == "" && unicode.IsLetter(rune(words[n][0]))) {
		n++
	}
	for i := n; i < len(words); i++ {
		if kinds[i] == "" {
			kinds[i] = "finetune"
		}
	}
	if n == len(words) { // only then does the base name end where the versions at its end begin
		for n > 0 && kinds[n-1] == "version" {
			n--
		}
	}
	var base []string
	for i := range n {
		if kinds[i] == "version" {
			kinds[i] = "base version"
		}
		base = append(base, words[i])
	}
	return strings.Join(base, "-")
}

var keepCase = regexp.MustCompile(`^(v\d+(\.\d+)*|\d.*)$`)

// title writes a name with capitals, except words that have some and versions.
func title(name string) string {
	words := strings.Fields(strings.ReplaceAll(name, "-", " "))
	for i, w := range words {
		if w == strings.ToLower(w) && w != strings.ToUpper(w) && !keepCase.MatchString(w) {
			words[i] = capitals(w)
		}
	}
	return strings.Join(words, " ")
}

// capitals raises every letter that follows something that is not a letter, as Python's str.title.
func capitals(w string) string {
	out := []rune(w)
	for i, r := range out {
		if i == 0 || !unicode.IsLetter(out[i-1]) {
			out[i] = unicode.ToUpper(r)
		}
	}
	return string(out)
}

// roundedCount writes a parameter count with two digits and a unit: 494M, 7.6B.
func roundedCount(n int64) string {
	value, unit := float64(n)*1e-3, "K"
	switch {
	case n > 1e12:
		value, unit = float64(n)*1e-12, "T"
	case n > 1e9:
		value, unit = float64(n)*1e-9, "B"
	case n > 1e6:
		value, unit = float64(n)*1e-6, "M"
	}
	whole := strings.TrimLeft(fmt.Sprintf("%.0f", value), "0")
	return fmt.Sprintf("%.*f%s", max(2-len(whole), 0), value, unit)
}
