package pytext

import (
	"math"
	"math/big"
	"strings"
)

// SchemaError validates args against a tool's parameters schema and returns the text of the error that Python's
// jsonschema (4.26) raises, or "" when args are valid.
//
// Of JSON Schema it knows what tool declarations use: type, required and properties with a type each. The reference
// raises its best match, which is a fault of the whole before one of a member.
func SchemaError(schema, args *Object) string {
	if text := requiredError(schema, args); text != "" {
		return text
	}
	properties, _ := lookup[*Object](schema, "properties")
	if properties == nil {
		return ""
	}
	for _, p := range properties.Members {
		sub, _ := p.Value.(*Object)
		value, given := args.Get(p.Key)
		if sub == nil || !given {
			continue
		}
		if text := typeError(sub, p.Key, value); text != "" {
			return text
		}
	}
	return ""
}

func requiredError(schema, args *Object) string {
	required, _ := lookup[[]any](schema, "required")
	for _, r := range required {
		name, _ := r.(string)
		if _, given := args.Get(name); given {
			continue
		}
		return errorText(StringRepr(name)+" is a required property",
			"required", "schema", schema, "instance", args)
	}
	return ""
}

func typeError(schema *Object, key string, value any) string {
	declared, ok := schema.Get("type")
	if !ok {
		return ""
	}
	types, isList := declared.([]any)
	if !isList {
		types = []any{declared}
	}
	var names []string
	for _, t := range types {
		name, _ := t.(string)
		if isType(value, name) {
			return ""
		}
		names = append(names, StringRepr(name))
	}
	index := "[" + StringRepr(key) + "]"
	return errorText(Repr(value)+" is not of type "+strings.Join(names, ", "),
		"type", "schema['properties']"+index, schema, "instance"+index, value)
}

// isType is the check of drafts 6 and later: a float without a fraction is an integer, a bool is no number.
func isType(v any, name string) bool {
	switch name {
	case "object":
		_, ok := v.(*Object)
		return ok
	case "array":
		_, ok := v.([]any)
		return ok
	case "string":
		_, ok := v.(string)
		return ok
	case "boolean":
		_, ok := v.(bool)
		return ok
	case "null":
		return v == nil
	case "integer":
		f, isFloat := v.(float64)
		_, isInt := v.(*big.Int)
		return isInt || isFloat && f == math.Trunc(f) && !math.IsInf(f, 0)
	case "number":
		_, isFloat := v.(float64)
		_, isInt := v.(*big.Int)
		return isInt || isFloat
	}
	return true // not a type that Python would know: it raises, and no declaration of ours has one
}

// errorText lays an error out as ValidationError.__str__ does.
func errorText(message, validator, schemaPath string, schema any, instancePath string, instance any) string {
	const width = 72
	indent := func(v any) string {
		return "    " + strings.ReplaceAll(Pprint(v, width), "\n", "\n    ")
	}
	return message + "\n\n" +
		"Failed validating '" + validator + "' in " + schemaPath + ":\n" + indent(schema) + "\n\n" +
		"On " + instancePath + ":\n" + indent(instance)
}

func lookup[T any](o *Object, key string) (value T, ok bool) {
	v, _ := o.Get(key)
	value, ok = v.(T)
	return value, ok
}
