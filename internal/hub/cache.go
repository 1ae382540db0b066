package hub

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// Cache is a folder in the layout of huggingface_hub, so that what other tools downloaded is found here and the
// other way round:
//
//	models--ORG--NAME/blobs/HASH           contents, named by their hash
//	models--ORG--NAME/snapshots/COMMIT/…   the repository's files, as links to blobs
//	models--ORG--NAME/refs/main            the commit that a branch named last
type Cache struct{ Dir string }

// DefaultCache follows huggingface_hub's variables: HF_HUB_CACHE, then HF_HOME/hub, then ~/.cache/huggingface/hub.
func DefaultCache() (Cache, error) {
	if dir := os.Getenv("HF_HUB_CACHE"); dir != "" {
		return Cache{dir}, nil
	}
	home, err := huggingFaceHome()
	return Cache{filepath.Join(home, "hub")}, err
}

func huggingFaceHome() (string, error) {
	if dir := os.Getenv("HF_HOME"); dir != "" {
		return dir, nil
	}
	if dir := os.Getenv("XDG_CACHE_HOME"); dir != "" {
		return filepath.Join(dir, "huggingface"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder for the download cache: %w; set HF_HOME", err)
	}
	return filepath.Join(home, ".cache", "huggingface"), nil
}

// Snapshot returns the folder of a model that is in the cache already, at the commit its revision named last.
func (c Cache) Snapshot(id, revision string) (dir string, ok bool) {
	commit, err := os.ReadFile(filepath.Join(c.repo(id), "refs", revision))
	if err != nil {
		commit = []byte(revision) // a commit names its snapshot itself
	}
	dir = filepath.Join(c.repo(id), "snapshots", strings.TrimSpace(string(commit)))
	info, err := os.Stat(dir)
	return dir, err == nil && info.IsDir()
}

func (c Cache) repo(id string) string {
	return filepath.Join(c.Dir, "models--"+strings.ReplaceAll(id, "/", "--"))
}

var validID = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// Ref names what to pull: a repository and, after a colon, which of its files.
type Ref struct {
	ID      string // ORG/NAME
	Pattern string // path.Match pattern for file names; "" takes them all
}

// ParseRef reads ORG/NAME or ORG/NAME:FILE, where FILE may hold * and ?.
func ParseRef(s string) (Ref, error) {
	id, pattern, _ := strings.Cut(s, ":")
	if !validID.MatchString(id) || strings.Contains(id, "..") {
		return Ref{}, fmt.Errorf("%q is no model of the hub: expected ORG/NAME or ORG/NAME:FILE, such as Qwen/Qwen2.5-3B-Instruct-GGUF:*q8_0.gguf", s)
	}
	return Ref{ID: id, Pattern: pattern}, nil
}
