package cli

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/engine"
	"quern/internal/assistant"
	"quern/internal/hub"
	"quern/internal/progress"
)

// modelFlags are the flags that say which model runs and how. ask, chat, serve, mcp and eval share them.
type modelFlags struct {
	model        string
	lora         cli.StringSlice
	backend      string
	backendModel string
	backendKey   string

	gpuLayers string
	ctx       int
	lanes     int
	threads   int
	kvType    string
	flash     string
	splitKV   bool

	profile   string
	prompt    string
	columns   string
	template  string
	thinking  string
	reference bool

	maxTurns, maxNewTokens, maxInputTokens, responseLength int

	temperature, topP, minP, repeatPenalty float64
	topK                                   int
	seed                                   uint64
}

func (f *modelFlags) flags() []cli.Flag {
	const engineGroup, loopGroup, samplingGroup = "Engine", "Agent", "Sampling"
	return []cli.Flag{
		&cli.StringFlag{Name: "model", Aliases: []string{"m"}, Usage: "GGUF file, or ORG/NAME[:FILE] that was pulled", Destination: &f.model, EnvVars: []string{"QUERN_MODEL"}},
		&cli.StringSliceFlag{Name: "lora", Usage: "GGUF adapter applied at run time, `FILE[=SCALE]`; may be repeated", Destination: &f.lora},
		&cli.StringFlag{Name: "backend", Usage: "generate on an OpenAI-compatible server at this `URL`: from token ids with --model (its vocabulary is used), else from messages with --profile", Destination: &f.backend},
		&cli.StringFlag{Name: "backend-model", Usage: "the model's name there (default: its first)", Destination: &f.backendModel},
		&cli.StringFlag{Name: "backend-key", Usage: "API key", EnvVars: []string{"OPENAI_API_KEY"}, Destination: &f.backendKey},

		&cli.StringFlag{Name: "gpu-layers", Value: "auto", Usage: "layers on the GPU: auto, all, none or a number", Destination: &f.gpuLayers, Category: engineGroup},
		&cli.IntFlag{Name: "ctx", Usage: "tokens one conversation can hold (default: as trained, at most 16384)", Destination: &f.ctx, Category: engineGroup},
		&cli.IntFlag{Name: "threads", Usage: "CPU threads (default: physical cores)", Destination: &f.threads, Category: engineGroup},
		&cli.StringFlag{Name: "kv-type", Value: "f16", Usage: "numbers in the key/value memory: f32, f16, bf16, q8_0, q4_0", Destination: &f.kvType, Category: engineGroup},
		&cli.StringFlag{Name: "flash-attn", Value: "auto", Usage: "fused attention: auto, on, off", Destination: &f.flash, Category: engineGroup},
		&cli.BoolFlag{Name: "split-kv", Usage: "a share of the memory for each lane, in place of one shared by all", Destination: &f.splitKV, Category: engineGroup},

		&cli.StringFlag{Name: "profile", Usage: "hermes or qwen-xml (default: by the model's metadata)", Destination: &f.profile, Category: loopGroup},
		&cli.StringFlag{Name: "prompt", Usage: "`DIR` of a prompt pack (default: the profile's own; see quern prompt)", Destination: &f.prompt, Category: loopGroup},
		&cli.StringFlag{Name: "col-policy", Usage: "column policy of the prompt: v3 or spider2", Destination: &f.columns, Category: loopGroup},
		&cli.StringFlag{Name: "chat-template", Usage: "`FILE` in place of the model's own template", Destination: &f.template, Category: loopGroup},
		&cli.StringFlag{Name: "thinking", Value: "auto", Usage: "the template's enable_thinking: auto, on, off", Destination: &f.thinking, Category: loopGroup},
		&cli.BoolFlag{Name: "reference-tokenization", Usage: "recognise special tokens in content too, as the references do (unsafe; for exact replay)", Destination: &f.reference, Category: loopGroup},
		&cli.IntFlag{Name: "max-turns", Usage: "turns with the tool (default: the profile's)", Destination: &f.maxTurns, Category: loopGroup},
		&cli.IntFlag{Name: "max-new-tokens", Usage: "tokens of one generation (default: the profile's)", Destination: &f.maxNewTokens, Category: loopGroup},
		&cli.IntFlag{Name: "max-input-tokens", Usage: "tokens of the conversation before a generation (default: the profile's)", Destination: &f.maxInputTokens, Category: loopGroup},
		&cli.IntFlag{Name: "response-length", Usage: "tokens of all turns together (profile hermes; default 2048)", Destination: &f.responseLength, Category: loopGroup},

		&cli.Float64Flag{Name: "temperature", Usage: "0 takes the likeliest token", Destination: &f.temperature, Category: samplingGroup},
		&cli.IntFlag{Name: "top-k", Usage: "keep the k likeliest (0: all)", Destination: &f.topK, Category: samplingGroup},
		&cli.Float64Flag{Name: "top-p", Value: 1, Usage: "keep the likeliest that sum up to p", Destination: &f.topP, Category: samplingGroup},
		&cli.Float64Flag{Name: "min-p", Usage: "keep those at least p times as likely as the best", Destination: &f.minP, Category: samplingGroup},
		&cli.Float64Flag{Name: "repeat-penalty", Value: 1, Usage: "divide the logits of tokens seen lately", Destination: &f.repeatPenalty, Category: samplingGroup},
		&cli.Uint64Flag{Name: "seed", Usage: "of the draw (0: another each time)", Destination: &f.seed, Category: samplingGroup},
	}
}

func parseSwitch(flag, value string) (engine.Switch, error) {
	s, ok := map[string]engine.Switch{"auto": engine.Auto, "on": engine.On, "off": engine.Off}[value]
	if !ok {
		return 0, usagef("%s %q: want auto, on or off", flag, value)
	}
	return s, nil
}

// options checks the flags and turns them into what a Model is opened with.
func (f *modelFlags) options() (o assistant.ModelOptions, err error) {
	if f.model == "" && f.backend == "" {
		return o, usagef("--model is missing: a GGUF file, or ORG/NAME[:FILE] that was pulled (quern pull)")
	}
	if err := f.checkNumbers(); err != nil {
		return o, err
	}
	if f.model != "" {
		if o.Path, err = findModel(f.model); err != nil {
			return o, err
		}
	}
	if o.Load.GPULayers, err = engine.ParseGPULayers(f.gpuLayers); err != nil {
		return o, usageError{err.Error()}
	}
	flash, err := parseSwitch("--flash-attn", f.flash)
	if err != nil {
		return o, err
	}
	thinking, ok := map[string]*bool{"auto": nil, "on": ptr(true), "off": ptr(false)}[f.thinking]
	if !ok {
		return o, usagef("--thinking %q: want auto, on or off", f.thinking)
	}
	o.Load.Engine = engine.EngineOptions{
		ContextLength: f.ctx, Lanes: f.lanes, Threads: f.threads, PromptThreads: f.threads,
		KVType: engine.KVType(f.kvType), FlashAttention: flash, SplitKV: f.splitKV,
	}
	for _, spec := range f.lora.Value() {
		adapter, err := parseAdapter(spec)
		if err != nil {
			return o, err
		}
		o.Adapters = append(o.Adapters, adapter)
	}
	o.Backend, o.BackendModel, o.BackendKey = f.backend, f.backendModel, f.backendKey
	o.Profile, o.Prompt, o.ColumnPolicy, o.ChatTemplate = f.profile, f.prompt, f.columns, f.template
	o.Thinking, o.Reference = thinking, f.reference
	o.MaxTurns, o.MaxNewTokens, o.MaxInputTokens, o.ResponseLength = f.maxTurns, f.maxNewTokens, f.maxInputTokens, f.responseLength
	o.Sampling.Temperature, o.Sampling.TopK, o.Sampling.TopP, o.Sampling.MinP = f.temperature, f.topK, f.topP, f.minP
	o.Sampling.RepeatPenalty, o.Sampling.Seed = f.repeatPenalty, f.seed
	return o, nil
}

// checkNumbers refuses numbers that mean nothing, before they meet a question.
func (f *modelFlags) checkNumbers() error {
	for _, n := range []struct {
		flag  string
		value int
	}{
		{"--max-turns", f.maxTurns}, {"--max-new-tokens", f.maxNewTokens}, {"--max-input-tokens", f.maxInputTokens}, {"--response-length", f.responseLength},
		{"--top-k", f.topK}, {"--ctx", f.ctx}, {"--threads", f.threads},
	} {
		if n.value < 0 {
			return usagef("%s %d: must be above 0, or 0 for the default", n.flag, n.value)
		}
	}
	for _, n := range []struct {
		flag             string
		value, low, high float64
	}{
		{"--temperature", f.temperature, 0, 100}, {"--top-p", f.topP, 0, 1}, {"--min-p", f.minP, 0, 1}, {"--repeat-penalty", f.repeatPenalty, 0, 100},
	} {
		if !(n.value >= n.low && n.value <= n.high) {
			return usagef("%s %v: must be from %v to %v", n.flag, n.value, n.low, n.high)
		}
	}
	return nil
}

// open loads the model with progress on stderr.
func (f *modelFlags) open(ctx context.Context, env Env) (*assistant.Model, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	return openModel(ctx, env, o)
}

func openModel(ctx context.Context, env Env, o assistant.ModelOptions) (*assistant.Model, error) {
	line := progress.New(env.Stderr, "loading "+filepath.Base(o.Path), "%")
	o.Load.Progress = func(share float64) { line.Set(int64(100*share), 100) }
	model, err := assistant.OpenModel(ctx, o)
	line.Done("")
	if err == nil && model.Engine != nil && model.Weights().Placement() != "" {
		fmt.Fprintf(env.Stderr, "quern: %s\n", model.Weights().Placement())
	}
	return model, err
}

// findModel resolves a file, or a model in the hub's cache. What does not look like a hub name is left to the loader,
// whose error names the file.
func findModel(name string) (string, error) {
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		return "", fmt.Errorf("%s is a folder: name the GGUF file in it; a Hugging Face checkpoint is made one by quern convert %s", name, name)
	} else if err == nil {
		return name, nil
	}
	ref, err := hub.ParseRef(name)
	if err != nil || strings.HasSuffix(name, ".gguf") && ref.Pattern == "" {
		return name, nil
	}
	dir, err := cachedSnapshot(ref, name)
	if err != nil {
		return "", err
	}
	pattern := ref.Pattern
	if pattern == "" {
		pattern = "*.gguf"
	}
	file, err := oneFile(dir, pattern, ref)
	if errors.Is(err, fs.ErrNotExist) {
		err = fmt.Errorf("%w; a Hugging Face checkpoint is made a GGUF by quern convert %s", err, dir)
	}
	return file, err
}

// cachedSnapshot is the folder of a model or adapter that was pulled; name is how the person called it.
func cachedSnapshot(ref hub.Ref, name string) (string, error) {
	cache, err := hub.DefaultCache()
	if err != nil {
		return "", err
	}
	dir, ok := cache.Snapshot(ref.ID, "main")
	if !ok {
		return "", fmt.Errorf("%s is neither a file or folder nor in the download cache: quern pull %s", name, name)
	}
	return dir, nil
}

// oneFile is the only file in a pulled folder that a pattern names; fs.ErrNotExist where there is none.
func oneFile(dir, pattern string, ref hub.Ref) (string, error) {
	files, err := filepath.Glob(filepath.Join(dir, filepath.FromSlash(pattern)))
	switch {
	case err != nil:
		return "", usagef("%q: %v", pattern, err)
	case len(files) == 0:
		return "", notThere{fmt.Errorf("%s holds no %s: quern pull %s:FILE fetches one", dir, pattern, ref.ID)}
	case len(files) > 1:
		return "", fmt.Errorf("%s holds several files: choose one as %s:FILE (%s)", dir, ref.ID, baseNames(files))
	}
	return files[0], nil
}

// notThere is an fs.ErrNotExist with words of its own.
type notThere struct{ error }

func (notThere) Is(target error) bool { return target == fs.ErrNotExist }

func baseNames(files []string) string {
	names := make([]string, len(files))
	for i, f := range files {
		names[i] = filepath.Base(f)
	}
	return strings.Join(names, ", ")
}

// parseAdapter reads FILE or FILE=SCALE.
func parseAdapter(spec string) (assistant.AdapterFile, error) {
	path, scale, found := strings.Cut(spec, "=")
	a := assistant.AdapterFile{Path: path, Scale: 1}
	if found {
		v, err := strconv.ParseFloat(scale, 32)
		if err != nil {
			return a, usagef("--lora %s: %q is no scale", spec, scale)
		}
		a.Scale = float32(v)
	}
	return a, nil
}

func ptr[T any](v T) *T { return &v }
