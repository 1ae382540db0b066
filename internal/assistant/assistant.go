// Package assistant joins a model and a database into something that can be asked. ask, chat, serve, mcp and demo are
// different ways to talk to it.
package assistant

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

// Options say how a database is asked.
type Options struct {
	// Limits bound the final query, whose rows a person gets; the zero value is the guard's own limits.
	Limits sqlguard.Limits
	// NoRows hides data from the model: it sees how many rows and which columns a query gave, never a value.
	NoRows bool
	// Confirm, when set, is asked before each query of the model runs, the final one too unless it was allowed already.
	Confirm func(ctx context.Context, sql string) bool
	// Descriptions of tables and columns, put beside them in the schema that the model reads.
	Descriptions Descriptions
	// Examples are question and SQL pairs; those most like a question are shown to the model with it.
	Examples []Example
	// Votes above 1 runs that many trajectories at Temperature and takes the result that most of them agree on.
	Votes       int
	Temperature float64
}

// Assistant answers questions about one database with one model. It may be asked from many goroutines.
type Assistant struct {
	model   *Model
	guard   *sqlguard.Guard
	tool    toolloop.Tool
	schema  *sqltool.Schema
	options Options
	person  *approval // nil: nobody is asked

	mu            sync.Mutex
	conversations []*Conversation // most recently used last
}

// keptConversations is how many conversations can be continued; older ones are forgotten.
const keptConversations = 64

// New joins them. The caller keeps ownership of both and closes them after the last question.
func New(ctx context.Context, model *Model, guard *sqlguard.Guard, o Options) (*Assistant, error) {
	view := View{Database: guard, Descriptions: o.Descriptions, NoSamples: o.NoRows}
	schema, err := sqltool.ReadSchema(ctx, view, model.Profile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", guard.Path(), err)
	}
	if schema.Text() == "" {
		return nil, fmt.Errorf("%s holds no table that may be read, so there is nothing to ask", guard.Path())
	}
	base, err := sqltool.New(guard, model.Profile, model.Pack.Tool, sqltool.Options{})
	if err != nil {
		return nil, err
	}
	var tool toolloop.Tool = base
	if o.NoRows {
		tool = shapes{tool, guard}
	}
	var person *approval
	if o.Confirm != nil {
		person = newApproval(o.Confirm)
		tool = confirmed{tool, person}
	}
	if o.Limits == (sqlguard.Limits{}) {
		o.Limits = guard.Policy().Limits
	}
	return &Assistant{model: model, guard: guard, tool: tool, schema: schema, options: o, person: person}, nil
}

// Model and Guard are the parts.
func (a *Assistant) Model() *Model          { return a.model }
func (a *Assistant) Guard() *sqlguard.Guard { return a.guard }

// Answer is what a question came to.
type Answer struct {
	Question     string
	SQL          string          // "" when the model gave none
	Result       sqlguard.Result // of SQL, under Options.Limits
	Notes        []string        // for a person: why there is no answer, what was cut, what to mistrust
	Transcript   *toolloop.Transcript
	Conversation string // id to go on with
	Agreement    int    // with Votes: how many trajectories gave this result
}

// Failed says whether there is no result to show.
func (a Answer) Failed() bool { return a.SQL == "" || a.Result.Failure != nil }

// Conversation is a question with its follow-ups.
type Conversation struct {
	ID     string
	mu     sync.Mutex // one question at a time
	tokens *toolloop.Conversation
}

// Ask answers one question. An empty conversation starts anew; otherwise the question follows on what was asked and
// answered there. What the model does wrong is told in the Answer; an error means that our side broke or that ctx ended.
func (a *Assistant) Ask(ctx context.Context, question, conversation string, onEvent func(toolloop.Event)) (Answer, error) {
	if strings.TrimSpace(question) == "" {
		return Answer{}, errors.New("the question is empty")
	}
	c, err := a.conversation(conversation)
	if err != nil {
		return Answer{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	next, notes, err := a.open(c.tokens, question)
	if err != nil {
		return Answer{}, err
	}
	var answer Answer
	if a.options.Votes > 1 {
		answer, next, err = a.vote(ctx, next, onEvent)
	} else {
		answer, err = a.run(ctx, a.loop(a.model.Sampling), next, onEvent)
	}
	if err != nil {
		return answer, err
	}
	if answer.Transcript.Stop != toolloop.StopCancelled {
		c.tokens = next
	}
	answer.Question, answer.Conversation = question, c.ID
	answer.Transcript.Notes = append(answer.Transcript.Notes, notes...)
	answer.Notes = append(notes, answer.Notes...)
	a.label(answer.Transcript, question)
	return answer, nil
}

// open puts the question into a conversation: a new one when there is none yet, a copy that has grown otherwise, so
// that a question that fails leaves the old one as it was.
func (a *Assistant) open(old *toolloop.Conversation, question string) (*toolloop.Conversation, []string, error) {
	loop := a.loop(a.model.Sampling)
	asked := a.withExamples(question)
	if old != nil {
		next := old.Clone()
		return next, nil, loop.Ask(next, asked)
	}
	messages, notes, err := a.model.Prompt(loop, a.schema, asked)
	if err != nil {
		return nil, nil, err
	}
	next, err := loop.Start(messages)
	return next, notes, err
}

// run runs one trajectory and executes what it answered.
func (a *Assistant) run(ctx context.Context, loop *toolloop.Loop, c *toolloop.Conversation, onEvent func(toolloop.Event)) (Answer, error) {
	transcript, err := loop.Run(ctx, c, onEvent)
	answer := Answer{Transcript: transcript}
	if err != nil {
		return answer, err
	}
	answer.Notes = stopNotes(ctx, transcript)
	if transcript.Stop == toolloop.StopNoSQL || transcript.Stop == toolloop.StopCancelled {
		return answer, nil // what the transcript has for SQL is then some text or half a query
	}
	if answer.SQL = transcript.FinalSQL; answer.SQL == "" {
		return answer, nil
	}
	if a.person != nil && !a.person.final(ctx, answer.SQL) {
		answer.Result.Failure = &sqlguard.Failure{Kind: sqlguard.Refused, Message: "the final query was not approved, so it was not run"}
		answer.Notes = append(answer.Notes, "You did not approve the final query, so it was not run.")
		return answer, nil
	}
	if answer.Result, err = a.guard.QueryLimits(ctx, answer.SQL, a.options.Limits); err != nil {
		return answer, fmt.Errorf("running the final query: %w", err)
	}
	answer.Notes = append(answer.Notes, resultNotes(answer.SQL, answer.Result)...)
	return answer, nil
}

func (a *Assistant) loop(s toolloop.Sampling) *toolloop.Loop { return a.model.Loop(a.tool, s) }

// label fills in what a transcript tells about its origin.
func (a *Assistant) label(t *toolloop.Transcript, question string) {
	a.model.Label(t)
	t.Question, t.Database = question, a.guard.Path()
}

// Tokens are the ids of a conversation up to its last answer; nil when it is not known here.
func (a *Assistant) Tokens(id string) []toolloop.Token {
	if id == "" {
		return nil
	}
	c, err := a.conversation(id)
	if err != nil {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.tokens == nil {
		return nil
	}
	return slices.Clone(c.tokens.IDs())
}

// Resume takes up a conversation whose ids were kept, made with the same model and prompt.
func (a *Assistant) Resume(id string, tokens []toolloop.Token) error {
	for _, t := range tokens {
		if w := a.model.weights; w != nil && (t < 0 || int(t) >= w.VocabSize()) {
			return errors.New("the conversation was held with another model")
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.conversations = append(a.conversations, &Conversation{ID: id, tokens: toolloop.ResumeConversation(tokens)})
	return nil
}

// conversation finds one by its id, or begins one.
func (a *Assistant) conversation(id string) (*Conversation, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if id == "" {
		c := &Conversation{ID: newID(time.Now())}
		a.conversations = append(a.conversations, c)
		if len(a.conversations) > keptConversations {
			a.conversations = a.conversations[1:]
		}
		return c, nil
	}
	at := slices.IndexFunc(a.conversations, func(c *Conversation) bool { return c.ID == id })
	if at < 0 {
		return nil, errors.New("that conversation is no longer known here: start a new one")
	}
	c := a.conversations[at]
	a.conversations = append(slices.Delete(a.conversations, at, at+1), c)
	return c, nil
}
