// Package archtest checks that arrows between packages point one way only.
package archtest

import (
	"os/exec"
	"strings"
	"testing"

	"quern/internal/testenv"
)

// mayImport says which packages of this module each package may import, directly. Packages that are not listed may
// import none. "*" ends a path prefix. Test files are free to import what they test.
var mayImport = map[string][]string{
	"cmd/quern":    {"internal/cli", "sqlguard"}, // sqlguard for the worker verb alone
	"internal/cli": {"*"},

	// what the commands are made of
	"internal/assistant":  {"backend", "engine", "internal/enginegen", "prompts", "sqlguard", "toolloop", "toolloop/sqltool"},
	"internal/enginegen":  {"engine", "toolloop"},
	"internal/openaiapi":  {"engine"},
	"internal/web":        {"internal/history", "sqlguard"},
	"internal/mcpserver":  {"internal/buildinfo", "sqlguard"},
	"internal/table":      {"sqlguard"},
	"internal/inspect":    {"arch", "convert", "gguf", "lora", "safetensors", "tensor"},
	"internal/bench":      {"engine", "gguf", "internal/atomicfile", "internal/buildinfo", "internal/synth"},
	"internal/filebench":  {"internal/bench", "internal/buildinfo", "safetensors", "tensor"},
	"internal/synth":      {"arch", "gguf", "safetensors", "tensor", "internal/atomicfile"},
	"internal/testreport": {},

	// evaluation
	"eval":                   {"sqlguard"},
	"eval/report":            {"eval"},
	"eval/spider":            {"eval", "sqlguard", "eval/internal/*", "internal/pytext"},
	"eval/bird":              {"eval", "sqlguard"},
	"eval/spider2":           {"eval", "sqlguard", "internal/pytext"},
	"eval/internal/nltk":     {"internal/pytext"},
	"eval/internal/sqlparse": {"internal/pytext"},

	// the agent
	"toolloop/sqltool":            {"toolloop", "internal/pytext", "sqlguard"},
	"toolloop/transcriptview":     {"toolloop"},
	"toolloop":                    {"prompts", "internal/pytext"},
	"toolloop/internal/fakemodel": {"toolloop"},
	"toolloop/internal/looptest":  {"internal/pytext"},
	"backend":                     {"toolloop"},

	// models and databases
	"engine/internal/llama": {"engine/internal/kernel"},
	"engine":                {"engine/internal/llama", "engine/internal/sched", "gguf", "tensor", "internal/atomicfile", "internal/binread"},
	"sqlguard":              {"sqlguard/internal/sqlite"},

	// formats
	"lora":        {"arch", "gguf", "safetensors", "tensor", "internal/atomicfile"},
	"convert":     {"arch", "gguf", "safetensors", "tensor", "internal/atomicfile"},
	"arch":        {"tensor"},
	"gguf":        {"tensor", "internal/binread", "internal/atomicfile"},
	"safetensors": {"tensor", "internal/binread", "internal/atomicfile"},
}

func TestImports(t *testing.T) {
	for pkg, imports := range moduleImports(t) {
		for _, imported := range imports {
			if !allowed(mayImport[pkg], imported) {
				t.Errorf("%s imports %s: not in the table of internal/archtest", pkg, imported)
			}
		}
	}
}

// moduleImports returns each package's direct imports within the module, both without the module's name.
func moduleImports(t *testing.T) map[string][]string {
	cmd := exec.Command("go", "list", "-f", "{{.ImportPath}} {{join .Imports \" \"}}", "./...")
	cmd.Dir = testenv.Root()
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	packages := map[string][]string{}
	for _, line := range strings.Split(strings.TrimSpace(string(out)), "\n") {
		fields := strings.Fields(line)
		name := strings.TrimPrefix(fields[0], "quern/")
		packages[name] = nil
		for _, imported := range fields[1:] {
			if inside, ok := strings.CutPrefix(imported, "quern/"); ok {
				packages[name] = append(packages[name], inside)
			}
		}
	}
	return packages
}

func allowed(table []string, pkg string) bool {
	for _, entry := range table {
		prefix, wild := strings.CutSuffix(entry, "*")
		if pkg == entry || wild && strings.HasPrefix(pkg, prefix) {
			return true
		}
	}
	return false
}
