package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/internal/buildinfo"
	"quern/sqlguard"
)

// versionInfo is the JSON of `quern version --json`.
type versionInfo struct {
	Version  string              `json:"version"`
	Commit   string              `json:"commit"`
	Go       string              `json:"go"`
	Platform string              `json:"platform"` // OS/architecture
	LlamaCpp string              `json:"llama_cpp"`
	Build    string              `json:"llama_cpp_build"` // pin, kind and flags, as scripts/llama.sh names the build
	Backends []string            `json:"backends"`
	CPU      []string            `json:"cpu_features"`
	Kernels  []string            `json:"kernels"` // what is computed by routines of our own on this processor; [] where none is
	SQLite   sqlguard.EngineInfo `json:"sqlite"`
}

func version() versionInfo {
	return versionInfo{
		Version: buildinfo.Version, Commit: buildinfo.Commit,
		Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH,
		LlamaCpp: engine.LlamaVersion(), Build: buildinfo.Llama,
		Backends: engine.Backends(), CPU: engine.CPUFeatures(), Kernels: append([]string{}, engine.Kernels()...),
		SQLite: sqlguard.Engine(),
	}
}

func versionCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "what this binary is and what it was built from",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "as JSON"}},
		Action: func(c *cli.Context) error {
			if c.Bool("json") {
				return json.NewEncoder(env.Stdout).Encode(version())
			}
			return printVersion(env.Stdout, version())
		},
	}
}

// ownKernels says in words what is computed by Quern and what by ggml.
func ownKernels(names []string) string {
	if len(names) == 0 {
		return "ggml's"
	}
	return "ggml's; " + strings.Join(names, ", ") + ": Quern's own"
}

func printVersion(w io.Writer, v versionInfo) error {
	_, err := fmt.Fprintf(w, `quern %s (%s) %s %s
llama.cpp   %s (%s)
backends    %s
processor   %s
kernels     %s
SQLite      %s
            %s
`, v.Version, v.Commit, v.Go, v.Platform, v.LlamaCpp, v.Build, strings.Join(v.Backends, " "), strings.Join(v.CPU, " "),
		ownKernels(v.Kernels), v.SQLite.Version, strings.Join(v.SQLite.CompileOptions, " "))
	return err
}
