// Package buildinfo holds what the build wrote into the binary.
package buildinfo

// Version and Commit are set by the linker (see Makefile); a plain `go build` leaves the values below.
var (
	Version = "dev"
	Commit  = "unknown"
)
