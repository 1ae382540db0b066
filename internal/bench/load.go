package bench

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Load is a recorded batch of conversations, as lengths in tokens: what a prompt says does not matter for its speed.
//
// All prompts begin with the same System tokens, those on one database go on with the same schema, then comes the
// question. In each turn the model generates some tokens and a tool answers with some; the last turn has no answer.
type Load struct {
	System    int        `json:"system"`
	Schemas   []int      `json:"schemas"`
	Questions []Question `json:"questions"`
}

// Question is one conversation.
type Question struct {
	Schema   int      `json:"schema"`   // which of Load.Schemas
	Question int      `json:"question"` // tokens of the question
	Turns    [][2]int `json:"turns"`    // tokens generated, tokens of the tool's answer
}

// recorded are the built-in loads, of 64 conversations on eight databases each.
var recorded = map[string][]byte{"demo": demoLoad, "spider": spiderLoad}

// demoLoad are conversations of the demo model, on databases that it had not seen: short ones.
//
//go:embed load-demo.json
var demoLoad []byte

// spiderLoad are conversations in the form of the qwen-xml profile over databases of Spider's dev set, in the tokens of
// Qwen3.5: a look at a table, the gold query, the answer.
//
//go:embed load-spider.json
var spiderLoad []byte

// ReadLoad reads a load from a file, or a built-in one: "demo", "spider". A name or path followed by :N means its first
// N questions.
func ReadLoad(name string) (*Load, error) {
	path, first := name, 0
	if before, after, ok := cutLast(name, ":"); ok {
		if n, err := strconv.Atoi(after); err == nil && n > 0 {
			path, first = before, n
		}
	}
	l, err := readLoad(path)
	if err != nil {
		return nil, err
	}
	return l.First(first), nil
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

func readLoad(path string) (*Load, error) {
	data, known := recorded[path]
	if !known {
		var err error
		if data, err = os.ReadFile(path); err != nil {
			return nil, err
		}
	}
	l := &Load{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("load %s: %w", path, err)
	}
	for i, q := range l.Questions {
		if q.Schema < 0 || q.Schema >= len(l.Schemas) || q.Question < 1 || len(q.Turns) == 0 {
			return nil, fmt.Errorf("load %s: question %d: it needs one of %d schemas, a length and turns", path, i, len(l.Schemas))
		}
		for _, turn := range q.Turns {
			if turn[0] < 1 || turn[1] < 0 {
				return nil, fmt.Errorf("load %s: question %d: turn %v: at least 1 token is generated, 0 or more answer", path, i, turn)
			}
		}
	}
	if len(l.Questions) == 0 || l.System < 0 {
		return nil, fmt.Errorf("load %s: no questions", path)
	}
	return l, nil
}

// First keeps the first n questions, or all where n is 0.
func (l *Load) First(n int) *Load {
	if n <= 0 || n >= len(l.Questions) {
		return l
	}
	return &Load{System: l.System, Schemas: l.Schemas, Questions: l.Questions[:n]}
}

// conversation is a question with tokens for its lengths. The model's own tokens come in between as they are generated.
type conversation struct {
	prefix  int // shared by the questions on one database
	prompt  []int32
	turns   [][2]int
	answers [][]int32
}

func (l *Load) conversations(vocab int) []conversation {
	var out []conversation
	system := randomTokens(1, l.System, vocab)
	for i, q := range l.Questions {
		schema := randomTokens(uint64(100+q.Schema), l.Schemas[q.Schema], vocab)
		c := conversation{prefix: len(system) + len(schema), turns: q.Turns}
		c.prompt = append(append(append(c.prompt, system...), schema...), randomTokens(uint64(10_000+i), q.Question, vocab)...)
		for turn, lengths := range q.Turns {
			c.answers = append(c.answers, randomTokens(uint64(20_000+100*i+turn), lengths[1], vocab))
		}
		out = append(out, c)
	}
	return out
}

// longest is the most tokens that a conversation of the load takes.
func (l *Load) longest() int {
	most := 0
	for _, q := range l.Questions {
		n := l.System + l.Schemas[q.Schema] + q.Question
		for _, turn := range q.Turns {
			n += turn[0] + turn[1]
		}
		most = max(most, n)
	}
	return most
}

// meanPrompt and meanTurns are how long a conversation is when it begins, in tokens, and how many turns it has.
func (l *Load) meanPrompt() float64 {
	n := 0
	for _, q := range l.Questions {
		n += l.System + l.Schemas[q.Schema] + q.Question
	}
	return float64(n) / float64(len(l.Questions))
}

func (l *Load) meanTurns() float64 {
	n := 0
	for _, q := range l.Questions {
		n += len(q.Turns)
	}
	return float64(n) / float64(len(l.Questions))
}

// generated is the number of tokens that the load generates.
func (l *Load) generated() int {
	n := 0
	for _, q := range l.Questions {
		for _, turn := range q.Turns {
			n += turn[0]
		}
	}
	return n
}
