// Package docs runs the commands that the documentation shows.
package docs

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"quern/convert"
	"quern/internal/cli"
	"quern/internal/demo"
	"quern/internal/testenv"
	"quern/sqlguard"
)

// asQuern makes the test binary be quern, so that the documented lines can be run as they stand.
const asQuern = "QUERN_DOCS_TEST_IS_QUERN"

func TestMain(m *testing.M) {
	sqlguard.RunWorker() // does not return in a worker process
	if os.Getenv(asQuern) != "" {
		os.Exit(cli.Main())
	}
	os.Exit(m.Run())
}

var shellBlock = regexp.MustCompile("(?ms)^```sh\n(.*?)^```")

func TestDocumentedCommands(t *testing.T) {
	pages, err := filepath.Glob("*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for _, page := range append(pages, "../README.md") {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		blocks := shellBlock.FindAllStringSubmatch(string(text), -1)
		if len(blocks) == 0 {
			continue
		}
		t.Run(filepath.Base(page), func(t *testing.T) {
			shell := newShell(t)
			for _, block := range blocks {
				for _, line := range strings.Split(strings.TrimSpace(block[1]), "\n") {
					shell.run(t, line)
				}
			}
		})
	}
}

// shell is a folder with the files that the pages speak of, and quern on its path. Lines run in one bash session each;
// variables are kept.
type shell struct {
	dir  string
	env  []string
	vars string // assignments of earlier lines
}

func newShell(t *testing.T) *shell {
	t.Helper()
	s := &shell{dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	bin := filepath.Join(s.dir, ".bin")
	os.MkdirAll(bin, 0o755)
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asQuern, self)
	if err := os.WriteFile(filepath.Join(bin, "quern"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	s.files(t)
	hub := httptest.NewServer(fakeHub{s.dir})
	t.Cleanup(hub.Close)
	s.env = append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "HF_ENDPOINT="+hub.URL, "HF_HOME="+filepath.Join(s.dir, ".hf"),
		"QUERN_HISTORY="+filepath.Join(s.dir, ".history.sqlite"))
	return s
}

// files lays out the demo model's parts under the names that the pages use.
func (s *shell) files(t *testing.T) {
	t.Helper()
	parts := filepath.Join(testenv.Root(), "testdata", "demo-model")
	unpacked, err := demo.Unpack()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(unpacked.Remove)
	for name, target := range map[string]string{
		"model.gguf": unpacked.Model, "harbor.sqlite": unpacked.Database,
		"testdata": filepath.Join(testenv.Root(), "testdata"), "internal": filepath.Join(testenv.Root(), "internal"),
	} {
		if err := os.Symlink(target, filepath.Join(s.dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	s.dataset(t, filepath.Join(parts, "heldout"))
	if _, err := convert.Convert(context.Background(), filepath.Join(parts, "base"), filepath.Join(s.dir, "base.gguf"), convert.Options{Type: "f16"}); err != nil {
		t.Fatal(err)
	}
}

// dataset lays out the held-out questions as Spider's dev set, without those whose gold Spider's own parser cannot read
// (JOIN … USING), on which the official script ends.
func (s *shell) dataset(t *testing.T, from string) {
	t.Helper()
	var all, kept []map[string]any
	text, err := os.ReadFile(filepath.Join(from, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, question := range all {
		if !strings.Contains(question["query"].(string), "USING") {
			kept = append(kept, question)
		}
	}
	dir := filepath.Join(s.dir, "spider")
	os.MkdirAll(dir, 0o755)
	text, _ = json.Marshal(kept)
	if err := os.WriteFile(filepath.Join(dir, "dev.json"), text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"tables.json", "database"} {
		if err := os.Symlink(filepath.Join(from, name), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
}

var assignment = regexp.MustCompile(`^[a-z][a-z0-9]*=`)

// run runs one documented line. Servers are interrupted once they serve; make is what runs these tests.
func (s *shell) run(t *testing.T, line string) {
	t.Helper()
	switch {
	case line == "" || strings.HasPrefix(line, "make "):
		return
	case assignment.MatchString(line):
		s.vars += line + "\n"
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", s.vars+line)
	cmd.Dir, cmd.Env = s.dir, s.env
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	var err error
	if strings.HasPrefix(line, "quern serve") {
		err = interrupt(cmd)
	} else {
		err = cmd.Run()
	}
	if err != nil {
		t.Errorf("%s\n%v\n%s", line, err, out.String())
	}
}

// interrupt starts a server and stops it as Ctrl-C does.
func interrupt(cmd *exec.Cmd) error {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	time.Sleep(3 * time.Second)
	syscall.Kill(-cmd.Process.Pid, syscall.SIGINT)
	return cmd.Wait()
}

// fakeHub serves the demo model under any name: repositories named …-GGUF hold a GGUF, others a checkpoint.
type fakeHub struct{ dir string }

const commit = "0123456789abcdef0123456789abcdef01234567"

func (h fakeHub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	path := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	switch {
	case len(path) == 6 && path[0] == "api":
		h.list(w, path[3])
	case len(path) == 5 && path[2] == "resolve":
		http.ServeFile(w, r, h.file(path[1], path[4]))
	default:
		http.NotFound(w, r)
	}
}

func (h fakeHub) names(repo string) []string {
	if strings.HasSuffix(repo, "-GGUF") {
		return []string{"model-q8_0.gguf"}
	}
	return []string{"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json", "chat_template.jinja"}
}

func (h fakeHub) file(repo, name string) string {
	if strings.HasSuffix(repo, "-GGUF") {
		return filepath.Join(h.dir, "model.gguf")
	}
	return filepath.Join(testenv.Root(), "testdata", "demo-model", "base", name)
}

func (h fakeHub) list(w http.ResponseWriter, repo string) {
	var siblings []any
	for _, name := range h.names(repo) {
		data, err := os.ReadFile(h.file(repo, name))
		if err != nil {
			continue
		}
		sum := sha256.Sum256(data)
		siblings = append(siblings, map[string]any{"rfilename": name, "size": len(data), "blobId": commit,
			"lfs": map[string]any{"sha256": hex.EncodeToString(sum[:]), "size": len(data)}})
	}
	json.NewEncoder(w).Encode(map[string]any{"sha": commit, "siblings": siblings})
}
