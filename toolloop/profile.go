package toolloop

import (
	"fmt"
	"strings"

	"quern/internal/pytext"
)

// Profile is what is fixed about a family of models by the way it was trained: how calls are written, when they run,
// how turns are joined and what counts as the answer. The prompt text stands in a prompts.Pack, the text of the
// tool's results in sqltool.
type Profile struct {
	Name   string
	Limits Limits // the family's own

	parse       func(text string, tools []Definition) (content string, calls []ToolCall)
	format      func(ToolCall) string
	unknownTool func(name string, tools []Definition) string
	badArgs     func(args any) string
	// callsInThinking runs calls written inside a think block.
	callsInThinking bool
	// newlineAfterTurn puts what the template writes behind the end token of an assistant's turn ("\n") before a tool
	// turn, as rendering the whole conversation does. Trained without it, a model should be run without it.
	newlineAfterTurn bool
	// turnsBeforeCalls checks the turn limit before the last turn's calls run, so that they do not.
	turnsBeforeCalls bool
	// answer takes the final SQL out of the last turn's content, or out of the whole response.
	answer func(content, response string) string
}

// Names of the profiles.
const (
	ProfileHermes  = "hermes"
	ProfileQwenXML = "qwen-xml"
)

// Hermes is the loop that Qwen2.5 was trained in for SQL by verl 0.7.1 (ToolAgentLoop) with Oumi's run_sql tool: JSON
// calls, one budget for generated and tool tokens of all turns, turn limits checked before calls run.
func Hermes() Profile {
	return Profile{
		Name:             ProfileHermes,
		Limits:           Limits{MaxTurns: 5, MaxCalls: 1, PromptLength: 4096, ResponseLength: 2048},
		parse:            func(text string, _ []Definition) (string, []ToolCall) { return ParseHermes(text) },
		format:           formatHermes,
		unknownTool:      func(name string, _ []Definition) string { return hermesError(pythonKeyError(name)) },
		badArgs:          func(args any) string { return hermesError(pythonNoItems(args)) },
		callsInThinking:  true,
		turnsBeforeCalls: true,
		answer:           func(_, response string) string { return OumiFinalSQL(response) },
	}
}

// QwenXML is the loop of Qwen3.5 models: XML calls, a budget for each generation, and a last generation that asks for
// the answer when the turns are used up.
func QwenXML() Profile {
	return Profile{
		Name:             ProfileQwenXML,
		Limits:           Limits{MaxTurns: 8, MaxNewTokens: 2048, MaxInputTokens: 16384},
		parse:            ParseXML,
		format:           formatXML,
		unknownTool:      unknownToolText,
		badArgs:          func(any) string { return "Error: the arguments have to be given as parameters." },
		newlineAfterTurn: true,
		answer:           func(content, _ string) string { return TurnSQL(content) },
	}
}

// ProfileNamed returns the profile of that name.
func ProfileNamed(name string) (Profile, error) {
	switch name {
	case ProfileHermes:
		return Hermes(), nil
	case ProfileQwenXML:
		return QwenXML(), nil
	}
	return Profile{}, fmt.Errorf("toolloop: no profile %q; there are %s and %s", name, ProfileHermes, ProfileQwenXML)
}

// ProfileFor chooses by a model's metadata: the form of calls that its chat template asks for, else its architecture
// (general.architecture).
func ProfileFor(architecture, chatTemplate string) (Profile, error) {
	switch {
	case strings.Contains(chatTemplate, functionOpen):
		return QwenXML(), nil
	case strings.Contains(chatTemplate, toolCallOpen):
		return Hermes(), nil
	case strings.HasPrefix(architecture, "qwen35"):
		return QwenXML(), nil
	case strings.HasPrefix(architecture, "qwen2"), strings.HasPrefix(architecture, "qwen3"):
		return Hermes(), nil
	}
	return Profile{}, fmt.Errorf("toolloop: the chat template of this %q model declares no form of tool call that is known here; choose one with --profile %s or --profile %s",
		architecture, ProfileHermes, ProfileQwenXML)
}

// FormatCall writes a call as the model would.
func (p Profile) FormatCall(c ToolCall) string { return p.format(c) }

// Parse finds the calls of one turn. A generation that was cut must not be given here.
func (p Profile) Parse(text string, tools []Definition) (content string, calls []ToolCall) {
	return p.parse(text, tools)
}

// Limits bound one question. A zero field is no limit.
type Limits struct {
	MaxTurns     int `json:"max_turns,omitempty"`      // generations in which tools may be called
	MaxToolTurns int `json:"max_tool_turns,omitempty"` // turns in which results are shown (verl: max_user_turns)
	MaxCalls     int `json:"max_calls,omitempty"`      // calls of one turn that run; the rest is dropped (verl: max_parallel_calls)

	MaxNewTokens   int `json:"max_new_tokens,omitempty"`   // of one generation
	MaxInputTokens int `json:"max_input_tokens,omitempty"` // of the conversation before a generation

	// ResponseLength is one budget for the generated and tool tokens of all turns. A generation may take
	// min(ResponseLength, PromptLength + ResponseLength - conversation) tokens, and what is beyond the budget at the end
	// is cut off the response.
	ResponseLength int `json:"response_length,omitempty"`
	PromptLength   int `json:"prompt_length,omitempty"`
}

// PromptBudget is how many tokens the first prompt may take; 0 is no bound. Where one input budget holds for prompt and
// turns, a quarter of it is left to the turns.
func (l Limits) PromptBudget() int {
	if l.PromptLength > 0 {
		return l.PromptLength
	}
	return l.MaxInputTokens - l.MaxInputTokens/4
}

// hermesError is verl's text for a call that raises before the tool runs.
func hermesError(exception string) string { return "Error when executing tool: " + exception }

func pythonKeyError(key string) string { return pytext.StringRepr(key) }

func pythonNoItems(v any) string {
	return "'" + pytext.TypeName(v) + "' object has no attribute 'items'"
}

func unknownToolText(name string, tools []Definition) string {
	names := make([]string, len(tools))
	for i, t := range tools {
		names[i] = t.Name
	}
	return fmt.Sprintf("Error: there is no tool %q. Tools: %s.", name, strings.Join(names, ", "))
}
