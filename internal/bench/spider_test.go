package bench

import (
	"compress/gzip"
	"context"
	"encoding/json"
	"flag"
	"io"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"testing"

	"quern/engine"
	"quern/internal/enginegen"
	"quern/internal/testenv"
	"quern/prompts"
	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

var update = flag.Bool("update", false, "write load-spider.json anew")

// spiderDatabases are the eight databases of Spider's dev set with the most questions (and rows).
var spiderDatabases = []string{
	"world_1", "car_1", "cre_Doc_Template_Mgt", "dog_kennels", "flight_2", "student_transcripts_tracking", "tvshow", "concert_singer",
}

// The load "spider" is measured, not made up: the loop of the qwen-xml profile runs over Spider's databases, and a model
// that says what was expected of it is played by a script: it looks at a table, runs the gold query, and answers with it.
func TestSpiderLoadIsMeasured(t *testing.T) {
	measured := measureSpider(t)
	if *update {
		writeLoad(t, "load-spider.json", measured)
		return // what is embedded is still the old one
	}
	kept, err := ReadLoad("spider")
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(kept, measured) {
		t.Errorf("load-spider.json is not what is measured now; if a prompt or the loop has changed on purpose: go test ./internal/bench -run Spider -update")
	}
}

func writeLoad(t *testing.T, path string, l *Load) {
	t.Helper()
	text, err := json.Marshal(l)
	if err != nil {
		t.Fatal(err)
	}
	text = regexp.MustCompile(`(\{"schema":|"schemas":|"questions":)`).ReplaceAll(text, []byte("\n$1"))
	if err := os.WriteFile(path, append(text, '\n'), 0o644); err != nil {
		t.Fatal(err)
	}
}

func measureSpider(t *testing.T) *Load {
	data := testenv.Shared(t, "data", "spider")
	model := spiderVocabulary(t)
	source, err := os.ReadFile(testenv.OracleInputs(t, "chat", "templates", "Qwen3.5-4B.jinja"))
	if err != nil {
		t.Fatal(err)
	}
	template, err := engine.ParseChatTemplate(string(source), "", "")
	if err != nil {
		t.Fatal(err)
	}
	load := &Load{}
	var prompts [][]int32 // one of each database
	for i, name := range spiderDatabases {
		m := spiderMeter{t: t, db: openSpider(t, data, name), model: model, template: template}
		var first []int32
		prefix := 0
		for k, q := range spiderQuestions(t, data, name) {
			prompt, turns := m.play(q.Question, q.Query)
			if k == 0 {
				first, prefix = prompt, len(prompt)
				prompts = append(prompts, prompt)
			}
			prefix = min(prefix, commonLength(first, prompt))
			load.Questions = append(load.Questions, Question{Schema: i, Question: len(prompt), Turns: turns})
		}
		load.Schemas = append(load.Schemas, prefix)
	}
	load.System = min(commonLength(prompts[0], prompts[1]), commonLength(prompts[0], prompts[2]))
	for i := range load.Questions {
		load.Questions[i].Question -= load.Schemas[load.Questions[i].Schema]
	}
	for i := range load.Schemas {
		load.Schemas[i] -= load.System
	}
	return load
}

type spiderQuestion struct {
	DB              string `json:"db_id"`
	Question, Query string
}

// spiderQuestions are eight questions on a database, evenly over all it has.
func spiderQuestions(t *testing.T, data, db string) []spiderQuestion {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(data, "dev.json"))
	if err != nil {
		t.Fatal(err)
	}
	var all, own, chosen []spiderQuestion
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	for _, q := range all {
		if q.DB == db {
			own = append(own, q)
		}
	}
	for k := range 8 {
		chosen = append(chosen, own[k*len(own)/8])
	}
	return chosen
}

func openSpider(t *testing.T, data, name string) *sqlguard.Guard {
	t.Helper()
	file := filepath.Join(data, "database", name, name+".sqlite")
	db, err := sqlguard.OpenInProcess(t.Context(), file, sqltool.GuardPolicy(sqlguard.EvalPolicy(), toolloop.QwenXML()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// spiderMeter measures conversations on one database.
type spiderMeter struct {
	t        *testing.T
	db       *sqlguard.Guard
	model    *engine.Model
	template *engine.ChatTemplate
}

// play runs one conversation and returns its prompt, and for each turn the lengths of what was generated and answered.
func (m spiderMeter) play(question, gold string) (prompt []int32, turns [][2]int) {
	m.t.Helper()
	pack, err := prompts.ForProfile(toolloop.QwenXML().Name)
	if err != nil {
		m.t.Fatal(err)
	}
	tool, err := sqltool.New(m.db, toolloop.QwenXML(), pack.Tool, sqltool.Options{})
	if err != nil {
		m.t.Fatal(err)
	}
	schema, err := sqltool.ReadSchema(m.t.Context(), m.db, toolloop.QwenXML())
	if err != nil {
		m.t.Fatal(err)
	}
	table := regexp.MustCompile(`(?i)\bfrom\s+(\w+)`).FindStringSubmatch(gold)[1]
	script := &scripted{tokenizer: enginegen.Tokenizer{Model: m.model}, says: []string{
		question + "\n" + call("SELECT * FROM "+table+" LIMIT 5"), call(gold), "```sql\n" + gold + "\n```",
	}}
	loop := toolloop.Loop{
		Profile: toolloop.QwenXML(), Generator: script, Renderer: enginegen.Renderer{Template: m.template},
		Tokenizer: script.tokenizer, Tools: []toolloop.Tool{tool}, Limits: toolloop.QwenXML().Limits, FinalRequest: pack.FinalRequest,
		Thinking: new(bool), // off
	}
	messages, _, err := sqltool.Prompt{Texts: pack, Schema: schema}.Messages(question, 0, nil)
	if err != nil {
		m.t.Fatal(err)
	}
	conversation, err := loop.Start(messages)
	if err != nil {
		m.t.Fatal(err)
	}
	transcript, err := loop.Run(m.t.Context(), conversation, nil)
	if err != nil || len(transcript.Turns) != len(script.says) {
		m.t.Fatalf("%q: %d turns, %v", gold, len(transcript.Turns), err)
	}
	for _, turn := range transcript.Turns {
		for _, call := range turn.Calls {
			if call.Observation.Failure != "" {
				m.t.Fatalf("%s", call.Observation.Text)
			}
		}
	}
	return script.prompts[0], script.lengths()
}

func call(sql string) string {
	return "<tool_call>\n<function=execute_sql>\n<parameter=query>\n" + sql + "\n</parameter>\n</function>\n</tool_call>"
}

// scripted is a model that says what it was told to, and notes what it was asked.
type scripted struct {
	tokenizer enginegen.Tokenizer
	says      []string
	prompts   [][]int32
	generated []int
}

func (s *scripted) Generate(_ context.Context, req toolloop.GenerateRequest) (toolloop.Generation, error) {
	text := s.says[len(s.prompts)]
	ids, err := s.tokenizer.Tokenize([]toolloop.Segment{{Text: text}, {Text: "<|im_end|>", Template: true}})
	s.prompts, s.generated = append(s.prompts, append([]int32(nil), req.Prompt...)), append(s.generated, len(ids))
	return toolloop.Generation{Tokens: ids, Text: text, Finish: toolloop.FinishEOG}, err
}

// lengths are the tokens generated in each turn and those that came before the next.
func (s *scripted) lengths() (turns [][2]int) {
	for k, n := range s.generated {
		answer := 0
		if k+1 < len(s.prompts) {
			answer = len(s.prompts[k+1]) - len(s.prompts[k]) - n
		}
		turns = append(turns, [2]int{n, answer})
	}
	return turns
}

// spiderVocabulary loads the vocabulary of Qwen3.5.
func spiderVocabulary(t *testing.T) *engine.Model {
	t.Helper()
	packed, err := os.Open(testenv.OracleInputs(t, "chat", "vocab", "qwen3.5-vocab.gguf.gz"))
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	in, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	text, err := io.ReadAll(in)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "vocab.gguf")
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	model, err := engine.Load(t.Context(), path, engine.LoadOptions{VocabOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	return model
}
