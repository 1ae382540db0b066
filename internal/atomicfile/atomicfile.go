// Package atomicfile writes files and folders that appear under their name whole or not at all: they grow under a
// temporary name beside it and are renamed when complete.
package atomicfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// File is a file being written. Either Commit or Discard ends it; a deferred Discard after a Commit does nothing.
type File struct {
	*os.File
	path string
	done bool
}

// Create starts a file that will be called path. An existing file of that name stays until Commit replaces it; a
// folder or a device is refused.
func Create(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && !info.Mode().IsRegular() {
		return nil, fmt.Errorf("create %s: there is something of that name that is no file", path)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &File{File: f, path: path}, nil
}

// Reserve asks the file system for size bytes at once, so that a full disk is known before the work, not after it, and
// sets the file's size. Where the file system cannot reserve, only the size is set.
func (f *File) Reserve(size int64) error {
	if err := reserve(f.File, size); err != nil {
		return f.Explain(err)
	}
	if err := f.Truncate(size); err != nil {
		return f.Explain(err)
	}
	return nil
}

// Commit syncs the file to disk and gives it its name.
func (f *File) Commit() error {
	if f.done {
		return errors.New("atomicfile: Commit after the end of " + f.path)
	}
	defer f.Discard()
	if err := f.Chmod(0o644); err != nil {
		return f.Explain(err)
	}
	if err := f.Sync(); err != nil {
		return f.Explain(err)
	}
	if err := f.Close(); err != nil {
		return f.Explain(err)
	}
	if err := os.Rename(f.Name(), f.path); err != nil {
		return f.Explain(err)
	}
	f.done = true
	return syncDir(filepath.Dir(f.path))
}

// Discard removes what was written unless it was committed. It is safe to call more than once.
func (f *File) Discard() {
	if !f.done {
		f.done = true
		f.Close()
		os.Remove(f.Name())
	}
}

// Explain names the final path in a write error, and says what to do about a full disk.
func (f *File) Explain(err error) error { return explain(f.path, err) }

func explain(path string, err error) error {
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return fmt.Errorf("write %s: no space left on the disk of %s; nothing was left there. Free some space or choose another place",
			path, filepath.Dir(path))
	}
	return fmt.Errorf("write %s: %w", path, err)
}

// Dir is a folder being filled. Put files under Path; either Commit or Discard ends it.
type Dir struct {
	Path string // the temporary folder
	path string
	done bool
}

// CreateDir starts a folder that will be called path. path must not exist, or be an empty folder.
func CreateDir(path string) (*Dir, error) {
	path = filepath.Clean(path)
	if entries, err := os.ReadDir(path); err == nil && len(entries) > 0 {
		return nil, fmt.Errorf("create %s: the folder is not empty", path)
	} else if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	temp, err := os.MkdirTemp(filepath.Dir(path), "."+filepath.Base(path)+".tmp-*")
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", path, err)
	}
	return &Dir{Path: temp, path: path}, nil
}

// Commit syncs the folder's files and gives the folder its name.
func (d *Dir) Commit() error {
	if d.done {
		return errors.New("atomicfile: Commit after the end of " + d.path)
	}
	defer d.Discard()
	if err := syncTree(d.Path); err != nil {
		return explain(d.path, err)
	}
	if err := os.Chmod(d.Path, 0o755); err != nil {
		return explain(d.path, err)
	}
	if err := os.Rename(d.Path, d.path); err != nil { // replaces an empty folder
		return explain(d.path, err)
	}
	d.done = true
	return syncDir(filepath.Dir(d.path))
}

// Discard removes what was written unless it was committed. It is safe to call more than once.
func (d *Dir) Discard() {
	if !d.done {
		d.done = true
		os.RemoveAll(d.Path)
	}
}

func syncTree(root string) error {
	return filepath.WalkDir(root, func(path string, _ os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		return syncDir(path)
	})
}

// syncDir syncs a file or a folder. Not every file system lets a folder be synced; that is no failure.
func syncDir(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := f.Sync(); err != nil && !errors.Is(err, syscall.EINVAL) && !errors.Is(err, syscall.ENOTSUP) {
		return err
	}
	return nil
}
