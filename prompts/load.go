package prompts

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ManifestName is the file that makes a folder a pack.
const ManifestName = "pack.json"

const maxFileSize = 1 << 20

var placeholder = regexp.MustCompile(`\{\{ *[A-Za-z_]+ *\}\}`)

// Error is a mistake in a pack.
type Error struct {
	File string // in the pack
	Line int    // from 1; 0: the file as a whole
	Msg  string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("prompt pack: %s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("prompt pack: %s:%d: %s", e.File, e.Line, e.Msg)
}

type manifest struct {
	Name           string            `json:"name"`
	Profile        string            `json:"profile"`
	Description    string            `json:"description"`
	System         string            `json:"system"`
	User           string            `json:"user"`
	Tool           string            `json:"tool"`
	FinalRequest   string            `json:"final_request"`
	Examples       string            `json:"examples"`
	Columns        map[string]string `json:"columns"`
	DefaultColumns string            `json:"default_columns"`
}

// Load reads a pack from a folder. A mistake in it is an *Error that names file and line.
func Load(folder fs.FS) (*Pack, error) {
	l := &loader{folder: folder, files: map[string][]byte{}}
	p := l.pack()
	if l.err != nil {
		return nil, l.err
	}
	p.files, p.Hash = l.files, hashFiles(l.files)
	return p, nil
}

// loader reads files and keeps the first error, so that reading a pack is one straight list.
type loader struct {
	folder   fs.FS
	files    map[string][]byte
	manifest string // its text
	err      error
}

func (l *loader) pack() *Pack {
	m := l.readManifest()
	p := &Pack{
		Name: m.Name, Profile: m.Profile, Description: m.Description,
		Policies: slices.Sorted(maps.Keys(m.Columns)), DefaultPolicy: m.DefaultColumns,
		system:       l.text("system", m.System),
		user:         l.text("user", m.User),
		Tool:         l.text("tool", m.Tool),
		FinalRequest: l.optional("final_request", m.FinalRequest),
		examples:     l.optional("examples", m.Examples),
		columns:      map[string]string{},
	}
	for _, policy := range p.Policies {
		p.columns[policy] = l.text(policy, m.Columns[policy])
	}
	for key, value := range map[string]string{"name": m.Name, "profile": m.Profile} {
		if value == "" {
			l.fail(ManifestName, 0, "%q is missing", key)
		}
	}
	if _, ok := p.columns[p.DefaultPolicy]; !ok && (len(p.Policies) > 0 || p.DefaultPolicy != "") {
		l.fail(ManifestName, l.manifestLine("default_columns"), `"default_columns" has to be one of "columns"`)
	}
	l.checkPlaceholders(m.System, p.system, map[string]bool{
		"schema": true, "columns": len(p.Policies) > 0, "examples": m.Examples != "",
	})
	l.checkPlaceholders(m.User, p.user, map[string]bool{"question": true})
	l.checkTool(m.Tool, p.Tool)
	return p
}

func (l *loader) readManifest() (m manifest) {
	l.manifest = l.read(ManifestName, 0)
	if l.err != nil {
		return m
	}
	d := json.NewDecoder(strings.NewReader(l.manifest))
	d.DisallowUnknownFields()
	err := d.Decode(&m)
	if err == nil {
		if _, more := d.Token(); more != io.EOF {
			err = errors.New("there is more text after the object")
		}
	}
	if err != nil {
		l.fail(ManifestName, jsonErrorLine(l.manifest, err, d.InputOffset()), "%v", err)
	}
	return m
}

// jsonErrorLine is the line that an error of encoding/json speaks of.
func jsonErrorLine(text string, err error, offset int64) int {
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	const unknown = `json: unknown field `
	switch {
	case errors.As(err, &syntax):
		offset = syntax.Offset
	case errors.As(err, &kind):
		offset = kind.Offset
	case strings.HasPrefix(err.Error(), unknown):
		offset = int64(strings.Index(text, strings.TrimPrefix(err.Error(), unknown)))
	}
	return lineAt(text, int(offset))
}

func (l *loader) manifestLine(key string) int {
	at := strings.Index(l.manifest, `"`+key+`"`)
	if at < 0 {
		return 0
	}
	return lineAt(l.manifest, at)
}

func (l *loader) optional(key, name string) string {
	if name == "" {
		return ""
	}
	return l.text(key, name)
}

// text reads the file that the manifest names under key.
func (l *loader) text(key, name string) string {
	line := l.manifestLine(key)
	if name == "" {
		l.fail(ManifestName, line, "%q has to name a file", key)
		return ""
	}
	return strings.TrimSuffix(l.read(name, line), "\n")
}

// read reads a file named in the manifest at that line.
func (l *loader) read(name string, line int) string {
	if l.err != nil {
		return ""
	}
	if !fs.ValidPath(name) || !filepath.IsLocal(name) {
		l.fail(ManifestName, line, "%q is not a name inside the pack's folder", name)
		return ""
	}
	f, err := l.folder.Open(name)
	if err != nil {
		if name == ManifestName {
			l.fail(name, 0, "not found; a prompt pack is a folder with this file")
		} else {
			l.fail(ManifestName, line, "%v", err)
		}
		return ""
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFileSize+1))
	if err != nil {
		l.fail(name, 0, "%v", err)
		return ""
	}
	if len(data) > maxFileSize {
		l.fail(name, 0, "larger than %d bytes", maxFileSize)
		return ""
	}
	l.files[name] = data
	data = bytes.TrimPrefix(data, []byte("\ufeff"))
	text := strings.ReplaceAll(string(data), "\r\n", "\n")
	if bad := invalidUTF8(text); bad >= 0 {
		l.fail(name, lineAt(text, bad), "not UTF-8")
	}
	return text
}

func invalidUTF8(s string) int {
	for i, r := range s {
		if r == utf8.RuneError && !strings.HasPrefix(s[i:], "\ufffd") {
			return i
		}
	}
	return -1
}

// checkPlaceholders wants each of the required ones once, and no others.
func (l *loader) checkPlaceholders(file, text string, required map[string]bool) {
	count := map[string]int{}
	for _, at := range placeholder.FindAllStringIndex(text, -1) {
		name := strings.Trim(text[at[0]:at[1]], "{} ")
		count[name]++
		if !required[name] {
			l.fail(file, lineAt(text, at[0]), "{{%s}} has no value here; there are %s", name, placeholderNames(required))
		}
		if count[name] > 1 {
			l.fail(file, lineAt(text, at[0]), "{{%s}} a second time", name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(required)) {
		if required[name] && count[name] == 0 {
			l.fail(file, 0, "{{%s}} is missing", name)
		}
	}
}

func placeholderNames(required map[string]bool) string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(required)) {
		if required[name] {
			names = append(names, "{{"+name+"}}")
		}
	}
	return strings.Join(names, ", ")
}

// checkTool wants an OpenAI function declaration with one required parameter that is a string: the query.
func (l *loader) checkTool(file, text string) {
	if l.err != nil {
		return
	}
	var tool struct {
		Type     string `json:"type"`
		Function struct {
			Name       string `json:"name"`
			Parameters struct {
				Properties map[string]struct {
					Type string `json:"type"`
				} `json:"properties"`
				Required []string `json:"required"`
			} `json:"parameters"`
		} `json:"function"`
	}
	if err := json.Unmarshal([]byte(text), &tool); err != nil {
		l.fail(file, jsonErrorLine(text, err, 0), "%v", err)
		return
	}
	parameters := tool.Function.Parameters
	switch {
	case tool.Type != "function" || tool.Function.Name == "":
		l.fail(file, 0, `not of the form {"type": "function", "function": {"name": …, "parameters": …}}`)
	case len(parameters.Required) != 1 || parameters.Properties[parameters.Required[0]].Type != "string":
		l.fail(file, 0, `"parameters" needs exactly one required property, of type string: the query`)
	}
}

func (l *loader) fail(file string, line int, format string, args ...any) {
	if l.err == nil {
		l.err = &Error{File: file, Line: line, Msg: fmt.Sprintf(format, args...)}
	}
}

func lineAt(text string, offset int) int {
	offset = max(0, min(offset, len(text)))
	return 1 + strings.Count(text[:offset], "\n")
}
