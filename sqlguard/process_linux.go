package sqlguard

import (
	"bytes"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// startTied starts a worker that the kernel ends with this process, even when that is killed.
func startTied(cmd *exec.Cmd) (err error) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	onStarterThread(func() { err = cmd.Start() })
	return err
}

// maxFileBytes bounds every file a worker writes. It writes none, but for the -shm index of a database in WAL mode
// that others have open: 32 kB for each 4096 pages of log.
const maxFileBytes = 16 << 20

// confineProcess gives up what a worker never needs. What fails is a further wall that is missing, not the first one.
func confineProcess() {
	signal.Ignore(unix.SIGXFSZ, unix.SIGHUP)
	unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
	unix.Setrlimit(unix.RLIMIT_CORE, &unix.Rlimit{})
	unix.Setrlimit(unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: maxFileBytes, Max: maxFileBytes})
}

// addressSpaceSlack is for what is not SQLite's: Go's heap, rows on their way, stacks of new threads.
const addressSpaceSlack = 1 << 30

// limitAddressSpace lets the process map so many bytes more than it has now; 0 lifts the limit.
func limitAddressSpace(memory int64) {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) != nil {
		return
	}
	limit.Cur = limit.Max
	if mapped := mappedBytes(); memory > 0 && mapped > 0 {
		limit.Cur = min(limit.Max, uint64(mapped+memory+addressSpaceSlack))
	}
	unix.Setrlimit(unix.RLIMIT_AS, &limit)
}

// mappedBytes is the size of the process's address space, 0 where it cannot be told.
func mappedBytes() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		return 0
	}
	pages, _, _ := bytes.Cut(statm, []byte(" "))
	n, _ := strconv.ParseInt(string(pages), 10, 64)
	return n * int64(os.Getpagesize())
}

// thread is a thread of this process.
type thread int

// currentThread is the calling goroutine's thread, which must be locked to it.
func currentThread() thread { return thread(unix.Gettid()) }

// cpuTime is what the thread has used so far.
func (t thread) cpuTime() time.Duration {
	const perThread, scheduled = 4, 2 // clock_getres(2), "dynamic clock ids": ~id<<3 | kind
	var now unix.Timespec
	if unix.ClockGettime(int32(^int(t)<<3|perThread|scheduled), &now) != nil {
		return 0
	}
	return time.Duration(now.Nano())
}

// lowerPriority makes the thread run only where nobody else wants to (SCHED_IDLE), which it cannot take back. Nice values would not
// do: a thread that wakes up waits for the time slice of one with a lower priority.
func (t thread) lowerPriority() {
	unix.SchedSetAttr(int(t), &unix.SchedAttr{Size: unix.SizeofSchedAttr, Policy: unix.SCHED_IDLE}, 0)
}
