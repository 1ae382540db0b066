// Package prompts holds the texts that models are given, as packs: a folder of plain-text files and a manifest,
// pack.json. Two packs are built in; a user's own folder is read by the same code.
//
// A manifest names the files of the pack:
//
//	{
//	  "name": "mine",
//	  "profile": "qwen-xml",
//	  "description": "what it is",
//	  "system": "system.txt",              holds {{schema}}, and {{columns}} and {{examples}} where these are given
//	  "user": "user.txt",                  holds {{question}}
//	  "tool": "tool.json",                 the declaration of the tool, as the chat template prints it
//	  "final_request": "final.txt",        optional: what the user says when the turns are used up
//	  "examples": "examples.txt",          optional: few-shots
//	  "columns": {"v3": "columns.txt"},    optional: column policies, one text each
//	  "default_columns": "v3"
//	}
//
// Text is UTF-8. Line ends may be of any kind, and the last one of a file does not count.
package prompts

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
)

//go:embed packs
var builtin embed.FS

// Pack is a set of prompt texts. It does not change.
type Pack struct {
	Name          string
	Profile       string // name of the toolloop profile that it is written for
	Description   string
	Policies      []string // column policies, sorted; nil: none
	DefaultPolicy string
	Tool          string // JSON of the tool's declaration
	FinalRequest  string // "" where the pack has none
	Hash          string // SHA-256 over names and contents of the files

	system, user, examples string
	columns                map[string]string
	files                  map[string][]byte
}

// Names lists the built-in packs.
func Names() []string {
	entries, err := builtin.ReadDir("packs")
	if err != nil {
		panic(err) // the folder is part of the binary
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names
}

// Builtin returns a built-in pack.
func Builtin(name string) (*Pack, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("prompts: no built-in pack %q; there are %s", name, strings.Join(Names(), ", "))
	}
	sub, err := fs.Sub(builtin, "packs/"+name)
	if err != nil {
		return nil, err
	}
	return Load(sub)
}

// ForProfile returns the built-in pack of a profile.
func ForProfile(profile string) (*Pack, error) {
	for _, name := range Names() {
		p, err := Builtin(name)
		if err != nil {
			return nil, err
		}
		if p.Profile == profile {
			return p, nil
		}
	}
	return nil, fmt.Errorf("prompts: no built-in pack for profile %q", profile)
}

// System is the system message. policy "" is the pack's default; a pack without policies takes no other.
func (p *Pack) System(schema, policy string) (string, error) {
	if policy == "" {
		policy = p.DefaultPolicy
	}
	columns, known := p.columns[policy]
	if !known && policy != "" {
		if len(p.Policies) == 0 {
			return "", fmt.Errorf("prompts: pack %s has no column policies, so %q cannot be chosen", p.Name, policy)
		}
		return "", fmt.Errorf("prompts: pack %s has no column policy %q; it has %s", p.Name, policy, strings.Join(p.Policies, ", "))
	}
	return fill(p.system, map[string]string{"schema": schema, "columns": columns, "examples": p.examples}), nil
}

// User is the user message.
func (p *Pack) User(question string) string {
	return fill(p.user, map[string]string{"question": question})
}

// Files returns the pack's files as they were read, by name.
func (p *Pack) Files() map[string][]byte { return maps.Clone(p.files) }

// fill puts values into the placeholders. What is put in is not looked at again.
func fill(text string, values map[string]string) string {
	return placeholder.ReplaceAllStringFunc(text, func(m string) string {
		return values[strings.Trim(m, "{} ")]
	})
}

func hashFiles(files map[string][]byte) string {
	h := sha256.New()
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(h, "%d %s %d ", len(name), name, len(files[name]))
		h.Write(files[name])
	}
	return hex.EncodeToString(h.Sum(nil))
}
