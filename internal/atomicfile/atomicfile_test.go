package atomicfile

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// names lists a folder, hidden files included.
func names(t *testing.T, dir string) []string {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var list []string
	for _, e := range entries {
		list = append(list, e.Name())
	}
	return list
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "out")
	if err := os.WriteFile(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Reserve(5); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("new"), 1); err != nil {
		t.Fatal(err)
	}
	if old, _ := os.ReadFile(path); string(old) != "old" {
		t.Errorf("before Commit: %q", old)
	}
	if err := f.Commit(); err != nil {
		t.Fatal(err)
	}
	f.Discard() // as deferred
	if got, _ := os.ReadFile(path); string(got) != "\x00new\x00" {
		t.Errorf("after Commit: %q", got)
	}
	if info, _ := os.Stat(path); info.Mode().Perm() != 0o644 {
		t.Errorf("mode %v", info.Mode())
	}
	if err := f.Commit(); err == nil {
		t.Error("a second Commit succeeded")
	}
	if list := names(t, dir); len(list) != 1 {
		t.Errorf("left behind: %v", list)
	}
}

func TestDiscard(t *testing.T) {
	dir := t.TempDir()
	f, err := Create(filepath.Join(dir, "out"))
	if err != nil {
		t.Fatal(err)
	}
	f.Discard()
	f.Discard()
	if list := names(t, dir); len(list) != 0 {
		t.Errorf("left behind: %v", list)
	}
	if _, err := Create(filepath.Join(dir, "none", "out")); err == nil {
		t.Error("a file in a folder that is not there was created")
	}
	for _, path := range []string{dir, os.DevNull} {
		if _, err := Create(path); err == nil {
			t.Errorf("%s would be replaced by a file", path)
		}
	}
}

func TestDir(t *testing.T) {
	dir := t.TempDir()
	for _, path := range []string{filepath.Join(dir, "new"), filepath.Join(dir, "slash") + "/"} {
		d, err := CreateDir(path)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(d.Path, "file"), []byte("x"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(path); err == nil {
			t.Error("it is there before Commit")
		}
		if err := d.Commit(); err != nil {
			t.Fatal(err)
		}
		d.Discard() // as deferred
		if got, _ := os.ReadFile(filepath.Join(path, "file")); string(got) != "x" {
			t.Errorf("after Commit: %q", got)
		}
	}
	if _, err := CreateDir(filepath.Join(dir, "new")); err == nil || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("a folder with files: %v", err)
	}
	d, err := CreateDir(filepath.Join(dir, "gone"))
	if err != nil {
		t.Fatal(err)
	}
	d.Discard()
	if list := names(t, dir); len(list) != 2 {
		t.Errorf("left behind: %v", list)
	}
}

func TestFullDisk(t *testing.T) {
	err := explain("/data/out.gguf", fmt.Errorf("write: %w", syscall.ENOSPC))
	if !strings.Contains(err.Error(), "no space left on the disk of /data") {
		t.Error(err)
	}
}
