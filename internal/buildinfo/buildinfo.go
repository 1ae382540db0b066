// Package buildinfo holds what the build wrote into the binary.
package buildinfo

// These are set by the linker (see Makefile); a plain `go build` leaves the values below.
var (
	Version = "dev"
	Commit  = "unknown"
	// Llama is the build of llama.cpp that is linked, as scripts/llama.sh names it: pin, kind, hash of pin, flags and
	// (in a native build) processor.
	Llama = "unknown"
)
