//go:build unix

package binread

import (
	"fmt"
	"os"
	"runtime/debug"

	"golang.org/x/sys/unix"
)

// View maps n bytes from off into memory for the time of the call of f. Should the file become shorter meanwhile, the
// resulting fault ends f and becomes an error, as long as f reads the bytes on the goroutine it was called on.
func (f *File) View(off, n int64, fn func([]byte) error) (err error) {
	if off < 0 || n < 0 || off > f.size-n {
		return fmt.Errorf("read %s: %w: bytes %d to %d of %d", f.Name(), ErrTruncated, off, off+n, f.size)
	}
	if n == 0 {
		return fn(nil)
	}
	start := off &^ int64(os.Getpagesize()-1)
	data, err := unix.Mmap(int(f.f.Fd()), start, int(off-start+n), unix.PROT_READ, unix.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map %s: %w", f.Name(), err)
	}
	defer unix.Munmap(data)
	_ = unix.Madvise(data, unix.MADV_SEQUENTIAL) // advice only: without it the reads are slower, not wrong

	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch cause := recover().(type) {
		case nil:
		case interface {
			error
			Addr() uintptr // only memory faults have one
		}:
			err = fmt.Errorf("read %s: the file changed while it was read: %v", f.Name(), cause)
		default:
			panic(cause)
		}
	}()
	return fn(data[off-start:])
}
