package cli

import (
	"os"
	"testing"

	"quern/sqlguard"
)

func TestMain(m *testing.M) {
	sqlguard.RunWorker() // does not return in a worker process
	os.Exit(m.Run())
}
