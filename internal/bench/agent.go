package bench

import (
	"context"
	"fmt"
	"sync"
	"time"

	"quern/engine"
)

// AgentOptions say what Agent measures.
type AgentOptions struct {
	Options
	Load    *Load
	Lanes   int           // requests at work at once, and slots of the server; default 16
	Workers int           // conversations at once; default Lanes
	Tool    time.Duration // how long a tool takes
	Python  string        // interpreter with torch and transformers; "" leaves that party out
	HF      string        // the same model as a checkpoint, for Transformers
	Batch   int           // batch size of the Transformers loop; default Lanes
	Static  int           // questions of the Transformers loop, default all; its time is scaled up to all
}

// AgentReport is how long a load of conversations took.
type AgentReport struct {
	Questions    int           `json:"questions"`
	Prompt       float64       `json:"prompt"`    // mean tokens of a first prompt
	Turns        float64       `json:"turns"`     // mean of a conversation
	Generated    int           `json:"generated"` // tokens, the same for every party
	Workers      int           `json:"workers"`
	Lanes        int           `json:"lanes"`
	GPULayers    int           `json:"gpu_layers"`
	Quern        Figure        `json:"quern"`                  // seconds
	Server       *Figure       `json:"server,omitempty"`       // llama-server, the same loop over HTTP
	Transformers *Figure       `json:"transformers,omitempty"` // static batches, everything read again each turn
	Missing      string        `json:"missing,omitempty"`      // why there are no figures of Transformers
	OverServer   float64       `json:"server_ratio,omitempty"` // how many times as fast Quern is
	OverLoop     float64       `json:"transformers_ratio,omitempty"`
	Stats        *engine.Stats `json:"stats"` // of Quern's last run
	Overhead     float64       `json:"overhead"`
}

// player sends one turn to an engine: generate n tokens after prompt. The last turn of a conversation is final.
type player func(ctx context.Context, prompt []int32, prefix, n int, final bool) ([]int32, error)

// Agent measures a load of conversations, in turns with llama-server; the Transformers loop runs once, before them.
func Agent(ctx context.Context, o AgentOptions) (*AgentReport, error) {
	o.Options = o.Options.withDefaults()
	if o.Lanes == 0 {
		o.Lanes = 16
	}
	if o.Workers == 0 {
		o.Workers = o.Lanes
	}
	if o.Batch == 0 {
		o.Batch = o.Lanes
	}
	r := &AgentReport{
		Questions: len(o.Load.Questions), Prompt: o.Load.meanPrompt(), Turns: o.Load.meanTurns(), Generated: o.Load.generated(),
		Workers: o.Workers, Lanes: o.Lanes,
	}
	m, err := engine.Load(ctx, o.Model, engine.LoadOptions{GPULayers: o.GPU})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	r.GPULayers = m.GPULayers()
	parties := []func() error{func() error { return o.runQuern(ctx, m, r) }}
	if o.Tools != "" {
		r.Server = &Figure{}
		parties = append(parties, func() error { return o.runServer(ctx, m.VocabSize(), r.Server) })
	}
	if r.Missing = o.missingTransformers(ctx); r.Missing == "" {
		r.Transformers = &Figure{}
		if err := o.runTransformers(ctx, m, r.Transformers); err != nil { // once: it takes longer than all others together
			return nil, err
		}
	}
	for run := range o.Repeats {
		o.Log.Info("agent load", "run", run+1, "parties", len(parties))
		for _, party := range parties {
			if err := party(); err != nil {
				return nil, err
			}
		}
	}
	r.OverServer, r.OverLoop = ratio(r.Server, &r.Quern), ratio(r.Transformers, &r.Quern)
	return r, nil
}

// pool is the room in tokens, the same for Quern and the server: what all lanes can need at once, and as much again for
// what is kept.
func (o AgentOptions) pool() int { return 2 * o.Lanes * o.perLane() }

func (o AgentOptions) perLane() int { return (o.Load.longest() + 8 + 255) / 256 * 256 }

func (o AgentOptions) runQuern(ctx context.Context, m *engine.Model, r *AgentReport) error {
	e, err := m.NewEngine(ctx, engine.EngineOptions{
		ContextLength: o.perLane(), Lanes: o.Lanes, Holders: o.Lanes + len(o.Load.Schemas) + 1, Pool: o.pool(),
		BatchTokens: o.Chunk, Threads: o.Threads, FlashAttention: o.Flash, Log: o.Log,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	play := func(ctx context.Context, prompt []int32, prefix, n int, final bool) ([]int32, error) {
		stream, err := e.Generate(ctx, engine.Request{Prompt: prompt, Prefix: prefix, MaxTokens: n, IgnoreEnd: true})
		if err != nil {
			return nil, err
		}
		result, err := stream.Wait()
		if final {
			stream.Forget(prefix)
		}
		return result.Tokens, err
	}
	if _, err := play(ctx, randomTokens(7, 8, m.VocabSize()), 0, 2, true); err != nil { // warm
		return err
	}
	took, err := o.play(ctx, m.VocabSize(), play)
	if err != nil {
		return err
	}
	r.Quern.add(took.Seconds())
	stats := e.Stats()
	r.Stats = &stats
	r.Overhead = 1 - float64(stats.BackendTime)/float64(stats.StepTime)
	return nil
}

// play runs all conversations, Workers at once in the order of the load, and returns how long it took.
func (o AgentOptions) play(ctx context.Context, vocab int, play player) (time.Duration, error) {
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	queue := make(chan conversation)
	var workers sync.WaitGroup
	began := time.Now()
	for range o.Workers {
		workers.Go(func() {
			for c := range queue {
				if err := o.converse(ctx, c, play); err != nil {
					fail(err)
				}
			}
		})
	}
	for _, c := range o.Load.conversations(vocab) {
		queue <- c
	}
	close(queue)
	workers.Wait()
	return time.Since(began), context.Cause(ctx)
}

// converse plays one conversation. Its tokens are only appended to, as an agent's are.
func (o AgentOptions) converse(ctx context.Context, c conversation, play player) error {
	tokens := c.prompt
	for turn, lengths := range c.turns {
		if err := ctx.Err(); err != nil {
			return err
		}
		got, err := play(ctx, tokens, c.prefix, lengths[0], turn+1 == len(c.turns))
		if err != nil {
			return err
		}
		if len(got) != lengths[0] {
			return fmt.Errorf("%d of %d tokens were generated", len(got), lengths[0])
		}
		tokens = append(append(tokens[:len(tokens):len(tokens)], got...), c.answers[turn]...)
		if o.Tool > 0 && turn+1 < len(c.turns) {
			time.Sleep(o.Tool)
		}
	}
	return nil
}
