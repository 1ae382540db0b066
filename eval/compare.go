package eval

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sort"
	"strings"
)

// Comparison says whether run B is better than run A, question by question, by the official rules.
type Comparison struct {
	Format int    `json:"format"`
	A      string `json:"a"`
	B      string `json:"b"`

	Questions int      `json:"questions"` // compared: in both runs, and answered in both
	Left      int      `json:"left_out"`  // in one run only, or failed on our side
	RightA    int      `json:"right_a"`
	RightB    int      `json:"right_b"`
	Fixed     []string `json:"fixed"`  // wrong in A, right in B
	Broken    []string `json:"broken"` // right in A, wrong in B
	Net       int      `json:"net"`    // fixed minus broken

	Difference  float64  `json:"difference"`     // of accuracies, B minus A
	Low         float64  `json:"bootstrap_low"`  // 95 % bootstrap interval of it
	High        float64  `json:"bootstrap_high"` //
	SignTest    float64  `json:"sign_test_p"`    // exact, two-sided
	McNemar     float64  `json:"mcnemar_chi2"`   // with continuity correction, one degree of freedom
	McNemarP    float64  `json:"mcnemar_p"`
	ManifestsBy []string `json:"manifest_differences"` // what differs between the runs

	ByDifficulty []ComparedGroup `json:"by_difficulty"`
	ByDatabase   []ComparedGroup `json:"by_database"`
}

// ComparedGroup is the comparison within a group of questions.
type ComparedGroup struct {
	Name      string `json:"name"`
	Questions int    `json:"questions"`
	RightA    int    `json:"right_a"`
	RightB    int    `json:"right_b"`
	Fixed     int    `json:"fixed"`
	Broken    int    `json:"broken"`
}

// DataError says that two runs are not about the same questions and databases.
type DataError struct{ Differences []string }

func (e *DataError) Error() string {
	return "the runs are on different data, so that their difference says nothing about what changed:\n  " +
		strings.Join(e.Differences, "\n  ") + "\n--allow-different-data compares the questions that are in both"
}

// Compare compares two runs. Runs on different data are refused with a *DataError, unless allowDifferent; then the
// questions with the same id, database and text count.
func Compare(a, b *ResultsFile, allowDifferent bool) (*Comparison, error) {
	if diff := dataDifferences(a, b); len(diff) > 0 && !allowDifferent {
		return nil, &DataError{diff}
	}
	both := []*ResultsFile{a, b}
	c := &Comparison{Format: FormatVersion, A: runName(both, 0), B: runName(both, 1), Fixed: []string{}, Broken: []string{},
		ManifestsBy: a.Manifest.Diff(b.Manifest)}
	pairs := c.pair(a, b)
	if len(pairs) == 0 {
		return nil, fmt.Errorf("%s and %s have no scored question in common", a.Path, b.Path)
	}
	groups := map[string]map[string]*ComparedGroup{"difficulty": {}, "database": {}}
	for _, p := range pairs {
		c.add(p)
		addTo(groups["difficulty"], difficulty(p.a), p)
		addTo(groups["database"], p.a.DB, p)
	}
	c.Questions = len(pairs)
	c.Net = len(c.Fixed) - len(c.Broken)
	c.Difference = float64(c.Net) / float64(c.Questions)
	c.Low, c.High = bootstrap(pairs)
	c.SignTest = signTest(len(c.Fixed), len(c.Broken))
	c.McNemar, c.McNemarP = mcNemar(len(c.Fixed), len(c.Broken))
	c.ByDifficulty = sortedGroups(groups["difficulty"], difficultyOrder)
	c.ByDatabase = sortedGroups(groups["database"], func(a, b string) bool { return a < b })
	return c, nil
}

// dataDifferences lists why two runs are not comparable.
func dataDifferences(a, b *ResultsFile) []string {
	var out []string
	for _, f := range []struct{ name, a, b string }{
		{"dataset", a.Manifest.Dataset, b.Manifest.Dataset}, {"split", a.Manifest.Split, b.Manifest.Split},
		{"digest of questions and databases", a.Manifest.DatasetDigest, b.Manifest.DatasetDigest},
		{"selection", a.Manifest.Selection, b.Manifest.Selection}, {"SQLite", a.Manifest.SQLite, b.Manifest.SQLite},
	} {
		if f.a != f.b {
			out = append(out, fmt.Sprintf("%s: %v and %v", f.name, show(f.a), show(f.b)))
		}
	}
	ids := map[string]bool{}
	for _, r := range a.Results {
		ids[r.ID] = true
	}
	only := 0
	for _, r := range b.Results {
		if !ids[r.ID] {
			only++
		}
		delete(ids, r.ID)
	}
	if only > 0 || len(ids) > 0 {
		out = append(out, fmt.Sprintf("questions: %d are in the first only, %d in the second only", len(ids), only))
	}
	return out
}

// pairedResult is one question in both runs.
type pairedResult struct{ a, b Result }

func (c *Comparison) pair(a, b *ResultsFile) []pairedResult {
	byID := map[string]Result{}
	for _, r := range a.Results {
		byID[r.ID] = r
	}
	var pairs []pairedResult
	for _, r := range b.Results {
		other, both := byID[r.ID]
		both = both && other.DB == r.DB && other.Question == r.Question
		if both && other.Score != nil && r.Score != nil && !other.Failed() && !r.Failed() {
			pairs = append(pairs, pairedResult{other, r})
		}
	}
	union := len(a.Results)
	for _, r := range b.Results {
		if _, both := byID[r.ID]; !both {
			union++
		}
	}
	c.Left = union - len(pairs)
	return pairs
}

func (c *Comparison) add(p pairedResult) {
	a, b := p.a.Score.Right(), p.b.Score.Right()
	switch {
	case b && !a:
		c.Fixed = append(c.Fixed, p.b.ID)
	case a && !b:
		c.Broken = append(c.Broken, p.b.ID)
	}
	c.RightA += count(a)
	c.RightB += count(b)
}

func addTo(groups map[string]*ComparedGroup, name string, p pairedResult) {
	g := groups[name]
	if g == nil {
		g = &ComparedGroup{}
		groups[name] = g
	}
	a, b := p.a.Score.Right(), p.b.Score.Right()
	g.Questions++
	g.RightA += count(a)
	g.RightB += count(b)
	g.Fixed += count(b && !a)
	g.Broken += count(a && !b)
}

func count(b bool) int {
	if b {
		return 1
	}
	return 0
}

func sortedGroups(groups map[string]*ComparedGroup, less func(a, b string) bool) []ComparedGroup {
	labelRest(groups)
	out := []ComparedGroup{}
	for _, name := range sortedKeys(groups) {
		g := *groups[name]
		g.Name = name
		out = append(out, g)
	}
	sort.SliceStable(out, func(i, j int) bool { return less(out[i].Name, out[j].Name) })
	return out
}

// signTest is the exact two-sided p-value of fixed against broken questions when each is as likely as the other.
func signTest(fixed, broken int) float64 {
	n, k := fixed+broken, min(fixed, broken)
	if n == 0 {
		return 1
	}
	var tail float64
	for i := 0; i <= k; i++ {
		tail += math.Exp(logChoose(n, i) - float64(n)*math.Ln2)
	}
	return min(1, 2*tail)
}

func logChoose(n, k int) float64 {
	a, _ := math.Lgamma(float64(n + 1))
	b, _ := math.Lgamma(float64(k + 1))
	c, _ := math.Lgamma(float64(n - k + 1))
	return a - b - c
}

// mcNemar is McNemar's statistic with Edwards' continuity correction, and its p-value.
func mcNemar(fixed, broken int) (chi2, p float64) {
	n := float64(fixed + broken)
	if n == 0 {
		return 0, 1
	}
	d := max(math.Abs(float64(fixed-broken))-1, 0)
	chi2 = d * d / n
	return chi2, math.Erfc(math.Sqrt(chi2 / 2))
}

// Resamplings of the bootstrap interval; the seed is fixed, so that a comparison gives the same figures again.
const (
	resamplings   = 10_000
	bootstrapSeed = 20260707
)

// bootstrap is the 95 % percentile interval of the difference of accuracies, over resampled questions.
func bootstrap(pairs []pairedResult) (low, high float64) {
	delta := make([]int, len(pairs))
	for i, p := range pairs {
		delta[i] = count(p.b.Score.Right()) - count(p.a.Score.Right())
	}
	rng := rand.New(rand.NewPCG(bootstrapSeed, uint64(len(pairs))))
	means := make([]float64, resamplings)
	for i := range means {
		total := 0
		for range delta {
			total += delta[rng.IntN(len(delta))]
		}
		means[i] = float64(total) / float64(len(delta))
	}
	sort.Float64s(means)
	return means[resamplings*25/1000], means[resamplings*975/1000-1]
}
