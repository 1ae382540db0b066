package filebench

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"quern/internal/bench"
)

// measure runs a command to its end and adds what it cost. Memory is the kernel's count for the process (wait4), which
// begins with what this process had resident when it started the command: a floor of some ten MB.
func measure(ctx context.Context, command []string, cost *Cost) error {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(cmd.Environ(), "HF_HUB_OFFLINE=1")
	var output bytes.Buffer
	cmd.Stdout, cmd.Stderr = &output, &output
	began := time.Now()
	err := cmd.Run()
	took := time.Since(began)
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, lastLines(output.Bytes()))
	}
	add(&cost.Seconds, took.Seconds())
	add(&cost.CPU, (cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime()).Seconds())
	if usage, ok := cmd.ProcessState.SysUsage().(*syscall.Rusage); ok {
		add(&cost.Memory, float64(usage.Maxrss)*maxrssUnit()/1e6)
	}
	return nil
}

// maxrssUnit is what the kernel counts memory in: bytes on macOS, elsewhere KiB.
func maxrssUnit() float64 {
	if runtime.GOOS == "darwin" {
		return 1
	}
	return 1024
}

func add(f *bench.Figure, x float64) {
	f.Runs = append(f.Runs, x)
	sorted := slices.Sorted(slices.Values(f.Runs))
	n := len(sorted)
	f.Median = (sorted[(n-1)/2] + sorted[n/2]) / 2
}

// lastLines is the end of a program's output, for an error message.
func lastLines(output []byte) string {
	lines := strings.Split(strings.TrimSpace(string(output)), "\n")
	return strings.Join(lines[max(0, len(lines)-4):], "\n")
}
