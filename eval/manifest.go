package eval

import (
	"fmt"
	"reflect"
)

// Manifest records what a run's figures depend on, but for the processor. Two runs with equal manifests, greedy and
// deterministic, on the same kind of machine give equal results files.
type Manifest struct {
	Format        int               `json:"format"`         // version of the results file's schema: FormatVersion
	Quern         string            `json:"quern"`          // version and commit of this program
	Engine        string            `json:"engine"`         // llama.cpp's version, or the server's address
	SQLite        string            `json:"sqlite"`         // version of the library that executes
	SQLiteOptions []string          `json:"sqlite_options"` // its compile options
	Prompt        string            `json:"prompt"`         // name of the prompt pack
	PromptHash    string            `json:"prompt_hash"`    //
	Profile       string            `json:"profile"`        // tool-call profile
	Model         string            `json:"model"`          // file name
	ModelHash     string            `json:"model_hash"`     // SHA-256 of the file
	Adapters      []string          `json:"adapters"`       // "name sha256", in order of application
	Dataset       string            `json:"dataset"`        // benchmark
	Split         string            `json:"split"`          // its file
	DatasetDigest string            `json:"dataset_digest"` // questions and databases, see DigestExamples
	Selection     string            `json:"selection"`      // "all", or which part: n, ids, shard
	Flags         map[string]string `json:"flags"`          // everything else that changes what comes out
}

// FormatVersion is the schema version of results files and checkpoints.
const FormatVersion = 1

// Diff lists the fields in which two manifests differ, one line each; none when they are equal.
func (m Manifest) Diff(other Manifest) []string {
	var out []string
	add := func(name string, a, b any) {
		if !reflect.DeepEqual(a, b) {
			out = append(out, fmt.Sprintf("%s: %v, now %v", name, show(a), show(b)))
		}
	}
	a, b := reflect.ValueOf(m), reflect.ValueOf(other)
	for i := range a.NumField() {
		name := a.Type().Field(i).Tag.Get("json")
		if name == "flags" {
			continue
		}
		if a.Field(i).Kind() == reflect.Slice && a.Field(i).Len() == 0 && b.Field(i).Len() == 0 {
			continue
		}
		add(name, a.Field(i).Interface(), b.Field(i).Interface())
	}
	names := map[string]bool{}
	for k := range m.Flags {
		names[k] = true
	}
	for k := range other.Flags {
		names[k] = true
	}
	for _, k := range sortedKeys(names) {
		add("--"+k, m.Flags[k], other.Flags[k])
	}
	return out
}

func show(v any) any {
	if s, ok := v.(string); ok && s == "" {
		return "(none)"
	}
	return v
}
