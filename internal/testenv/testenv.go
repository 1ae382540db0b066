// Package testenv finds what some tests need from outside the repository: the golden results of the reference
// software, benchmark data, llama.cpp's tools. A test that misses it skips with a message that says what is missing;
// with QUERN_REQUIRE_SHARED=1, as in CI, it fails instead.
package testenv

import (
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// Root is the folder of go.mod.
func Root() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
}

// Oracles returns a path inside the oracle folder: QUERN_ORACLES, by default ../shared/oracles beside the repository.
func Oracles(t testing.TB, elem ...string) string {
	t.Helper()
	return need(t, filepath.Join(append([]string{oracleRoot()}, elem...)...))
}

// OracleInputs is Oracles for what an oracle folder may leave to the default one: inputs that several folders share
// (checkpoints, vocabularies, templates). It looks in QUERN_ORACLES first, then in ../shared/oracles.
func OracleInputs(t testing.TB, elem ...string) string {
	t.Helper()
	here := filepath.Join(append([]string{oracleRoot()}, elem...)...)
	if _, err := os.Stat(here); err == nil {
		return here
	}
	return need(t, filepath.Join(append([]string{sharedRoot(), "oracles"}, elem...)...))
}

// Shared returns a path inside the shared folder (QUERN_SHARED, by default ../shared): data, demo-model.
func Shared(t testing.TB, elem ...string) string {
	t.Helper()
	return need(t, filepath.Join(append([]string{sharedRoot()}, elem...)...))
}

// Tool returns the path of one of llama.cpp's own programs, built by `make tools`.
func Tool(t testing.TB, name string) string {
	t.Helper()
	return need(t, filepath.Join(Root(), "third_party", "llama.cpp", "bin", name))
}

func oracleRoot() string {
	if dir := os.Getenv("QUERN_ORACLES"); dir != "" {
		return absolute(dir)
	}
	return filepath.Join(sharedRoot(), "oracles")
}

func sharedRoot() string {
	if dir := os.Getenv("QUERN_SHARED"); dir != "" {
		return absolute(dir)
	}
	return filepath.Join(filepath.Dir(Root()), "shared")
}

// absolute reads a relative path from the repository's root, since `go test` runs in each package's folder.
func absolute(dir string) string {
	if filepath.IsAbs(dir) {
		return dir
	}
	return filepath.Join(Root(), dir)
}

func need(t testing.TB, path string) string {
	t.Helper()
	if _, err := os.Stat(path); err == nil {
		return path
	}
	Missing(t, "%s is not here", strings.TrimPrefix(path, filepath.Dir(Root())+string(filepath.Separator)))
	return ""
}

// Missing skips the test with the reason, or fails it where nothing may be missing (QUERN_REQUIRE_SHARED=1).
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	if os.Getenv("QUERN_REQUIRE_SHARED") == "1" {
		t.Fatalf("needed here (QUERN_REQUIRE_SHARED=1): "+format, args...)
	}
	t.Skipf(format, args...)
}
