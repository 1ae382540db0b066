package toolloop

import (
	"context"
	"errors"
	"fmt"

	"quern/internal/pytext"
)

// Definition declares a tool to the model. NewDefinition makes one.
type Definition struct {
	Name string
	// JSON is the whole declaration, {"type": "function", "function": {…}}: the template prints it with its keys in this
	// order.
	JSON string

	parameters *Object // the JSON Schema of the arguments
}

// Object is a JSON object that keeps the order of its members.
type Object = pytext.Object

// Member is one member of an Object.
type Member = pytext.Member

// ToolCall is a call that the model wrote.
type ToolCall struct {
	Name string
	// Arguments is a JSON value: nil, bool, *big.Int, float64, string, []any or *Object. Models write other things than
	// the object that is asked for.
	Arguments any
}

// DecodeArguments reads the arguments of a call from JSON, in which NaN and integers of any size are allowed too.
func DecodeArguments(text string) (any, error) { return pytext.DecodeJSON(text) }

// EncodeArguments writes the arguments of a call as JSON.
func EncodeArguments(arguments any) string { return pytext.JSON(finite(arguments)) }

// FailureKind classifies what went wrong in a call; empty when nothing did.
type FailureKind string

// Kinds of failure.
const (
	FailUnknownTool FailureKind = "unknown_tool"
	FailArguments   FailureKind = "bad_arguments"
	FailSQL         FailureKind = "sql_error" // the database refused the text: syntax, names, types
	FailRefused     FailureKind = "refused"   // the guard refused the statement
	FailTimeout     FailureKind = "timeout"
	FailTooLarge    FailureKind = "too_large" // a limit of size or memory
)

// Observation is what a call returned.
type Observation struct {
	Text    string      `json:"text"`           // as the model is shown it
	Full    string      `json:"full,omitempty"` // before it was cut; empty when Text is the whole
	Failure FailureKind `json:"failure,omitempty"`
	SQL     string      `json:"sql,omitempty"`  // the statement that ran, where there was one
	Rows    int         `json:"rows,omitempty"` // rows the statement gave, as far as they were read
	Hint    string      `json:"hint,omitempty"` // advice that Text holds beside the result
}

// Tool is something that the model may call.
type Tool interface {
	Definition() Definition
	// Call runs one call. The model's mistakes come back as an Observation with a Failure; an error means that the tool
	// broke, and ends the loop.
	Call(ctx context.Context, inv Invocation) (Observation, error)
}

// Invocation is one call of a Tool.
type Invocation struct {
	Arguments *Object
	Repeats   int // how often the model has made this very call before, in this question
}

// NewDefinition reads a declaration: {"type": "function", "function": {"name": …, "parameters": …}}.
func NewDefinition(text string) (Definition, error) {
	v, err := pytext.DecodeJSON(text)
	if err != nil {
		return Definition{}, fmt.Errorf("toolloop: tool declaration: %w", err)
	}
	d := Definition{JSON: text, parameters: &Object{}}
	function := member[*Object](v, "function")
	if function == nil {
		return Definition{}, errors.New(`toolloop: tool declaration: no "function"`)
	}
	if d.Name = member[string](function, "name"); d.Name == "" {
		return Definition{}, errors.New(`toolloop: tool declaration: no "name"`)
	}
	if p := member[*Object](function, "parameters"); p != nil {
		d.parameters = p
	}
	return d, nil
}

// SchemaError returns the text of the error that Python's jsonschema raises for these arguments, or "" when they are
// what the declaration asks for.
func (d Definition) SchemaError(args *Object) string { return pytext.SchemaError(d.parameters, args) }

// Required lists the parameters that a call has to give.
func (d Definition) Required() (names []string) {
	for _, r := range member[[]any](d.parameters, "required") {
		if name, ok := r.(string); ok {
			names = append(names, name)
		}
	}
	return names
}

// parameterTypes returns the declared type of each parameter; "" for one that may have several.
func (d Definition) parameterTypes() map[string]string {
	types := map[string]string{}
	if properties := member[*Object](d.parameters, "properties"); properties != nil {
		for _, p := range properties.Members {
			types[p.Key] = member[string](p.Value, "type")
		}
	}
	return types
}

// member returns a member of a JSON object, or the zero value where it is not there or of another type.
func member[T any](v any, key string) T {
	var value any
	if o, ok := v.(*Object); ok && o != nil {
		value, _ = o.Get(key)
	}
	t, _ := value.(T)
	return t
}
