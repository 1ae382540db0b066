package spider

import (
	"context"
	"path/filepath"
	"testing"

	"quern/eval"
	"quern/internal/testenv"
)

// BenchmarkDev scores the 1,034 pairs of the real dev set, all metrics of both scripts, as `quern eval score` does: worker
// processes started, files and schemas read, nothing cached from before.
func BenchmarkDev(b *testing.B) {
	data := testenv.Shared(b, "data", "spider")
	files := Files{Gold: filepath.Join(data, "dev_gold.sql"), Pred: filepath.Join(data, "pred_example.txt"),
		Databases: filepath.Join(data, "database"), Tables: filepath.Join(data, "tables.json")}
	pairs := 0
	for b.Loop() {
		exec, err := eval.NewExecutor(0, eval.Deadlines{})
		if err != nil {
			b.Fatal(err)
		}
		report, err := ScoreFiles(context.Background(), exec, files, Options{Legacy: true}, 4, nil)
		if err != nil {
			b.Fatal(err)
		}
		exec.Close()
		pairs += len(report.Results)
	}
	b.ReportMetric(float64(pairs)/b.Elapsed().Seconds(), "pairs/s")
}
