package sqlguard_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"quern/sqlguard"
)

// BenchmarkBoundary reports what a worker process costs on a trivial query: medians in process and in a worker.
func BenchmarkBoundary(b *testing.B) {
	path := create(b, "CREATE TABLE t(a)", "INSERT INTO t VALUES (1)")
	local, err := sqlguard.OpenInProcess(context.Background(), path, sqlguard.AskPolicy())
	if err != nil {
		b.Fatal(err)
	}
	defer local.Close()
	remote := open(b, path, sqlguard.AskPolicy())
	inProcess, inWorker := median(b, local), median(b, remote)
	b.ReportMetric(float64(inProcess.Microseconds()), "µs/in-process")
	b.ReportMetric(float64(inWorker.Microseconds()), "µs/worker")
	b.ReportMetric(float64((inWorker - inProcess).Microseconds()), "µs/boundary")
}

func median(b *testing.B, g *sqlguard.Guard) time.Duration {
	times := make([]time.Duration, max(b.N, 200))
	for i := range times {
		start := time.Now()
		if r := query(b, g, "SELECT a FROM t"); r.Failure != nil {
			b.Fatal(r.Failure)
		}
		times[i] = time.Since(start)
	}
	slices.Sort(times)
	return times[len(times)/2]
}
