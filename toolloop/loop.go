package toolloop

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"quern/internal/pytext"
)

// Loop runs questions. Its fields are set once; it may then be used by many goroutines, as far as its parts may be.
type Loop struct {
	Profile   Profile
	Generator Generator
	Renderer  Renderer
	Tokenizer Tokenizer
	Tools     []Tool
	Limits    Limits
	Sampling  Sampling
	Thinking  *bool // the template's enable_thinking; nil leaves it to the template

	// FinalRequest is what the user says when the turns are used up without an answer; empty: nothing, and the loop ends.
	FinalRequest string
	// ReferenceTokenization recognises control and tool tokens in content too, as the references do. Text from a
	// database can then end the model's turn; it is for exact replay only.
	ReferenceTokenization bool
}

// Event is something that happens while a question runs.
type Event struct {
	Kind        EventKind
	Turn        int // from 1
	Text        string
	Call        *ToolCall
	Observation *Observation
}

// EventKind says what an Event holds.
type EventKind string

// Kinds of event.
const (
	EventTurn        EventKind = "turn"        // a generation begins
	EventText        EventKind = "text"        // Text was generated
	EventCall        EventKind = "call"        // Call is about to run
	EventObservation EventKind = "observation" // Call returned Observation
)

// Start begins a conversation with its first messages, the last of them the user's question.
func (l *Loop) Start(messages []Message) (*Conversation, error) {
	return l.turns().start(messages, l.definitions())
}

// Ask appends a further message of the user to a conversation in which the model has answered.
func (l *Loop) Ask(c *Conversation, question string) error {
	ids, thinkOpen, err := l.turns().nextIDs(c, true, Message{Role: RoleUser, Content: question})
	if err != nil {
		return err
	}
	c.open(ids, thinkOpen)
	return nil
}

// CountTokens is the length of the prompt that Start would make of the messages.
func (l *Loop) CountTokens(messages []Message) (int, error) {
	c, err := l.Start(messages)
	if err != nil {
		return 0, err
	}
	return c.Len(), nil
}

// EndToken is the token that the template ends an assistant's turn with. Generators that do not tell it need it.
func (l *Loop) EndToken() (Token, error) {
	ids, err := l.turns().closingIDs(&Conversation{}, false)
	if err != nil {
		return 0, err
	}
	if len(ids) == 0 || !l.Tokenizer.IsEOG(ids[0]) {
		return 0, errors.New("toolloop: the chat template does not end an assistant's turn with an end token of the model")
	}
	return ids[0], nil
}

// Run generates and calls tools until the model answers or a limit is reached. c has to end with an open assistant's
// turn, as after Start and Ask; it grows by what happens. onEvent may be nil.
//
// The transcript tells everything, failures of the model included. When our side breaks, the error says how, and the
// transcript holds what happened up to there with stop reason StopError.
func (l *Loop) Run(ctx context.Context, c *Conversation, onEvent func(Event)) (*Transcript, error) {
	if !c.turnOpen {
		return nil, errors.New("toolloop: the conversation waits for the user, not for the model")
	}
	if onEvent == nil {
		onEvent = func(Event) {}
	}
	r := &run{Loop: l, conv: c, start: c.Len(), onEvent: onEvent, seen: map[string]int{}}
	r.transcript = &Transcript{
		Version: TranscriptVersion, Profile: l.Profile.Name, Limits: l.Limits, Sampling: l.Sampling, Thinking: l.Thinking,
		Started: time.Now(), PromptTokens: c.Len(), PromptIDs: slices.Clone(c.ids), PromptHash: hashIDs(c.ids),
	}
	stop, err := r.question(ctx)
	if err != nil {
		stop = StopError
		r.transcript.Error = err.Error()
	}
	r.finish(stop)
	return r.transcript, err
}

// run is one question on its way.
type run struct {
	*Loop
	conv       *Conversation
	start      int // where the response begins in conv
	transcript *Transcript
	content    string         // what the last turn said, thinking and calls left out
	seen       map[string]int // how often each call was made
	onEvent    func(Event)
}

// question is the loop. The order of the checks is the reference's (verl 0.7.1, ToolAgentLoop): budget, turns, calls.
func (r *run) question(ctx context.Context) (StopReason, error) {
	for {
		gen, stop, err := r.generate(ctx)
		if stop != "" || err != nil {
			return stop, err
		}
		calls := r.read(gen)
		switch {
		case r.Limits.ResponseLength > 0 && r.responseLen() >= r.Limits.ResponseLength:
			return StopMaxTokens, nil
		case r.Profile.turnsBeforeCalls && r.outOfTurns():
			return StopMaxTurns, nil
		case gen.Finish != FinishEOG:
			return r.requestAnswer(ctx, StopMaxTokens)
		case len(calls) == 0 && isQuery(r.answer()):
			return StopFinalSQL, nil
		case len(calls) == 0:
			return r.requestAnswer(ctx, StopNoSQL)
		}
		last := !r.Profile.turnsBeforeCalls && r.outOfTurns()
		stop, err = r.observe(ctx, calls, last)
		switch {
		case stop == StopCancelled || err != nil:
			return stop, err
		case stop != "":
			return r.requestAnswer(ctx, stop)
		case last:
			return r.lastGeneration(ctx, StopMaxTurns)
		}
	}
}

// generate runs one generation and appends it. A stop reason means that it could not run, or that it ends the question.
func (r *run) generate(ctx context.Context) (Generation, StopReason, error) {
	room, stop := r.room()
	if stop != "" {
		return Generation{}, stop, nil
	}
	turn := len(r.transcript.Turns) + 1
	r.onEvent(Event{Kind: EventTurn, Turn: turn})
	gen, err := r.Generator.Generate(ctx, GenerateRequest{
		Prompt: r.conv.ids, MaxTokens: room, Sampling: r.Sampling,
		OnText: func(text string) { r.onEvent(Event{Kind: EventText, Turn: turn, Text: text}) },
	})
	if err != nil {
		return Generation{}, "", fmt.Errorf("toolloop: generate turn %d: %w", turn, err)
	}
	r.transcript.Turns = append(r.transcript.Turns, Turn{
		PromptTokens: r.conv.Len(), Tokens: len(gen.Tokens), Room: room, Text: gen.Text,
		Finish: gen.Finish, LogProb: gen.LogProb, Usage: gen.Usage,
	})
	r.conv.append(gen.Tokens, true)
	r.conv.turnOpen = false
	switch gen.Finish {
	case FinishCancelled:
		stop = StopCancelled
	case FinishContextFull:
		stop = StopContextFull
	}
	if stop != "" {
		r.read(gen)
	}
	return gen, stop, nil
}

// room is how many tokens the next generation may take, or why there is none to run.
func (r *run) room() (int, StopReason) {
	room := math.MaxInt32
	if l := r.Limits; l.ResponseLength > 0 {
		room = min(l.ResponseLength, l.PromptLength+l.ResponseLength-r.conv.Len())
	}
	if r.Limits.MaxNewTokens > 0 {
		room = min(room, r.Limits.MaxNewTokens)
	}
	if room <= 0 || !r.fits(0) {
		return 0, StopContextFull
	}
	return room, ""
}

// fits says whether the conversation may grow by n tokens and still be given to the model.
func (r *run) fits(n int) bool {
	return r.Limits.MaxInputTokens == 0 || r.conv.Len()+n <= r.Limits.MaxInputTokens
}

func (r *run) responseLen() int { return r.conv.Len() - r.start }

func (r *run) outOfTurns() bool {
	l := r.Limits
	return l.MaxTurns > 0 && len(r.transcript.Turns) >= l.MaxTurns ||
		l.MaxToolTurns > 0 && r.transcript.ToolTurns >= l.MaxToolTurns
}

// read takes a turn apart and returns its calls. A generation that did not end by itself has none, whatever it looks
// like: what is missing may be the half that matters.
func (r *run) read(gen Generation) []ToolCall {
	turn := r.lastTurn()
	var calls []ToolCall
	turn.Thinking, turn.Content = splitThinking(gen.Text, r.conv.thinkOpen)
	callText := turn.Content
	if r.Profile.callsInThinking {
		callText = gen.Text
	}
	turn.Content, calls = r.Profile.parse(callText, r.definitions())
	r.content = turn.Content
	if gen.Finish != FinishEOG {
		return nil
	}
	return calls
}

func (r *run) lastTurn() *Turn { return &r.transcript.Turns[len(r.transcript.Turns)-1] }

func (r *run) answer() string { return r.Profile.answer(r.content, r.responseText()) }

// responseText is everything since the question as one text, control tokens dropped: what the reference's reward reads.
func (r *run) responseText() string { return r.Tokenizer.Detokenize(r.response(), false) }

// response is the ids since the question, as far as the budget goes.
func (r *run) response() []Token {
	ids := r.conv.ids[r.start:]
	if n := r.Limits.ResponseLength; n > 0 && len(ids) > n {
		ids = ids[:n]
	}
	return ids
}

// observe runs the calls of a turn and appends what they returned, followed by the request for an answer if this was
// the last turn. A stop reason means that it was not appended.
func (r *run) observe(ctx context.Context, calls []ToolCall, last bool) (StopReason, error) {
	var messages []Message
	turn := r.lastTurn()
	for i, call := range calls {
		if n := r.Limits.MaxCalls; n > 0 && i >= n {
			turn.Calls = append(turn.Calls, CallRecord{Name: call.Name, Arguments: json.RawMessage(EncodeArguments(call.Arguments)), Dropped: true})
			continue
		}
		r.onEvent(Event{Kind: EventCall, Turn: len(r.transcript.Turns), Call: &call})
		began := time.Now()
		obs, err := r.execute(ctx, call)
		if ctx.Err() != nil {
			return StopCancelled, nil
		}
		if err != nil {
			return "", fmt.Errorf("toolloop: call %s: %w", call.Name, err)
		}
		r.onEvent(Event{Kind: EventObservation, Turn: len(r.transcript.Turns), Call: &call, Observation: &obs})
		turn.Calls = append(turn.Calls, CallRecord{
			Name: call.Name, Arguments: json.RawMessage(EncodeArguments(call.Arguments)), Observation: &obs, Elapsed: time.Since(began),
		})
		messages = append(messages, Message{Role: RoleTool, Content: obs.Text})
	}
	if last && r.FinalRequest != "" {
		messages = append(messages, Message{Role: RoleUser, Content: r.FinalRequest})
	}
	return r.show(messages)
}

// execute runs one call, or says what is wrong with it.
func (r *run) execute(ctx context.Context, call ToolCall) (Observation, error) {
	tool := r.tool(call.Name)
	if tool == nil {
		return Observation{Text: r.Profile.unknownTool(call.Name, r.definitions()), Failure: FailUnknownTool}, nil
	}
	args, ok := call.Arguments.(*Object)
	if call.Arguments == nil {
		args, ok = &Object{}, true
	}
	if !ok {
		return Observation{Text: r.Profile.badArgs(call.Arguments), Failure: FailArguments}, nil
	}
	key := call.Name + " " + pytext.JSON(args)
	repeats := r.seen[key]
	r.seen[key]++
	return tool.Call(ctx, Invocation{Arguments: args, Repeats: repeats})
}

func (l *Loop) tool(name string) Tool {
	for _, t := range l.Tools {
		if t.Definition().Name == name {
			return t
		}
	}
	return nil
}

// show appends a tool turn if there is room for it, and for the request for an answer that may have to follow.
func (r *run) show(messages []Message) (StopReason, error) {
	ids, thinkOpen, err := r.turns().nextIDs(r.conv, r.Profile.newlineAfterTurn, messages...)
	if err != nil {
		return "", err
	}
	request, _, err := r.requestIDs()
	if err != nil {
		return "", err
	}
	if n := r.Limits.ResponseLength; n > 0 && r.responseLen()+len(ids) >= n {
		return StopMaxTokens, nil
	}
	if !r.fits(len(ids) + len(request)) {
		return StopContextFull, nil
	}
	r.lastTurn().ToolTokens = len(ids)
	r.transcript.ToolTurns++
	r.conv.open(ids, thinkOpen)
	return "", nil
}

// requestAnswer asks the model for its answer in the user's voice. Without such a request in the prompt pack, and where
// it brings none, the question ends for the reason that led here.
func (r *run) requestAnswer(ctx context.Context, reason StopReason) (StopReason, error) {
	ids, thinkOpen, err := r.requestIDs()
	if err != nil || len(ids) == 0 || !r.fits(len(ids)) {
		return reason, err
	}
	r.conv.open(ids, thinkOpen)
	return r.lastGeneration(ctx, reason)
}

// requestIDs are the ids of the request for an answer; none where the pack has no such request.
func (r *run) requestIDs() (ids []Token, thinkOpen bool, err error) {
	if r.FinalRequest == "" {
		return nil, false, nil
	}
	return r.turns().nextIDs(r.conv, true, Message{Role: RoleUser, Content: r.FinalRequest})
}

// lastGeneration gives the model one more generation, in which no call runs.
func (r *run) lastGeneration(ctx context.Context, reason StopReason) (StopReason, error) {
	if r.FinalRequest == "" {
		return reason, nil
	}
	gen, stop, err := r.generate(ctx)
	if stop != "" || err != nil {
		return stop, err
	}
	r.lastTurn().Forced = true
	r.read(gen)
	if isQuery(r.answer()) {
		return StopForcedFinal, nil
	}
	return reason, nil
}

// finish closes the transcript.
func (r *run) finish(stop StopReason) {
	t := r.transcript
	t.Stop = stop
	t.ResponseIDs = slices.Clone(r.response())
	t.Generated = slices.Clone(r.conv.generated[r.start:][:len(t.ResponseIDs)])
	t.FinalSQL = r.answer()
	t.Elapsed = time.Since(t.Started)
}

func (l *Loop) turns() turns {
	return turns{renderer: l.Renderer, tokenizer: l.Tokenizer, thinking: l.Thinking, reference: l.ReferenceTokenization}
}

func (l *Loop) definitions() []Definition {
	defs := make([]Definition, len(l.Tools))
	for i, t := range l.Tools {
		defs[i] = t.Definition()
	}
	return defs
}
