package sqlguard

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"time"
)

// OpenError says why a database file was not opened.
type OpenError struct {
	Path    string
	Problem string
	Hint    string // what to do next, may be empty
	Err     error  // cause, may be nil
}

func (e *OpenError) Error() string {
	text := fmt.Sprintf("cannot open %s: %s", e.Path, e.Problem)
	if e.Hint != "" {
		text += "; " + e.Hint
	}
	return text
}

func (e *OpenError) Unwrap() error { return e.Err }

// file is a database file as the opening rules found it, and how it is to be opened.
type file struct {
	path  string // absolute, links resolved
	uri   string
	note  string // what a person should know about the way it was opened
	stamp stamp
	fixed bool   // the file must stay as stamp has it: read without locks, or from a copy
	temp  string // folder of the private copy, "" without
}

// stamp tells whether a database at rest has changed.
type stamp struct {
	size, wal int64
	modified  time.Time
}

func stampOf(path string) (stamp, error) {
	info, err := os.Stat(path)
	if err != nil {
		return stamp{}, err
	}
	return stamp{info.Size(), sizeOf(path + "-wal"), info.ModTime()}, nil
}

// changed says that a file that had to stay as it was has not.
func (f *file) changed() bool {
	if !f.fixed {
		return false
	}
	now, err := stampOf(f.path)
	return err != nil || now != f.stamp
}

// remove deletes the private copy.
func (f *file) remove() {
	if f.temp != "" {
		os.RemoveAll(f.temp)
	}
}

// locate applies the opening rules: what is at path must be a SQLite database, is not created, not written, and gets no
// file beside it that was not there.
func locate(path string, immutable bool) (*file, error) {
	f, header, err := examine(path)
	if err != nil {
		return nil, err
	}
	wal := header[18] == 2 || header[19] == 2
	walBytes, shm := sizeOf(f.path+"-wal"), sizeOf(f.path+"-shm")
	switch {
	case wal && walBytes >= 0 && shm >= 0:
		// Other programs may be at work, or one crashed. SQLite reads the log with them and needs no new file.
		f.uri = fileURI(f.path, runtime.GOOS, "mode=ro&readonly_shm=1")
	case wal && walBytes > 0:
		return f, f.copyAside()
	case hotJournal(f.path):
		// SQLite decides whether a program is at work, or stopped midway and left it.
		f.uri = fileURI(f.path, runtime.GOOS, "mode=ro")
	case wal || immutable || !writableDir(filepath.Dir(f.path)):
		// A database in WAL mode would get a log and an index beside it even for reading.
		f.uri, f.fixed = fileURI(f.path, runtime.GOOS, "mode=ro&immutable=1"), true
	default:
		f.uri = fileURI(f.path, runtime.GOOS, "mode=ro")
	}
	return f, nil
}

// examine finds the file and reads its header of 100 bytes.
func examine(path string) (*file, []byte, error) {
	resolved, err := filepath.Abs(path)
	if err == nil {
		resolved, err = filepath.EvalSymlinks(resolved)
	}
	if err != nil {
		return nil, nil, &OpenError{path, osProblem(err), "check the path", err}
	}
	info, err := os.Stat(resolved)
	switch {
	case err != nil:
		return nil, nil, &OpenError{path, osProblem(err), "check the path", err}
	case info.IsDir():
		return nil, nil, &OpenError{Path: path, Problem: "it is a folder", Hint: "name the database file inside it" + databasesIn(resolved)}
	case !info.Mode().IsRegular(): // before it is opened: a FIFO would wait for a writer
		return nil, nil, &OpenError{Path: path, Problem: "it is not a regular file"}
	case info.Size() == 0:
		return nil, nil, &OpenError{Path: path, Problem: "the file is empty", Hint: "check the path: SQLite's own tools create an empty file for a name that does not exist"}
	}
	f := &file{path: resolved, stamp: stamp{info.Size(), sizeOf(resolved + "-wal"), info.ModTime()}}
	header, err := readHeader(resolved)
	if err != nil {
		return nil, nil, &OpenError{path, osProblem(err), "", err}
	}
	if !bytes.HasPrefix(header, []byte("SQLite format 3\x00")) {
		return nil, nil, &OpenError{Path: path, Problem: "it is not a SQLite database (its first bytes are not SQLite's)", Hint: "an encrypted database cannot be read"}
	}
	if len(header) < headerBytes {
		return nil, nil, &OpenError{Path: path, Problem: "the file is cut short"}
	}
	return f, header, nil
}

const headerBytes = 100

func readHeader(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	header := make([]byte, headerBytes)
	n, err := io.ReadFull(f, header)
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = nil
	}
	return header[:n], err
}

// copyAside copies the database and its log to a private folder: reading the log needs an index file, which must not appear
// beside the original. No -shm means that no program has the database open, so the two files belong together.
func (f *file) copyAside() error {
	dir, err := os.MkdirTemp("", "quern-db-")
	if err != nil {
		return &OpenError{f.path, "its write-ahead log can only be read from a copy: " + err.Error(), "set TMPDIR to a folder with room for it", err}
	}
	f.temp, f.fixed = dir, true
	to := filepath.Join(dir, "copy.sqlite")
	for _, suffix := range []string{"", "-wal"} {
		if err := copyFile(to+suffix, f.path+suffix); err != nil {
			f.remove()
			return &OpenError{f.path, "its write-ahead log can only be read from a copy: " + err.Error(), "set TMPDIR to a folder with room for it", err}
		}
	}
	f.uri = fileURI(to, runtime.GOOS, "mode=ro")
	f.note = "the database has an unfinished write-ahead log; a private copy of both is read"
	return nil
}

func copyFile(to, from string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(out, in)
	return errors.Join(err, out.Close())
}

// hotJournal says whether a rollback journal lies beside the database whose header is alive: programs may also leave it
// emptied or zeroed for reuse.
func hotJournal(path string) bool {
	header, err := readHeader(path + "-journal")
	return err == nil && bytes.HasPrefix(header, []byte{0xd9, 0xd5, 0x05, 0xf9, 0x20, 0xa1, 0x63, 0xd7})
}

// sizeOf is the size of a file, -1 where there is none.
func sizeOf(path string) int64 {
	info, err := os.Stat(path)
	if err != nil {
		return -1
	}
	return info.Size()
}

// fileURI writes a path as SQLite's URI (https://www.sqlite.org/uri.html), everything special escaped.
func fileURI(path, goos, query string) string {
	if goos == "windows" {
		path = strings.ReplaceAll(path, `\`, "/")
		if !strings.HasPrefix(path, "/") {
			path = "/" + path // C:/x becomes file:///C:/x, //server/share file:////server/share
		}
	}
	return "file://" + (&url.URL{Path: path}).EscapedPath() + "?" + query
}

func osProblem(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "there is no such file"
	case errors.Is(err, fs.ErrPermission):
		return "permission denied"
	}
	var pathError *fs.PathError
	if errors.As(err, &pathError) {
		return pathError.Err.Error()
	}
	return err.Error()
}

// databasesIn lists up to three database files of a folder, for a message.
func databasesIn(dir string) string {
	var found []string
	for _, pattern := range []string{"*.sqlite", "*.db", "*.sqlite3"} {
		names, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, name := range names {
			found = append(found, filepath.Base(name))
		}
	}
	if len(found) == 0 {
		return ""
	}
	return ", such as " + strings.Join(found[:min(3, len(found))], ", ")
}
