package sqltool

import (
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"unicode"

	"quern/sqlguard"
	"quern/toolloop"
)

// Texts are a prompt pack's; a *prompts.Pack has them.
type Texts interface {
	System(schema, policy string) (string, error)
	User(question string) string
}

// Prompt makes the first messages of a question.
type Prompt struct {
	Texts  Texts
	Policy string // column policy; "" is the pack's default
	Schema *Schema
}

// Messages returns the system and the user message. budget is the most tokens that they may take, counted by count; 0
// is no bound, and count may then be nil.
//
// When the schema does not fit, what is least missed goes first: sample values, then comments, then columns of the
// tables that have least to do with the question, then such tables as a whole. notes tell what was left out. When
// nothing that could be left out would make it fit, that is an error.
func (p Prompt) Messages(question string, budget int, count func([]toolloop.Message) (int, error)) (messages []toolloop.Message, notes []string, err error) {
	write := func(d detail, related map[string]bool) ([]toolloop.Message, error) {
		system, err := p.Texts.System(p.Schema.text(d, related), p.Policy)
		return []toolloop.Message{
			{Role: toolloop.RoleSystem, Content: system},
			{Role: toolloop.RoleUser, Content: p.Texts.User(question)},
		}, err
	}
	if budget == 0 {
		messages, err = write(detail{}, nil)
		return messages, nil, err
	}
	related := wordsOf(question)
	steps := p.Schema.reductions(related)
	var tokens int
	// The first reduction that fits: each is at most as long as the one before.
	i := sort.Search(len(steps), func(i int) bool {
		if err != nil {
			return true
		}
		var m []toolloop.Message
		if m, err = write(steps[i].detail, related); err == nil {
			tokens, err = count(m)
		}
		return err == nil && tokens <= budget
	})
	switch {
	case err != nil:
		return nil, nil, err
	case i == len(steps):
		return nil, nil, fmt.Errorf("the prompt does not fit: without any schema it takes more than the %d tokens there are; raise the input budget or the context length, or shorten the question", budget)
	case i > 0:
		notes = []string{fmt.Sprintf("the schema was shortened to fit %d tokens: %s", budget, steps[i].what(p.Schema))}
	}
	messages, err = write(steps[i].detail, related)
	return messages, notes, err
}

// reduction is a schema with less in it.
type reduction struct{ detail }

func (r reduction) what(s *Schema) string {
	var parts []string
	if r.noSamples && !s.hermes {
		parts = append(parts, "no sample values")
	}
	if r.noComments {
		parts = append(parts, "no comments")
	}
	var short []string
	for _, name := range slices.Sorted(maps.Keys(r.keyColumns)) {
		if !r.left[name] {
			short = append(short, name)
		}
	}
	if len(short) > 0 {
		parts = append(parts, "only key and related columns of "+strings.Join(short, ", "))
	}
	if len(r.left) > 0 {
		parts = append(parts, "without the tables "+strings.Join(slices.Sorted(maps.Keys(r.left)), ", "))
	}
	return strings.Join(parts, "; ")
}

// reductions lists the schema's forms from whole to empty, each with less than the one before. Tables that have nothing
// to do with the question lose their columns and then go before the others lose a column.
func (s *Schema) reductions(question map[string]bool) []reduction {
	steps := []reduction{{}, {detail{noSamples: true}}, {detail{noSamples: true, noComments: true}}}
	last := steps[2].detail
	unrelated, related := s.byRelation(question)
	for _, names := range [][]string{unrelated, related} {
		for _, name := range names {
			last.keyColumns = with(last.keyColumns, name)
			steps = append(steps, reduction{last})
		}
		for _, name := range names {
			last.left = with(last.left, name)
			steps = append(steps, reduction{last})
		}
	}
	return steps
}

func with(set map[string]bool, name string) map[string]bool {
	set = maps.Clone(set)
	if set == nil {
		set = map[string]bool{}
	}
	set[name] = true
	return set
}

// byRelation divides the tables by whether they share something with the question, and orders those that do, least
// first: words in the name of the table, of columns, and values that the question names. A table that a related one
// refers to, or that refers to it, is half as related.
func (s *Schema) byRelation(question map[string]bool) (unrelated, related []string) {
	own := map[string]int{}
	for _, t := range s.tables {
		score := 0
		if shares(t.Name, question) {
			score += 12
		}
		for _, c := range t.Columns {
			if shares(c.Name, question) {
				score += 4
			}
			if slices.ContainsFunc(c.Samples, func(v sqlguard.Value) bool { return v.Kind == sqlguard.Text && shares(v.Data, question) }) {
				score += 4
			}
		}
		own[t.Name] = score
	}
	total := maps.Clone(own)
	for _, t := range s.tables {
		for _, key := range t.ForeignKeys {
			total[key.Table] = max(total[key.Table], own[t.Name]/2)
			total[t.Name] = max(total[t.Name], own[key.Table]/2)
		}
	}
	for _, t := range s.tables {
		if total[t.Name] == 0 {
			unrelated = append(unrelated, t.Name)
		} else {
			related = append(related, t.Name)
		}
	}
	slices.SortStableFunc(related, func(a, b string) int { return total[a] - total[b] })
	return unrelated, related
}

// shares says whether a name or value has a word in common with the question.
func shares(name string, question map[string]bool) bool {
	for w := range wordsOf(name) {
		if question[w] {
			return true
		}
	}
	return false
}

// wordsOf splits text into lower-case words of at least three letters, at underscores and at capitals inside a name
// too, a plural s dropped.
func wordsOf(text string) map[string]bool {
	set := map[string]bool{}
	var word []rune
	flush := func() {
		w := strings.ToLower(string(word))
		word = word[:0]
		w = strings.TrimSuffix(w, "s")
		if len(w) >= 3 {
			set[w] = true
		}
	}
	var previous rune
	for _, r := range text {
		inside := unicode.IsLetter(r) || unicode.IsDigit(r)
		if !inside || unicode.IsUpper(r) && unicode.IsLower(previous) {
			flush()
		}
		if inside {
			word = append(word, r)
		}
		previous = r
	}
	flush()
	return set
}
