// Command quern asks SQLite databases with a local model, and merges, runs and scores text-to-SQL agents.
package main

import (
	"os"

	"quern/internal/cli"
	"quern/sqlguard"
)

func main() {
	sqlguard.RunWorker() // does not return in a worker process
	os.Exit(cli.Main())
}
