package toolloop

import (
	"context"

	"quern/toolloop/internal/pytext"
)

// Definition declares a tool to the model.
type Definition struct {
	Name string
	// JSON is the whole declaration, {"type": "function", "function": {…}}: the template prints it with its keys in this
	// order.
	JSON string
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

// schema returns the declaration's "parameters"; empty where there are none.
func (d Definition) schema() parameterSchema {
	v, err := pytext.DecodeJSON(d.JSON)
	if err != nil {
		return parameterSchema{&Object{}}
	}
	o, _ := v.(*Object)
	for _, key := range []string{"function", "parameters"} {
		if o == nil {
			break
		}
		inner, _ := o.Get(key)
		o, _ = inner.(*Object)
	}
	if o == nil {
		o = &Object{}
	}
	return parameterSchema{o}
}

type parameterSchema struct{ *Object }

func (s parameterSchema) properties() []Member {
	v, _ := s.Get("properties")
	if o, ok := v.(*Object); ok {
		return o.Members
	}
	return nil
}

// SchemaError returns the text of the error that Python's jsonschema raises for these arguments, or "" when they are
// what the declaration asks for.
func (d Definition) SchemaError(args *Object) string {
	return pytext.SchemaError(d.schema().Object, args)
}
