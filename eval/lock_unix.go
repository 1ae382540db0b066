//go:build unix

package eval

import (
	"os"

	"golang.org/x/sys/unix"
)

// lockFile takes the file for this process until it is closed or the process ends.
func lockFile(file *os.File) error {
	return unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
