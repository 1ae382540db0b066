package lora

import (
	"cmp"
	"slices"
	"strings"
)

// The same module has several names: a text model says model.layers.0, its multimodal wrapper
// model.language_model.layers.0, older wrappers language_model.model.layers.0, and adapters of bare models layers.0.
// All of them have the same path below the root.

// rootless returns a path or tensor name without what stands for the language model: layers.0.self_attn.q_proj.
// Other parts of a model keep their name: visual.blocks.0, mtp.layers.0.
func rootless(path string) string {
	for {
		short, found := strings.CutPrefix(path, "model.")
		if !found {
			short, found = strings.CutPrefix(path, "language_model.")
		}
		if !found {
			return path
		}
		path = short
	}
}

// spellings returns the names that a module may have in models of the same architecture.
func spellings(path string) []string {
	tail := rootless(path)
	return []string{path, tail, "model." + tail, "model.language_model." + tail, "language_model.model." + tail}
}

func isInputEmbedding(module string) bool { return rootless(module) == "embed_tokens" }

// nearest returns up to n of the candidates that are most like name.
func nearest(name string, candidates []string, n int) []string {
	type scored struct {
		name     string
		distance int
	}
	var list []scored
	for _, c := range candidates {
		list = append(list, scored{c, editDistance(name, c)})
	}
	slices.SortFunc(list, func(a, b scored) int {
		return cmp.Or(cmp.Compare(a.distance, b.distance), cmp.Compare(a.name, b.name))
	})
	var out []string
	for _, s := range list[:min(n, len(list))] {
		out = append(out, s.name)
	}
	return out
}

// editDistance counts the insertions, deletions and replacements of bytes that turn a into b (Levenshtein).
func editDistance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := diagonal
			if a[i] != b[j] {
				cost = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
