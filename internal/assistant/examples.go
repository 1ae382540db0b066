package assistant

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sort"
	"strings"
	"unicode"
)

// Example is a question with the SQL that answers it.
type Example struct {
	Question string `json:"question"`
	SQL      string `json:"sql"`
}

// shownExamples is how many examples go with a question.
const shownExamples = 3

// ReadExamples reads a JSON list of {"question": …, "sql": …}; "query" and "SQL" are taken for "sql" too, as Spider's and
// BIRD's files have it.
func ReadExamples(file string) ([]Example, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var entries []struct {
		Question, SQL, Query string // encoding/json matches names in any case
	}
	if err := json.Unmarshal(data, &entries); err != nil {
		return nil, fmt.Errorf("%s: not a JSON list of {\"question\": …, \"sql\": …}: %w", file, err)
	}
	var examples []Example
	for i, e := range entries {
		if e.SQL == "" {
			e.SQL = e.Query
		}
		if e.Question == "" || e.SQL == "" {
			return nil, fmt.Errorf("%s: entry %d lacks a question or its sql", file, i)
		}
		examples = append(examples, Example{e.Question, e.SQL})
	}
	return examples, nil
}

// withExamples puts the examples most like the question before it.
func (a *Assistant) withExamples(question string) string {
	best := similar(a.options.Examples, question, shownExamples)
	if len(best) == 0 {
		return question
	}
	var b strings.Builder
	b.WriteString("Similar questions and the SQL that answers them:\n")
	for _, e := range best {
		fmt.Fprintf(&b, "\nQuestion: %s\nSQL: %s\n", e.Question, e.SQL)
	}
	return b.String() + "\nNow answer this one: " + question
}

// similar returns up to n examples that share words with the question, the most alike first: the cosine of word
// counts weighted by how rare a word is among the examples (tf-idf).
func similar(examples []Example, question string, n int) []Example {
	frequency := map[string]int{}
	bags := make([]map[string]int, len(examples))
	for i, e := range examples {
		bags[i] = words(e.Question)
		for w := range bags[i] {
			frequency[w]++
		}
	}
	weight := func(w string) float64 { return math.Log(1 + float64(len(examples))/float64(1+frequency[w])) }
	norm := func(bag map[string]int) float64 {
		sum := 0.0
		for w, k := range bag {
			sum += math.Pow(float64(k)*weight(w), 2)
		}
		return math.Sqrt(sum)
	}
	asked := words(question)
	type scored struct {
		Example
		score float64
	}
	var ranked []scored
	for i, bag := range bags {
		dot := 0.0
		for w, k := range asked {
			dot += float64(k*bag[w]) * weight(w) * weight(w)
		}
		if dot > 0 {
			ranked = append(ranked, scored{examples[i], dot / (norm(asked) * norm(bag))})
		}
	}
	sort.SliceStable(ranked, func(i, j int) bool { return ranked[i].score > ranked[j].score })
	var best []Example
	for _, s := range ranked[:min(n, len(ranked))] {
		best = append(best, s.Example)
	}
	return best
}

func words(text string) map[string]int {
	bag := map[string]int{}
	for _, w := range strings.FieldsFunc(strings.ToLower(text), func(r rune) bool { return !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
		bag[w]++
	}
	return bag
}
