package lora

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
)

// member is one entry of a JSON object.
type member struct {
	key   string
	value json.RawMessage
}

// parseObject reads a JSON object and keeps the order of its keys, which encoding/json's maps lose: the first of
// several patterns that match a module wins, in the order of the file. A key that occurs twice is an error.
func parseObject(data []byte) ([]member, error) {
	dec := json.NewDecoder(bytes.NewReader(data))
	open, err := dec.Token()
	if err != nil {
		return nil, err
	}
	if open != json.Delim('{') {
		return nil, fmt.Errorf("expected an object, found %v", open)
	}
	var members []member
	seen := map[string]bool{}
	for dec.More() {
		key, err := dec.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := dec.Decode(&value); err != nil {
			return nil, err
		}
		name := key.(string) // a decoder accepts only strings as keys
		if seen[name] {
			return nil, fmt.Errorf("key %q occurs twice", name)
		}
		seen[name] = true
		members = append(members, member{name, value})
	}
	if _, err := dec.Token(); err != nil {
		return nil, err
	}
	if _, err := dec.Token(); err != io.EOF {
		return nil, fmt.Errorf("something follows the object")
	}
	return members, nil
}

// isEmptyJSON tells whether a value says nothing: null, false, 0, "", [] or {}.
func isEmptyJSON(value json.RawMessage) bool {
	switch string(bytes.TrimSpace(value)) {
	case "null", "false", "0", "0.0", `""`, "[]", "{}":
		return true
	}
	return false
}
