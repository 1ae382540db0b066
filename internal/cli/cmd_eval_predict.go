package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	"quern/engine"
	"quern/eval"
	"quern/internal/assistant"
	"quern/internal/enginegen"
	"quern/sqlguard"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

// predictor answers benchmark questions with a model's tool loop. It is the eval.Predictor of `eval run`.
type predictor struct {
	model         *assistant.Model
	pool          *sqlguard.Pool
	policy        sqlguard.Policy
	deterministic bool
	descriptions  bool
	votes         int
	engineOptions engine.EngineOptions

	mu        sync.Mutex
	databases map[string]*askedDatabase // by path
}

// askedDatabase is one database as the model is asked about it.
type askedDatabase struct {
	once   sync.Once
	err    error
	guard  *sqlguard.Guard
	tool   toolloop.Tool
	schema *sqltool.Schema
}

func newPredictor(m *assistant.Model, policy sqlguard.Policy, o evalRunOptions) (*predictor, error) {
	pool, err := sqlguard.NewPool(o.workers)
	if err != nil {
		return nil, err
	}
	p := &predictor{model: m, pool: pool, policy: sqltool.GuardPolicy(policy, m.Profile), deterministic: o.run.Deterministic, descriptions: !o.noDescription,
		votes: o.run.Votes, databases: map[string]*askedDatabase{}}
	if m.Engine != nil {
		p.engineOptions = m.Engine.Options()
	}
	return p, nil
}

// Close closes the databases.
func (p *predictor) Close() error {
	for _, db := range p.databases {
		if db.guard != nil {
			db.guard.Close()
		}
	}
	return p.pool.Close()
}

// Begin implements eval.Repeatable: a new engine remembers nothing.
func (p *predictor) Begin(ctx context.Context) error {
	if p.model.Engine == nil {
		return nil
	}
	if err := p.model.Engine.Close(); err != nil {
		return err
	}
	next, err := p.model.Weights().NewEngine(ctx, p.engineOptions)
	if err == nil {
		p.model.Engine = next
	}
	return err
}

// Enter implements eval.Repeatable.
func (p *predictor) Enter() (leave func()) {
	if p.model.Engine == nil {
		return func() {}
	}
	return p.model.Engine.Join()
}

// Predict implements eval.Predictor.
func (p *predictor) Predict(ctx context.Context, ex eval.Example, sample int) (eval.Prediction, error) {
	db, err := p.database(ctx, ex)
	if err != nil {
		return eval.Prediction{}, err
	}
	loop := p.loop(db, ex, sample)
	messages, notes, err := p.model.Prompt(loop, db.schema, questionText(ex))
	if err != nil {
		return eval.Prediction{}, err
	}
	conversation, err := loop.Start(messages)
	if err != nil {
		return eval.Prediction{}, err
	}
	transcript, err := loop.Run(ctx, conversation, nil)
	if own, ok := loop.Generator.(*enginegen.Conversation); ok {
		own.Forget()
	}
	if err != nil {
		return eval.Prediction{}, err
	}
	p.model.Label(transcript)
	transcript.ID, transcript.Question, transcript.Database, transcript.Notes = ex.ID, ex.Question, ex.DB, notes
	return p.prediction(transcript)
}

// loop is the model's loop for one trajectory. The first one is greedy where others are to be voted on.
func (p *predictor) loop(db *askedDatabase, ex eval.Example, sample int) *toolloop.Loop {
	sampling := p.model.Sampling
	if p.votes > 0 && sample == 0 {
		sampling = toolloop.Sampling{}
	}
	if sampling.Temperature > 0 && (sampling.Seed != 0 || p.deterministic || p.votes > 0) {
		sampling.Seed += uint64(p.rank(ex, sample)) + 1
	}
	loop := p.model.Loop(db.tool, sampling)
	if p.model.Engine != nil {
		loop.Generator = &enginegen.Conversation{
			Generator: enginegen.Generator{Engine: p.model.Engine, LogProbs: p.votes > 0, Order: p.rank(ex, sample)},
		}
	}
	return loop
}

// rank numbers the trajectories of a run.
func (p *predictor) rank(ex eval.Example, sample int) int { return ex.Index*(p.votes+1) + sample }

// questionText is the question with what the benchmark gives beside it.
func questionText(ex eval.Example) string {
	if ex.Evidence == "" {
		return ex.Question
	}
	return ex.Question + "\n\nExternal knowledge: " + ex.Evidence
}

// database opens a database once.
func (p *predictor) database(ctx context.Context, ex eval.Example) (*askedDatabase, error) {
	p.mu.Lock()
	db := p.databases[ex.Database]
	if db == nil {
		db = &askedDatabase{}
		p.databases[ex.Database] = db
	}
	p.mu.Unlock()
	db.once.Do(func() { db.err = p.openDatabase(ctx, db, ex) })
	return db, db.err
}

func (p *predictor) openDatabase(ctx context.Context, db *askedDatabase, ex eval.Example) (err error) {
	if db.guard, err = p.pool.Open(ctx, ex.Database, p.policy); err != nil {
		return err
	}
	view := assistant.View{Database: db.guard}
	if ex.Descriptions != "" && p.descriptions {
		if view.Descriptions, err = assistant.ReadDescriptions(ex.Descriptions); err != nil {
			return err
		}
	}
	if db.schema, err = sqltool.ReadSchema(ctx, view, p.model.Profile); err != nil {
		return err
	}
	db.tool, err = sqltool.New(db.guard, p.model.Profile, p.model.Pack.Tool, sqltool.Options{})
	return err
}

// prediction sums a transcript up.
func (p *predictor) prediction(t *toolloop.Transcript) (eval.Prediction, error) {
	out := eval.Prediction{SQL: t.FinalSQL, Stop: string(t.Stop), Turns: len(t.Turns), Seconds: t.Elapsed.Seconds(),
		Tokens: eval.Tokens{Prompt: t.PromptTokens, Generated: t.GeneratedTokens()}}
	for _, turn := range t.Turns {
		out.LogProb += turn.LogProb
		out.Tokens.Tool += turn.ToolTokens
		if turn.Finish == toolloop.FinishLength {
			out.Capped++
		}
		for _, call := range turn.Calls {
			if call.Dropped || call.Observation == nil {
				continue
			}
			out.ToolCalls++
			if o := call.Observation; o.SQL != "" {
				out.Queries = append(out.Queries, queryOf(o))
			}
		}
	}
	if p.deterministic {
		withoutTimes(t)
		if p.model.Engine == nil {
			withoutCacheHits(t)
		}
	}
	shorten(t)
	var err error
	if out.Transcript, err = json.Marshal(t); err != nil {
		return out, fmt.Errorf("transcript: %w", err)
	}
	return out, nil
}

func queryOf(o *toolloop.Observation) eval.Query {
	q := eval.Query{SQL: o.SQL, Rows: o.Rows, Truncated: o.Full != ""}
	if o.Failure != "" {
		q.Error = strings.TrimSpace(o.Text)
	}
	return q
}

// withoutCacheHits takes out what depends on what else a server was asked before.
func withoutCacheHits(t *toolloop.Transcript) {
	for i := range t.Turns {
		t.Turns[i].Usage.CachedTokens = 0
	}
}

// withoutTimes leaves out of a transcript what is never the same twice.
func withoutTimes(t *toolloop.Transcript) {
	t.Started, t.Elapsed = time.Time{}, 0
	for i := range t.Turns {
		turn := &t.Turns[i]
		turn.Usage.FirstToken, turn.Usage.Total = 0, 0
		for k := range turn.Calls {
			turn.Calls[k].Elapsed = 0
		}
	}
}

// keptObservation is how much of a whole tool result, in bytes, a results file keeps.
const keptObservation = 4096

// shorten cuts the whole tool results, which may be as large as tables; what the model saw stays.
func shorten(t *toolloop.Transcript) {
	for i := range t.Turns {
		for k := range t.Turns[i].Calls {
			if o := t.Turns[i].Calls[k].Observation; o != nil && len(o.Full) > keptObservation {
				o.Full = strings.ToValidUTF8(o.Full[:keptObservation], "") + "…"
			}
		}
	}
}
