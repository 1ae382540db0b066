package sqlguard_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"quern/sqlguard"
)

// eventually waits up to ten seconds for a condition.
func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for range 1000 {
		if condition() {
			return
		}
		time.Sleep(10 * time.Millisecond)
	}
	t.Errorf("not within 10 s: %s", what)
}

// alive says that a process runs, one that only waits to be forgotten excepted.
func alive(pid int) bool {
	stat, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err == nil && strings.Contains(string(stat), ") Z ") {
		return false
	}
	return syscall.Kill(pid, 0) == nil
}

func TestWorkersThatDieAreReplaced(t *testing.T) {
	policy := sqlguard.AskPolicy()
	policy.Limits.Timeout = time.Minute
	g := open(t, create(t, shop...), policy)
	pool := sqlguard.PoolOf(g)
	for range 5 {
		eventually(t, "two idle workers", func() bool { return len(pool.IdleWorkers()) >= 2 })
		for _, pid := range pool.IdleWorkers() {
			syscall.Kill(pid, syscall.SIGKILL)
		}
		if len(rows(t, g, "SELECT * FROM t")) != 3 { // at once, and later
			t.Error("wrong rows")
		}
	}
	// Killed at work by something else: it runs once more. Killed again: an observation, and the next statement runs.
	var killed []int
	kill := func() {
		for _, pid := range children(t) {
			syscall.Kill(pid, syscall.SIGKILL)
			killed = append(killed, pid)
		}
	}
	time.AfterFunc(100*time.Millisecond, func() { // only what is at work: a sweep over all could also meet the second attempt
		idle := pool.IdleWorkers()
		for _, pid := range children(t) {
			if !slices.Contains(idle, pid) {
				syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	})
	if got := rows(t, g, "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 3000000) SELECT count(*) FROM c"); got[0][0] != integer(3_000_000) {
		t.Error(got)
	}
	over, killing := make(chan struct{}), sync.WaitGroup{}
	killing.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(300 * time.Millisecond):
				kill()
			}
		}
	})
	f := expect(t, g, endless, sqlguard.WorkerDied)
	if !strings.Contains(f.Message, "killed") {
		t.Error(f)
	}
	close(over)
	killing.Wait()
	eventually(t, "idle workers that live", func() bool { // a signal takes its time; two dead ones in a row would be a finding
		idle := pool.IdleWorkers()
		return len(idle) > 0 && !slices.ContainsFunc(idle, func(pid int) bool { return slices.Contains(killed, pid) })
	})
	if len(rows(t, g, "SELECT * FROM t")) != 3 {
		t.Error("wrong rows")
	}
	pids := children(t)
	g.Close()
	for _, pid := range pids {
		eventually(t, "the end of the workers", func() bool { return !alive(pid) })
	}
}

// children are the process ids of this process's workers.
func children(t *testing.T) []int {
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil {
		t.Error(err)
	}
	var pids []int
	for _, path := range stats {
		stat, _ := os.ReadFile(path) // "pid (name) state parent …"; it may have ended meanwhile
		_, rest, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(rest); len(fields) > 1 && fields[1] == strconv.Itoa(os.Getpid()) {
			pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
			pids = append(pids, pid)
		}
	}
	return pids
}

const parentVerb = "__parent-of-workers"

// parentOfWorkers opens a guard, prints its workers' process ids and keeps one of them busy for long.
func parentOfWorkers(path string) {
	policy := sqlguard.AskPolicy()
	policy.Limits.Timeout = time.Hour
	g, err := sqlguard.Open(context.Background(), path, policy)
	if err != nil {
		panic(err)
	}
	for pool := sqlguard.PoolOf(g); ; time.Sleep(time.Millisecond) {
		if pids := pool.IdleWorkers(); len(pids) >= 2 {
			fmt.Println(pids[0], pids[1])
			break
		}
	}
	g.Query(context.Background(), bomb)
}

func TestWorkersDieWithTheirParent(t *testing.T) {
	for _, signal := range []os.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		cmd := exec.Command(os.Args[0], parentVerb, create(t, shop...))
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		var pids [2]int
		if _, err := fmt.Fscan(out, &pids[0], &pids[1]); err != nil {
			t.Fatal(err)
		}
		time.Sleep(300 * time.Millisecond) // the bomb is under way
		cmd.Process.Signal(signal)
		cmd.Wait()
		for _, pid := range pids {
			eventually(t, "the end of worker "+strconv.Itoa(pid), func() bool { return !alive(pid) })
		}
	}
}

// A program that forgot RunWorker must not start itself over and over.
func TestProgramWithoutRunWorker(t *testing.T) {
	if os.Getenv("TEST_WITHOUT_RUN_WORKER") != "" {
		_, err := sqlguard.Open(context.Background(), os.Getenv("TEST_WITHOUT_RUN_WORKER"), sqlguard.AskPolicy())
		fmt.Println(err)
		return
	}
	cmd := exec.Command(os.Args[0], "-test.run", "^TestProgramWithoutRunWorker$", "-test.v")
	cmd.Env = append(os.Environ(), "QUERN_SQLGUARD_WORKER=1", "TEST_WITHOUT_RUN_WORKER="+create(t, shop...))
	out, err := cmd.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "must call sqlguard.RunWorker") {
		t.Errorf("%v: %s", err, out)
	}
}

// TestInterference runs 64 queries at once over 16 databases, by turns alone and among endless queries, LIKE bombs and memory bombs. All
// good ones give their rows; the log has the throughput of both. It says something only where the machine has nothing else to
// do: a busy one gives the program its share, of which the killers take what the good ones leave.
func TestInterference(t *testing.T) {
	const databases, lanes, each, turns, killerLanes = 16, 64, 8, 3, 8
	pool, err := sqlguard.NewPool(0)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	policy := sqlguard.AskPolicy()
	policy.Limits.Timeout = time.Second
	guards := make([]*sqlguard.Guard, databases)
	for i := range guards {
		path := create(t, "CREATE TABLE t(a INTEGER)", "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c LIMIT 20000) INSERT INTO t SELECT n FROM c",
			fmt.Sprintf("INSERT INTO t VALUES (%d)", 1_000_000+i))
		if guards[i], err = pool.Open(context.Background(), path, policy); err != nil {
			t.Fatal(err)
		}
		defer guards[i].Close()
	}
	good := func() (perSecond float64) {
		start := time.Now()
		var wg sync.WaitGroup
		for lane := range lanes {
			wg.Go(func() {
				for range each {
					i := lane % databases
					r, err := guards[i].Query(context.Background(), "SELECT max(a), count(*), sum(a % 7) FROM t")
					if err != nil || r.Failure != nil || r.Rows[0][0] != integer(int64(1_000_000+i)) || r.Rows[0][1] != integer(20_001) {
						t.Errorf("%+v %v", r, err)
						return
					}
				}
			})
		}
		wg.Wait()
		return lanes * each / time.Since(start).Seconds()
	}
	memory := "WITH RECURSIVE c(n) AS (SELECT 1 UNION ALL SELECT n+1 FROM c) SELECT n, hex(randomblob(1000)) AS h FROM c ORDER BY h"
	killers := []string{endless, bomb, memory}
	kill := func(stop *atomic.Bool, lane int) {
		for !stop.Load() {
			r, err := guards[lane].Query(context.Background(), killers[lane%len(killers)])
			if err != nil || r.Failure == nil || r.Failure.Kind != sqlguard.TimedOut && r.Failure.Kind != sqlguard.OutOfMemory {
				t.Errorf("killer: %+v %v", r, err)
			}
		}
	}
	good() // warm
	var alone, among []float64
	for range turns {
		alone = append(alone, good())
		var stop atomic.Bool
		var running sync.WaitGroup
		for lane := range killerLanes {
			running.Go(func() { kill(&stop, lane) })
		}
		time.Sleep(300 * time.Millisecond)
		among = append(among, good())
		stop.Store(true)
		running.Wait()
	}
	slices.Sort(alone)
	slices.Sort(among)
	t.Logf("median of %d turns: %.0f queries/s alone, %.0f among killers (%.0f %%)", turns, alone[turns/2], among[turns/2], 100*among[turns/2]/alone[turns/2])
}

// TestManyQueries runs tens of thousands of statements through one guard: neither descriptors nor memory grow, here or in workers.
func TestManyQueries(t *testing.T) {
	g := open(t, create(t, shop...), sqlguard.AskPolicy())
	pool := sqlguard.PoolOf(g)
	run := func(n int) {
		var wg sync.WaitGroup
		for range 4 {
			wg.Go(func() {
				for i := range n / 4 {
					sql := "SELECT a, b FROM t WHERE a < 3"
					switch i % 10 {
					case 7:
						sql = "SELECT nope FROM t"
					case 8:
						sql = "DELETE FROM t"
					}
					if _, err := g.Query(context.Background(), sql); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		wg.Wait()
	}
	run(5_000)
	eventually(t, "two idle workers", func() bool { return len(pool.IdleWorkers()) >= 2 })
	before := usage(t, pool)
	run(45_000)
	eventually(t, "two idle workers", func() bool { return len(pool.IdleWorkers()) >= 2 })
	after := usage(t, pool)
	t.Logf("before %+v, after %+v", before, after)
	if after.files > before.files+2 || after.goroutines > before.goroutines+4 || after.heap > before.heap+8<<20 || after.worker > before.worker+16<<20 {
		t.Errorf("before %+v, after %+v", before, after)
	}
}

// measured is what a process and its workers use; -1 where the system does not tell.
type measured struct {
	files, goroutines int
	heap, worker      int64 // bytes; worker: the largest resident set
}

func usage(t *testing.T, pool *sqlguard.Pool) measured {
	t.Helper()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u := measured{files: -1, goroutines: runtime.NumGoroutine(), heap: int64(m.HeapAlloc), worker: -1}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil {
		u.files = len(entries)
	}
	workers := pool.Workers() // a machine that is busy makes for more: statements look slow
	u.files -= workers * filesPerWorker
	u.goroutines -= workers * goroutinesPerWorker
	for _, pid := range pool.IdleWorkers() {
		u.worker = max(u.worker, statusBytes(pid, "VmRSS"))
	}
	return u
}

// What the parent keeps for a worker: three pipes, one for its complaints, its process; waiting for its end and its complaints.
const (
	filesPerWorker      = 5
	goroutinesPerWorker = 3
)

// statusBytes reads a size from /proc/PID/status, -1 where there is none.
func statusBytes(pid int, field string) int64 {
	status, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "status"))
	if err != nil {
		return -1
	}
	for _, line := range strings.Split(string(status), "\n") {
		if rest, ok := strings.CutPrefix(line, field+":"); ok {
			kb, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			return kb << 10
		}
	}
	return -1
}

func TestPoolOfManyDatabases(t *testing.T) {
	pool, err := sqlguard.NewPool(2)
	if err != nil {
		t.Fatal(err)
	}
	defer pool.Close()
	var guards []*sqlguard.Guard
	for i := range 100 { // more than a worker keeps open
		g, err := pool.Open(context.Background(), create(t, fmt.Sprintf("CREATE TABLE t AS SELECT %d AS a", i)), sqlguard.EvalPolicy())
		if err != nil {
			t.Fatal(err)
		}
		guards = append(guards, g)
	}
	for range 2 {
		for i, g := range guards {
			if got := rows(t, g, "SELECT a FROM t"); got[0][0] != integer(int64(i)) {
				t.Errorf("database %d gave %v", i, got)
			}
		}
	}
	if n := pool.Workers(); n > 2+4 {
		t.Errorf("%d workers", n)
	}
	for _, g := range guards {
		g.Close()
	}
	if _, err := guards[0].Query(context.Background(), "SELECT 1"); err == nil {
		t.Error("a closed guard answers")
	}
}
