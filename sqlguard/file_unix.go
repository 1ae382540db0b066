//go:build unix

package sqlguard

import "golang.org/x/sys/unix"

// writableDir says whether this process may create files in dir.
func writableDir(dir string) bool { return unix.Access(dir, unix.W_OK) == nil }
