package spider

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"quern/eval"
	"quern/internal/testenv"
)

// BenchmarkDev scores the 1,034 pairs of the real dev set, all metrics of both scripts, as `quern eval score` does: worker
// processes started, files and schemas read, nothing cached from before.
func BenchmarkDev(b *testing.B) {
	files, pairs := devFiles(b), 0
	for b.Loop() {
		pairs += scoreDev(b, files, Options{Legacy: true})
	}
	b.ReportMetric(float64(pairs)/b.Elapsed().Seconds(), "pairs/s")
}

// officialCommand names the environment variable with the command of the official script, to which its flags are added:
// "python3 /somewhere/test-suite-sql-eval/evaluation.py".
const officialCommand = "QUERN_SPIDER_EVALUATION"

// BenchmarkBesideOfficial runs the official script and Quern in turn on the dev set, both with all metrics of that script.
func BenchmarkBesideOfficial(b *testing.B) {
	command := strings.Fields(os.Getenv(officialCommand))
	if len(command) == 0 {
		b.Skipf("%s does not say how the official script is called", officialCommand)
	}
	files := devFiles(b)
	command = append(command, "--gold", files.Gold, "--pred", files.Pred, "--db", files.Databases, "--table", files.Tables, "--etype", "all")
	var official, quern time.Duration
	for b.Loop() {
		start := time.Now()
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			b.Fatalf("%v: %v\n%s", command, err, out[max(0, len(out)-2000):])
		}
		between := time.Now()
		scoreDev(b, files, Options{})
		official, quern = official+between.Sub(start), quern+time.Since(between)
	}
	b.ReportMetric(official.Seconds()/float64(b.N), "official-s")
	b.ReportMetric(quern.Seconds()/float64(b.N), "quern-s")
	b.ReportMetric(official.Seconds()/quern.Seconds(), "times-as-fast")
}

func devFiles(b *testing.B) Files {
	data := testenv.Shared(b, "data", "spider")
	return Files{Gold: filepath.Join(data, "dev_gold.sql"), Pred: filepath.Join(data, "pred_example.txt"),
		Databases: filepath.Join(data, "database"), Tables: filepath.Join(data, "tables.json")}
}

// scoreDev scores with workers of its own and returns the number of pairs.
func scoreDev(b *testing.B, files Files, opts Options) int {
	workers, err := eval.NewExecutor(0, eval.Deadlines{})
	if err != nil {
		b.Fatal(err)
	}
	defer workers.Close()
	report, err := ScoreFiles(context.Background(), workers, files, opts, 4, nil)
	if err != nil {
		b.Fatal(err)
	}
	return len(report.Results)
}
