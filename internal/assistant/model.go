package assistant

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"quern/backend"
	"quern/engine"
	"quern/internal/enginegen"
	"quern/prompts"
	"quern/toolloop"
	"quern/toolloop/sqltool"
)

// ModelOptions say which model is run and how. The zero value of a field is a default; Path or Backend is needed.
type ModelOptions struct {
	Path     string // GGUF file
	Load     engine.LoadOptions
	Adapters []AdapterFile

	// Backend is the address of an OpenAI-compatible server that makes the generations.
	Backend      string
	BackendModel string // the model's name there; "" its first one
	BackendKey   string // API key

	Profile      string // toolloop profile; "" by the model's metadata
	Prompt       string // folder of a prompt pack; "" the profile's own
	ColumnPolicy string
	ChatTemplate string // file; "" the model's own
	Thinking     *bool
	Reference    bool // special tokens recognised in content too, for exact replay

	// Limits replace the profile's where they are not zero.
	MaxTurns, MaxNewTokens, MaxInputTokens, ResponseLength int

	Sampling toolloop.Sampling
	LogProbs bool
}

// AdapterFile is a LoRA adapter (GGUF) with its strength.
type AdapterFile struct {
	Path  string
	Scale float32
}

// Model is a loaded model with the loop that it was trained in. It may serve many databases at once.
type Model struct {
	Name     string // for people and records
	Profile  toolloop.Profile
	Pack     *prompts.Pack
	Limits   toolloop.Limits
	Sampling toolloop.Sampling
	Engine   *engine.Engine       // nil with a Backend
	Template *engine.ChatTemplate // nil where a server has it all

	options   ModelOptions
	generator toolloop.Generator
	renderer  toolloop.Renderer
	tokenizer toolloop.Tokenizer
	weights   *engine.Model
	adapters  []*engine.Adapter
}

// OpenModel makes a model ready: loaded into an engine here; or, with a Backend, its vocabulary loaded here and its
// generations made by a server that takes token ids; or, with a Backend and no Path, all of it at a server that takes
// messages.
func OpenModel(ctx context.Context, o ModelOptions) (m *Model, err error) {
	m = &Model{options: o, Sampling: o.Sampling}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.Close())
		}
	}()
	if o.Path == "" {
		return m, m.startChat()
	}
	o.Load.VocabOnly = o.Backend != ""
	if m.weights, err = engine.Load(ctx, o.Path, o.Load); err != nil {
		return m, err
	}
	if m.Name = m.weights.Name(); m.Name == "" {
		m.Name = strings.TrimSuffix(filepath.Base(o.Path), ".gguf")
	}
	if m.Template, err = m.template(); err != nil {
		return m, err
	}
	m.renderer, m.tokenizer = enginegen.Renderer{Template: m.Template}, enginegen.Tokenizer{Model: m.weights}
	if err := m.choose(m.weights.Architecture(), m.Template.Source()); err != nil {
		return m, err
	}
	if o.Backend != "" {
		return m, m.startCompletions()
	}
	return m, m.startEngine(ctx)
}

func (m *Model) template() (*engine.ChatTemplate, error) {
	if m.options.ChatTemplate == "" {
		return m.weights.ChatTemplate()
	}
	source, err := os.ReadFile(m.options.ChatTemplate)
	if err != nil {
		return nil, fmt.Errorf("chat template: %w", err)
	}
	template, err := engine.ParseChatTemplate(string(source), "", "")
	if err != nil {
		return nil, fmt.Errorf("chat template %s: %w", m.options.ChatTemplate, err)
	}
	return template, nil
}

// choose settles profile, prompt pack and limits.
func (m *Model) choose(architecture, chatTemplate string) (err error) {
	o := m.options
	if o.Profile != "" {
		m.Profile, err = toolloop.ProfileNamed(o.Profile)
	} else {
		m.Profile, err = toolloop.ProfileFor(architecture, chatTemplate)
	}
	if err != nil {
		return err
	}
	if o.Prompt != "" {
		m.Pack, err = prompts.Load(os.DirFS(o.Prompt))
	} else {
		m.Pack, err = prompts.ForProfile(m.Profile.Name)
	}
	if err != nil {
		return err
	}
	if m.Pack.Profile != m.Profile.Name {
		return fmt.Errorf("prompt pack %s is written for the profile %s, the model runs as %s: choose another pack, or --profile %s",
			m.Pack.Name, m.Pack.Profile, m.Profile.Name, m.Pack.Profile)
	}
	if _, err := m.Pack.System("", o.ColumnPolicy); err != nil { // before the first question asks for it
		return err
	}
	m.Limits = m.Profile.Limits
	for limit, value := range map[*int]int{
		&m.Limits.MaxTurns: o.MaxTurns, &m.Limits.MaxNewTokens: o.MaxNewTokens,
		&m.Limits.MaxInputTokens: o.MaxInputTokens, &m.Limits.ResponseLength: o.ResponseLength,
	} {
		if value > 0 {
			*limit = value
		}
	}
	return nil
}

// startEngine makes the generator in this process.
func (m *Model) startEngine(ctx context.Context) (err error) {
	opts := m.options.Load.Engine
	for _, file := range m.options.Adapters {
		adapter, err := m.weights.LoadAdapter(ctx, file.Path)
		if err != nil {
			return err
		}
		m.adapters = append(m.adapters, adapter)
		opts.Adapters = append(opts.Adapters, engine.AdapterScale{Adapter: adapter, Scale: file.Scale})
	}
	if m.Engine, err = m.weights.NewEngine(ctx, opts); err != nil {
		return err
	}
	m.generator = enginegen.Generator{Engine: m.Engine, LogProbs: m.options.LogProbs}
	return nil
}

// startCompletions makes the generator at a server that continues token ids.
func (m *Model) startCompletions() error {
	client, err := backend.New(m.backendOptions())
	if err != nil {
		return err
	}
	end, ok := m.weights.SpecialToken("<|im_end|>")
	if ends := m.weights.EndTokens(); !ok && len(ends) > 0 {
		end = ends[0]
	}
	m.generator = &backend.Completions{Client: client, Tokenizer: m.tokenizer, End: end}
	return nil
}

// startChat makes generator, renderer and tokenizer at a server that answers messages.
func (m *Model) startChat() error {
	if m.options.Profile == "" {
		return errors.New("a backend without a model file here needs --profile hermes or --profile qwen-xml: what it serves cannot be seen from here")
	}
	if err := m.choose("", ""); err != nil {
		return err
	}
	client, err := backend.New(m.backendOptions())
	if err != nil {
		return err
	}
	tool, err := toolloop.NewDefinition(m.Pack.Tool)
	if err != nil {
		return err
	}
	chat := &backend.Chat{Client: client, Profile: m.Profile, Tools: []toolloop.Definition{tool}, Thinking: m.options.Thinking}
	m.generator, m.renderer, m.tokenizer = chat, chat, chat
	if m.Name = m.options.BackendModel; m.Name == "" {
		m.Name = m.options.Backend
	}
	return nil
}

func (m *Model) backendOptions() backend.Options {
	return backend.Options{URL: m.options.Backend, Model: m.options.BackendModel, APIKey: m.options.BackendKey, Concurrency: m.options.Load.Engine.Lanes}
}

// Close frees the model. It may be called twice.
func (m *Model) Close() error {
	var errs []error
	if m.Engine != nil {
		errs = append(errs, m.Engine.Close())
	}
	for _, a := range m.adapters {
		errs = append(errs, a.Close())
	}
	if m.weights != nil {
		errs = append(errs, m.weights.Close())
	}
	return errors.Join(errs...)
}

// Weights is the loaded file; nil where a server has it all.
func (m *Model) Weights() *engine.Model { return m.weights }

// Loop is the model's loop with a tool. Each trajectory may have a sampling of its own.
func (m *Model) Loop(tool toolloop.Tool, s toolloop.Sampling) *toolloop.Loop {
	return &toolloop.Loop{
		Profile: m.Profile, Generator: m.generator, Renderer: m.renderer, Tokenizer: m.tokenizer, Tools: []toolloop.Tool{tool},
		Limits: m.Limits, Sampling: s, Thinking: m.options.Thinking,
		FinalRequest: m.Pack.FinalRequest, ReferenceTokenization: m.options.Reference,
	}
}

// Prompt makes the first messages about a database; notes say what of the schema had to be left out.
func (m *Model) Prompt(loop *toolloop.Loop, schema *sqltool.Schema, question string) (messages []toolloop.Message, notes []string, err error) {
	p := sqltool.Prompt{Texts: m.Pack, Policy: m.options.ColumnPolicy, Schema: schema}
	return p.Messages(question, m.promptBudget(), loop.CountTokens)
}

// promptBudget is how many tokens the first prompt may take: what the loop allows, and no more than leaves room for the
// turns in the model's context, or half of a context that is too short for them.
func (m *Model) promptBudget() int {
	budget := m.Limits.PromptBudget()
	if m.Engine != nil {
		context := m.Engine.ContextLength()
		room := max(context-max(m.Limits.ResponseLength, m.Limits.MaxNewTokens), context/2)
		if budget == 0 || room < budget {
			budget = room
		}
	}
	return budget
}

// Label fills in what a transcript tells about the model.
func (m *Model) Label(t *toolloop.Transcript) {
	t.Model, t.Pack, t.PackHash, t.Policy = m.Name, m.Pack.Name, m.Pack.Hash, m.options.ColumnPolicy
	if t.Policy == "" {
		t.Policy = m.Pack.DefaultPolicy
	}
	for _, a := range m.options.Adapters {
		t.Adapters = append(t.Adapters, filepath.Base(a.Path))
	}
}
