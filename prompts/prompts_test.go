package prompts

import (
	"bufio"
	"encoding/json"
	"errors"
	"os"
	"reflect"
	"strings"
	"testing"
	"testing/fstest"

	"quern/internal/testenv"
)

func TestBuiltinPacksLoad(t *testing.T) {
	if len(Names()) == 0 {
		t.Fatal("no built-in pack")
	}
	for _, name := range Names() {
		p, err := Builtin(name)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if p.Name != name {
			t.Errorf("folder %s holds pack %s", name, p.Name)
		}
		again, err := Load(folder(p.Files()))
		if err != nil || again.Hash != p.Hash {
			t.Errorf("%s: exported and read again: hash %s, %v; was %s", name, again.Hash, err, p.Hash)
		}
	}
	if _, err := Builtin("no such"); err == nil || !strings.Contains(err.Error(), "hermes") {
		t.Errorf("unknown pack: %v", err)
	}
}

// The two column policies differ in their own block and nowhere else.
func TestColumnPoliciesDifferInOneBlock(t *testing.T) {
	p, err := ForProfile("qwen-xml")
	if err != nil {
		t.Fatal(err)
	}
	const schema = "CREATE TABLE {{columns}} (a, b)"
	v3, err := p.System(schema, "v3")
	if err != nil {
		t.Fatal(err)
	}
	spider2, err := p.System(schema, "spider2")
	if err != nil {
		t.Fatal(err)
	}
	v3Block, spider2Block := p.columns["v3"], p.columns["spider2"]
	if strings.Count(v3, v3Block) != 1 || strings.Count(spider2, spider2Block) != 1 {
		t.Fatal("a policy's block does not stand in its prompt once")
	}
	if strings.Replace(v3, v3Block, spider2Block, 1) != spider2 {
		t.Error("the prompts differ outside the block")
	}
	if byDefault, _ := p.System(schema, ""); byDefault != v3 {
		t.Error("v3 is not the default")
	}
	if !strings.Contains(v3, schema) {
		t.Error("what is filled in was looked at again")
	}
	if _, err := p.System(schema, "v4"); err == nil || !strings.Contains(err.Error(), "spider2") {
		t.Errorf("unknown policy: %v", err)
	}
}

// The hermes pack gives the text and the tool that the published model was trained with.
func TestHermesAsTrained(t *testing.T) {
	p, err := ForProfile("hermes")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.System("", "v3"); err == nil {
		t.Error("a pack without policies took one")
	}
	f, err := os.Open(testenv.Oracles(t, "chat", "verl_loop.jsonl"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<24)
	rows := 0
	for ; lines.Scan(); rows++ {
		var row struct {
			ID       string
			Messages []struct{ Role, Content string }
			Tools    []json.RawMessage
		}
		if err := json.Unmarshal(lines.Bytes(), &row); err != nil {
			t.Fatal(err)
		}
		got := row.Messages[0].Content
		_, rest, _ := strings.Cut(got, "\n")
		schema := rest[:strings.LastIndex(rest, "\n")]
		if want, _ := p.System(schema, ""); want != got {
			t.Errorf("%s: system text\n got %q\nwant %q", row.ID, want, got)
		}
		if q := row.Messages[1].Content; p.User(q) != q {
			t.Errorf("%s: user text %q", row.ID, p.User(q))
		}
		var mine, theirs any
		if json.Unmarshal([]byte(p.Tool), &mine) != nil || json.Unmarshal(row.Tools[0], &theirs) != nil || !reflect.DeepEqual(mine, theirs) {
			t.Errorf("%s: tool declaration differs", row.ID)
		}
	}
	if rows == 0 {
		t.Fatal("no rows")
	}
}

func folder(files map[string][]byte) fstest.MapFS {
	fsys := fstest.MapFS{}
	for name, data := range files {
		fsys[name] = &fstest.MapFile{Data: data}
	}
	return fsys
}

// A broken pack says which file and which line.
func TestBrokenPacks(t *testing.T) {
	good := func() map[string][]byte {
		p, err := Builtin("qwen-xml")
		if err != nil {
			t.Fatal(err)
		}
		return p.Files()
	}
	swap := func(file, old, new string) func(map[string][]byte) {
		return func(files map[string][]byte) {
			if !strings.Contains(string(files[file]), old) {
				t.Fatalf("%s has no %q", file, old)
			}
			files[file] = []byte(strings.Replace(string(files[file]), old, new, 1))
		}
	}
	for _, test := range []struct {
		name  string
		edit  func(map[string][]byte)
		wants string
	}{
		{"no manifest", func(f map[string][]byte) { delete(f, ManifestName) }, "pack.json: not found"},
		{"syntax", swap(ManifestName, `"profile":`, `"profile"`), "pack.json:3: "},
		{"unknown key", swap(ManifestName, `"system":`, `"sistem":`), "pack.json:5: json: unknown field"},
		{"wrong type", swap(ManifestName, `"user.txt"`, `7`), "pack.json:6: "},
		{"two objects", func(f map[string][]byte) { f[ManifestName] = append(f[ManifestName], '{') }, "pack.json:15: there is more text"},
		{"file missing", func(f map[string][]byte) { delete(f, "user.txt") }, "pack.json:6: open user.txt"},
		{"file outside", swap(ManifestName, `"user.txt"`, `"../user.txt"`), `pack.json:6: "../user.txt" is not a name inside`},
		{"no name", swap(ManifestName, `"name": "qwen-xml",`, ``), `pack.json: "name" is missing`},
		{"no tool", swap(ManifestName, `"tool": "tool.json",`, ``), `pack.json: "tool" has to name a file`},
		{"default policy", swap(ManifestName, `"default_columns": "v3"`, `"default_columns": "v4"`), `pack.json:13: "default_columns" has to be one of`},
		{"no schema", swap("system.txt", "{{schema}}", ""), "system.txt: {{schema}} is missing"},
		{"schema twice", swap("system.txt", "Database:", "{{schema}}"), "system.txt:5: {{schema}} a second time"},
		{"typo", swap("system.txt", "{{columns}}", "{{colums}}"), "system.txt:14: {{colums}} has no value here; there are {{columns}}, {{schema}}"},
		{"question in system", swap("system.txt", "Database:", "{{question}}"), "system.txt:3: {{question}} has no value"},
		{"not UTF-8", swap("system.txt", "Database:", "\xff"), "system.txt:3: not UTF-8"},
		{"tool syntax", swap("tool.json", `"type": "object",`, `"type": "object"`), "tool.json:"},
		{"tool without query", swap("tool.json", `["query"]`, `[]`), `tool.json: "parameters" needs`},
		{"too large", func(f map[string][]byte) { f["user.txt"] = make([]byte, maxFileSize+1) }, "user.txt: larger than"},
	} {
		files := good()
		test.edit(files)
		_, err := Load(folder(files))
		var packError *Error
		if !errors.As(err, &packError) || !strings.Contains(err.Error(), test.wants) {
			t.Errorf("%s: %v; want %q", test.name, err, test.wants)
		}
	}
}

// Line ends and a byte order mark of an editor change nothing in the text.
func TestEditorsOfAllKinds(t *testing.T) {
	p, _ := Builtin("qwen-xml")
	files := p.Files()
	for name, data := range files {
		files[name] = []byte("\ufeff" + strings.ReplaceAll(string(data), "\n", "\r\n"))
	}
	q, err := Load(folder(files))
	if err != nil {
		t.Fatal(err)
	}
	want, _ := p.System("S", "")
	if got, _ := q.System("S", ""); got != want {
		t.Errorf("got %q", got)
	}
}

func FuzzLoad(f *testing.F) {
	p, err := Builtin("qwen-xml")
	if err != nil {
		f.Fatal(err)
	}
	files := p.Files()
	f.Add(files[ManifestName], files["system.txt"], files["tool.json"])
	f.Fuzz(func(t *testing.T, manifest, system, tool []byte) {
		files := p.Files()
		files[ManifestName], files["system.txt"], files["tool.json"] = manifest, system, tool
		pack, err := Load(folder(files))
		if err != nil {
			if !errors.As(err, new(*Error)) {
				t.Fatalf("%T: %v", err, err)
			}
			return
		}
		if _, err := pack.System("schema", ""); err != nil {
			t.Fatal(err)
		}
	})
}
