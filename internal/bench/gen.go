package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"time"

	"quern/engine"
)

// GenOptions say what Gen measures.
type GenOptions struct {
	Options
	Lanes    []int // widths, default 1, 4, 8, 16
	Prompt   int   // tokens of each lane's prompt, default 128
	Generate int   // tokens that each lane generates, default 48
}

// GenReport is the speed of reading and generating, in tokens per second over all lanes.
type GenReport struct {
	Prompt      int        `json:"prompt"`
	Generate    int        `json:"generate"`
	GPULayers   int        `json:"gpu_layers"`
	WeightBytes int64      `json:"weight_bytes"` // read in each decode step
	Bandwidth   Bandwidth  `json:"bandwidth"`
	Widths      []GenWidth `json:"widths"`
}

// GenWidth is the speed with so many lanes.
type GenWidth struct {
	Lanes       int     `json:"lanes"`
	Prefill     Figure  `json:"prefill"`
	Decode      Figure  `json:"decode"`
	PeerPrefill *Figure `json:"peer_prefill,omitempty"` // llama-batched-bench
	PeerDecode  *Figure `json:"peer_decode,omitempty"`
	PrefillOf   float64 `json:"prefill_ratio,omitempty"` // Quern / peer
	DecodeOf    float64 `json:"decode_ratio,omitempty"`
	OfBandwidth float64 `json:"of_bandwidth"` // weights read per second at decode, as a share of the measured bandwidth
	Overhead    float64 `json:"overhead"`     // share of step time spent in Quern's own scheduler
}

// Gen measures prefill and decode, in turns with llama-batched-bench.
func Gen(ctx context.Context, o GenOptions) (*GenReport, error) {
	o.Options = o.Options.withDefaults()
	if len(o.Lanes) == 0 {
		o.Lanes = []int{1, 4, 8, 16}
	}
	if o.Prompt == 0 {
		o.Prompt = 128
	}
	if o.Generate == 0 {
		o.Generate = 48
	}
	report := &GenReport{Prompt: o.Prompt, Generate: o.Generate, Bandwidth: o.bandwidth()}
	var err error
	if report.WeightBytes, err = weightBytes(o.Model); err != nil {
		return nil, err
	}
	m, err := engine.Load(ctx, o.Model, engine.LoadOptions{GPULayers: o.GPU})
	if err != nil {
		return nil, err
	}
	defer m.Close()
	report.GPULayers = m.GPULayers()
	for _, lanes := range o.Lanes {
		report.Widths = append(report.Widths, GenWidth{Lanes: lanes})
	}
	for run := range o.Repeats {
		for i := range report.Widths {
			o.Log.Info("gen: quern", "run", run+1, "lanes", report.Widths[i].Lanes)
			if err := o.quern(ctx, m, &report.Widths[i]); err != nil {
				return nil, err
			}
		}
		if o.Tools != "" {
			o.Log.Info("gen: llama-batched-bench", "run", run+1)
			if err := o.batchedBench(ctx, report.Widths); err != nil {
				return nil, err
			}
		}
	}
	for i := range report.Widths {
		w := &report.Widths[i]
		w.PrefillOf, w.DecodeOf = ratio(&w.Prefill, w.PeerPrefill), ratio(&w.Decode, w.PeerDecode)
		w.OfBandwidth = w.Decode.Median / float64(w.Lanes) * float64(report.WeightBytes) / report.Bandwidth.Read
	}
	return report, nil
}

// bandwidth is what bounds decoding: that of the memory that holds the weights.
func (o GenOptions) bandwidth() Bandwidth {
	if o.GPURead > 0 {
		return Bandwidth{Read: o.GPURead}
	}
	return MeasureBandwidth(o.Threads)
}

// perLane is the context that one lane needs.
func (o GenOptions) perLane() int { return o.Prompt + o.Generate + 8 }

// quern measures one width in an engine of its own. In deterministic mode the engine makes no step before all joined
// lanes have sent their request, so that prompts and generations of all lanes begin together.
func (o GenOptions) quern(ctx context.Context, m *engine.Model, w *GenWidth) error {
	e, err := m.NewEngine(ctx, engine.EngineOptions{
		ContextLength: o.perLane(), Lanes: w.Lanes, Holders: -1, BatchTokens: o.Chunk,
		Threads: o.Threads, FlashAttention: o.Flash, Deterministic: true,
	})
	if err != nil {
		return err
	}
	defer e.Close()
	lanes := make([][]engine.Token, w.Lanes)
	for i := range lanes {
		lanes[i] = randomTokens(uint64(i), 4, m.VocabSize()) // so that code and weights are warm
	}
	if _, err := together(ctx, e, lanes, 2); err != nil {
		return err
	}
	for i := range lanes {
		lanes[i] = randomTokens(uint64(1000+i), o.Prompt, m.VocabSize())
	}
	took, err := together(ctx, e, lanes, 1)
	if err != nil {
		return err
	}
	w.Prefill.add(float64(w.Lanes*o.Prompt) / took.Seconds())
	before := e.Stats()
	if took, err = together(ctx, e, lanes, o.Generate); err != nil { // each lane goes on where it is, with one token to read
		return err
	}
	w.Decode.add(float64(w.Lanes*o.Generate) / took.Seconds())
	after := e.Stats()
	w.Overhead = 1 - float64(after.BackendTime-before.BackendTime)/float64(after.StepTime-before.StepTime)
	return nil
}

// together lets all lanes generate n tokens, appends them, and returns how long it took. Each lane joins before the first
// sends its request, and leaves when it has its tokens, as lanes need not end in the same step.
func together(ctx context.Context, e *engine.Engine, lanes [][]engine.Token, n int) (time.Duration, error) {
	var all sync.WaitGroup
	errs := make([]error, len(lanes))
	leave := make([]func(), len(lanes))
	for i := range lanes {
		leave[i] = e.Join()
	}
	began := time.Now()
	for i := range lanes {
		all.Go(func() {
			defer leave[i]()
			stream, err := e.Generate(ctx, engine.Request{Prompt: lanes[i], MaxTokens: n, IgnoreEnd: true, Order: i})
			if err != nil {
				errs[i] = err
				return
			}
			result, err := stream.Wait()
			if err == nil && len(result.Tokens) != n {
				err = fmt.Errorf("%d of %d tokens were generated: %s", len(result.Tokens), n, result.Stop)
			}
			errs[i] = err
			lanes[i] = append(lanes[i], result.Tokens...)
		})
	}
	all.Wait()
	took := time.Since(began)
	for _, err := range errs {
		if err != nil {
			return 0, err
		}
	}
	return took, nil
}

// batchedBench runs llama-batched-bench once over all widths, with the settings that Quern uses.
func (o GenOptions) batchedBench(ctx context.Context, widths []GenWidth) error {
	program, err := o.tool("llama-batched-bench")
	if err != nil {
		return err
	}
	most, list := 0, []string(nil)
	for _, w := range widths {
		most = max(most, w.Lanes)
		list = append(list, strconv.Itoa(w.Lanes))
	}
	args := append(o.peerFlags(), "-c", strconv.Itoa(most*o.perLane()), "-kvu",
		"-npp", strconv.Itoa(o.Prompt), "-ntg", strconv.Itoa(o.Generate), "-npl", strings.Join(list, ","),
		"-b", strconv.Itoa(max(o.Chunk, most)), "-ub", strconv.Itoa(max(o.Chunk, most)), "--output-format", "jsonl")
	for range 8 { // it writes from a thread that it does not wait for: now and then it ends well without its last rows
		cmd := exec.CommandContext(ctx, program, args...)
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		out, err := cmd.Output()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", program, err, lastLines(stderr.Bytes()))
		}
		if err = readBatchedBench(out, widths); !errors.Is(err, errRowsMissing) {
			return err
		}
		o.Log.Info("gen: llama-batched-bench once more", "because", err)
	}
	return fmt.Errorf("%s: %w", program, errRowsMissing)
}

var errRowsMissing = errors.New("rows are missing in the output")

// readBatchedBench adds the figures of one run, which must have a row for every width.
func readBatchedBench(out []byte, widths []GenWidth) error {
	type figures struct{ prefill, decode float64 }
	found := make(map[int]figures) // by lanes
	for line := range bytes.Lines(out) {
		var row struct {
			Lanes   int     `json:"pl"`
			Prefill float64 `json:"speed_pp"`
			Decode  float64 `json:"speed_tg"`
		}
		if json.Unmarshal(line, &row) != nil || row.Lanes == 0 {
			continue
		}
		found[row.Lanes] = figures{row.Prefill, row.Decode}
	}
	for _, w := range widths {
		if _, ok := found[w.Lanes]; !ok {
			return fmt.Errorf("%w: none for %d lanes in\n%s", errRowsMissing, w.Lanes, lastLines(out))
		}
	}
	for i := range widths {
		w := &widths[i]
		if w.PeerDecode == nil {
			w.PeerPrefill, w.PeerDecode = &Figure{}, &Figure{}
		}
		w.PeerPrefill.add(found[w.Lanes].prefill)
		w.PeerDecode.add(found[w.Lanes].decode)
	}
	return nil
}
