package bird

import (
	"fmt"
	"math"
	"strings"

	"quern/eval"
)

// levels are BIRD's difficulties, as the official tables order them.
var levels = []string{"simple", "moderate", "challenging"}

// Totals gives the tables of the official scripts: accuracy (both have the same figures), soft F1, and VES and R-VES where
// they were measured. A question on which our side broke, and a gold that fails, count 0 there, as they would; the report
// lists both apart.
func (s *Scorer) Totals(results []eval.Result) []eval.Totals {
	tables := []eval.Totals{
		byDifficulty("Execution accuracy (evaluation.py)", "ACCURACY", "accuracy", results, metric(MetricEX)),
		byDifficulty("Execution accuracy (mini-dev, evaluation_ex.py)", "EX", "EX", results, metric(MetricEX)),
		byDifficulty("Soft F1 (mini-dev, evaluation_f1.py)", "Soft-F1", "Soft-F1", results, metric(MetricSoftF1)),
	}
	if measured(results) {
		tables = append(tables,
			byDifficulty("VES (evaluation_ves.py)", "VES", "ves", results, root(MetricRatio)),
			byDifficulty("R-VES (mini-dev, evaluation_ves.py)", "R-VES", "R-VES", results, root(MetricReward)))
	}
	return tables
}

func metric(name string) func(*eval.Score) float64 {
	return func(s *eval.Score) float64 { return s.Metrics[name] }
}

func root(name string) func(*eval.Score) float64 {
	return func(s *eval.Score) float64 { return math.Sqrt(s.Metrics[name]) }
}

func measured(results []eval.Result) bool {
	for _, r := range results {
		if r.Score != nil {
			if _, timed := r.Score.Metrics[MetricReward]; timed {
				return true
			}
		}
	}
	return false
}

// byDifficulty is one table: counts and means in percent for each level and over all.
func byDifficulty(title, banner, label string, results []eval.Result, value func(*eval.Score) float64) eval.Totals {
	sums, counts := make([]float64, len(levels)+1), make([]int, len(levels)+1)
	for _, r := range results {
		if r.Score == nil {
			continue
		}
		v := value(r.Score)
		for i, level := range levels {
			if r.Score.Difficulty == level {
				sums[i] += v
				counts[i]++
			}
		}
		sums[len(levels)] += v
		counts[len(levels)]++
	}
	columns := append([]string{""}, append(levels, "total")...)
	count, score := []string{"count"}, []string{label}
	for i := range counts {
		count = append(count, fmt.Sprint(counts[i]))
		score = append(score, percent(sums[i], counts[i]))
	}
	t := eval.Totals{Title: title, Columns: columns, Rows: [][]string{count, score}}
	t.Text = officialText(banner, t)
	return t
}

// percent is a mean in percent; "nan" for a level without questions, where the official scripts divide by zero.
func percent(sum float64, n int) string {
	if n == 0 {
		return "nan"
	}
	return fmt.Sprintf("%.2f", sum/float64(n)*100)
}

// officialText is the table as the official scripts print it.
func officialText(banner string, t eval.Totals) string {
	line := func(cells []string) string {
		var b strings.Builder
		for i, cell := range cells {
			if i > 0 {
				b.WriteByte(' ')
			}
			fmt.Fprintf(&b, "%-20s", cell)
		}
		return b.String() + "\n"
	}
	return line(t.Columns) + line(t.Rows[0]) +
		strings.Repeat("=", 38) + "    " + banner + "    " + strings.Repeat("=", 37) + "\n" +
		line(t.Rows[1])
}
