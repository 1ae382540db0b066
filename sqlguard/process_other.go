//go:build !linux

package sqlguard

import "os/exec"

// Elsewhere than on Linux a worker ends when its control pipe closes, and is confined by SQLite's limits and the kill alone.

func startTied(cmd *exec.Cmd) error { return cmd.Start() }

func confineProcess() {}

func limitAddressSpace(int64) {}

func priorityLowerer() func() { return func() {} }
