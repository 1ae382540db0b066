//go:build !linux

package sqlguard

import (
	"os/exec"
	"time"
)

// Elsewhere than on Linux a worker ends when its control pipe closes, and is confined by SQLite's limits and the kill alone.

func startTied(cmd *exec.Cmd) error { return cmd.Start() }

func confineProcess() {}

func limitAddressSpace(int64) {}

// thread is a thread of this process, whose priority stays as it is.
type thread struct{}

func currentThread() thread { return thread{} }

func (thread) cpuTime() time.Duration { return 0 }

func (thread) lowerPriority() {}
