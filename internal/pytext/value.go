// Package pytext reads and writes text exactly as Python does, where Python's bytes decide: in the reference loops, whose
// models were trained on JSON by the json module, values by repr and pprint and errors of the jsonschema library; and in
// the official scorers, whose verdicts hang on what str, repr and float make of text and numbers.
//
// The rules are those of the Python 3 language and library reference; Go's own differ in small ways (U+001F is white
// space, 1e16 is written "1e+16", "1_0" is a number).
//
// JSON values are nil, bool, *big.Int, float64, string, []any and *Object.
package pytext

// Object is a JSON object that keeps the order of its members.
type Object struct {
	Members []Member
}

// Member is one member of an Object.
type Member struct {
	Key   string
	Value any
}

// Get returns the value of key.
func (o *Object) Get(key string) (value any, ok bool) {
	for i := range o.Members {
		if o.Members[i].Key == key {
			return o.Members[i].Value, true
		}
	}
	return nil, false
}

// Set puts a member: a new key goes to the end, a known one keeps its place, as in a Python dict.
func (o *Object) Set(key string, value any) {
	for i := range o.Members {
		if o.Members[i].Key == key {
			o.Members[i].Value = value
			return
		}
	}
	o.Members = append(o.Members, Member{key, value})
}
