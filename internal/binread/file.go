package binread

import (
	"fmt"
	"os"
)

// File is a regular file open for reading. ReadAt and View may be called by several goroutines.
type File struct {
	f    *os.File
	size int64
}

// Open opens a file for reading and notes its size, which must not change while it is open.
func Open(path string) (*File, error) {
	info, err := os.Stat(path) // before opening, which would wait for ever on a pipe
	if err == nil && !info.Mode().IsRegular() {
		err = fmt.Errorf("open %s: not a regular file", path)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err != nil {
		f.Close()
		return nil, err
	}
	return &File{f: f, size: info.Size()}, nil
}

// Size returns the file's size in bytes when it was opened.
func (f *File) Size() int64 { return f.size }

// Name returns the path that it was opened by.
func (f *File) Name() string { return f.f.Name() }

// ReadAt implements io.ReaderAt.
func (f *File) ReadAt(p []byte, off int64) (int, error) { return f.f.ReadAt(p, off) }

// Close closes the file. A second call returns an error, as os.File's does.
func (f *File) Close() error { return f.f.Close() }
