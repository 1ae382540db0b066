// Command quern asks SQLite databases with a local model, and merges, runs and scores text-to-SQL agents.
package main

import (
	"os"

	"quern/internal/cli"
)

func main() { os.Exit(cli.Main()) }
