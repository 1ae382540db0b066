// Package pytext reads and writes text exactly as Python does where the reference loops let Python write it: JSON by
// the json module, values by repr and pprint, errors of the jsonschema library. A model trained on those bytes has to
// be shown the same bytes.
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
