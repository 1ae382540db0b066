package cli

import (
	"encoding/json"
	"fmt"

	"github.com/urfave/cli/v2"

	"quern/internal/buildinfo"
)

// versionInfo is the JSON of `quern version --json`.
type versionInfo struct {
	Version string `json:"version"`
	Commit  string `json:"commit"`
}

func versionCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "version",
		Usage: "what this binary is and what it was built from",
		Flags: []cli.Flag{&cli.BoolFlag{Name: "json", Usage: "as JSON"}},
		Action: func(c *cli.Context) error {
			info := versionInfo{Version: buildinfo.Version, Commit: buildinfo.Commit}
			if c.Bool("json") {
				return json.NewEncoder(env.Stdout).Encode(info)
			}
			_, err := fmt.Fprintf(env.Stdout, "quern %s (%s)\n", info.Version, info.Commit)
			return err
		},
	}
}
