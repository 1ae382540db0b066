package gguf

import (
	"fmt"
	"math"
)

// valueType is the wire number of a metadata value's type.
type valueType uint32

const (
	typeUint8 valueType = iota
	typeInt8
	typeUint16
	typeInt16
	typeUint32
	typeInt32
	typeFloat32
	typeBool
	typeString
	typeArray
	typeUint64
	typeInt64
	typeFloat64
)

var valueTypeNames = [...]string{"UINT8", "INT8", "UINT16", "INT16", "UINT32", "INT32", "FLOAT32", "BOOL", "STRING",
	"ARRAY", "UINT64", "INT64", "FLOAT64"}

func (t valueType) String() string {
	if int(t) < len(valueTypeNames) {
		return valueTypeNames[t]
	}
	return fmt.Sprintf("type %d", uint32(t))
}

// KV is one metadata entry. The Go type of Value is the type in the file: uint8, int8, uint16, int16, uint32, int32,
// float32, bool, string, uint64, int64, float64, or a slice of one of them. Arrays of arrays do not occur: llama.cpp
// refuses them.
type KV struct {
	Key   string
	Value any
}

// TypeName returns the value's type as GGUF tools write it: "UINT32", "[]STRING".
func (kv KV) TypeName() string {
	t, isArray, ok := typeOf(kv.Value)
	switch {
	case !ok:
		return fmt.Sprintf("%T", kv.Value)
	case isArray:
		return "[]" + t.String()
	}
	return t.String()
}

// Metadata is the entries of a file, in order.
type Metadata []KV

// Get returns a value by its key.
func (m Metadata) Get(key string) (value any, ok bool) {
	for _, kv := range m {
		if kv.Key == key {
			return kv.Value, true
		}
	}
	return nil, false
}

// Set replaces the value of a key, or appends the entry.
func (m *Metadata) Set(key string, value any) {
	for i := range *m {
		if (*m)[i].Key == key {
			(*m)[i].Value = value
			return
		}
	}
	*m = append(*m, KV{key, value})
}

// Text returns a string value.
func (m Metadata) Text(key string) (string, bool) {
	v, _ := m.Get(key)
	s, ok := v.(string)
	return s, ok
}

// Int returns a value of any integer type that fits in 63 bits.
func (m Metadata) Int(key string) (int64, bool) {
	v, _ := m.Get(key)
	switch n := v.(type) {
	case uint8:
		return int64(n), true
	case int8:
		return int64(n), true
	case uint16:
		return int64(n), true
	case int16:
		return int64(n), true
	case uint32:
		return int64(n), true
	case int32:
		return int64(n), true
	case int64:
		return n, true
	case uint64:
		return int64(n), n <= math.MaxInt64
	}
	return 0, false
}

// Float returns a value of either floating type.
func (m Metadata) Float(key string) (float64, bool) {
	v, _ := m.Get(key)
	switch f := v.(type) {
	case float32:
		return float64(f), true
	case float64:
		return f, true
	}
	return 0, false
}

// Strings returns an array of strings.
func (m Metadata) Strings(key string) ([]string, bool) {
	v, _ := m.Get(key)
	s, ok := v.([]string)
	return s, ok
}

// typeOf returns the wire type of a Go value, of the elements for a slice.
func typeOf(v any) (t valueType, isArray, ok bool) {
	switch v.(type) {
	case uint8:
		return typeUint8, false, true
	case []uint8:
		return typeUint8, true, true
	case int8:
		return typeInt8, false, true
	case []int8:
		return typeInt8, true, true
	case uint16:
		return typeUint16, false, true
	case []uint16:
		return typeUint16, true, true
	case int16:
		return typeInt16, false, true
	case []int16:
		return typeInt16, true, true
	case uint32:
		return typeUint32, false, true
	case []uint32:
		return typeUint32, true, true
	case int32:
		return typeInt32, false, true
	case []int32:
		return typeInt32, true, true
	case float32:
		return typeFloat32, false, true
	case []float32:
		return typeFloat32, true, true
	case bool:
		return typeBool, false, true
	case []bool:
		return typeBool, true, true
	case string:
		return typeString, false, true
	case []string:
		return typeString, true, true
	case uint64:
		return typeUint64, false, true
	case []uint64:
		return typeUint64, true, true
	case int64:
		return typeInt64, false, true
	case []int64:
		return typeInt64, true, true
	case float64:
		return typeFloat64, false, true
	case []float64:
		return typeFloat64, true, true
	}
	return 0, false, false
}
