package pytext

import (
	"fmt"
	"math"
	"math/big"
	"strconv"
)

// AppendJSON appends v as json.dumps writes it by default: separators ", " and ": ", ASCII only.
// Beside the values of this package it takes int64 and int.
func AppendJSON(b []byte, v any) []byte {
	switch v := v.(type) {
	case nil:
		return append(b, "null"...)
	case bool:
		return strconv.AppendBool(b, v)
	case int:
		return strconv.AppendInt(b, int64(v), 10)
	case int64:
		return strconv.AppendInt(b, v, 10)
	case *big.Int:
		return v.Append(b, 10)
	case float64:
		return append(b, jsonFloat(v)...)
	case string:
		return AppendJSONString(b, v)
	case []any:
		b = append(b, '[')
		for i, e := range v {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = AppendJSON(b, e)
		}
		return append(b, ']')
	case *Object:
		b = append(b, '{')
		for i, m := range v.Members {
			if i > 0 {
				b = append(b, ", "...)
			}
			b = AppendJSONString(b, m.Key)
			b = append(b, ": "...)
			b = AppendJSON(b, m.Value)
		}
		return append(b, '}')
	}
	panic(fmt.Sprintf("pytext: %T is no JSON value", v))
}

// JSON is AppendJSON as a string.
func JSON(v any) string { return string(AppendJSON(nil, v)) }

const hexDigits = "0123456789abcdef"

// AppendJSONString appends a quoted string with every character outside ASCII as \uXXXX, astral ones as two surrogates.
// Bytes that are not UTF-8 count as U+FFFD.
func AppendJSONString(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r == '\n':
			b = append(b, `\n`...)
		case r == '\r':
			b = append(b, `\r`...)
		case r == '\t':
			b = append(b, `\t`...)
		case r == '\b':
			b = append(b, `\b`...)
		case r == '\f':
			b = append(b, `\f`...)
		case 0x20 <= r && r < 0x7f:
			b = append(b, byte(r))
		case r > 0xffff:
			r -= 0x10000
			b = appendU(b, 0xd800+r>>10)
			b = appendU(b, 0xdc00+r&0x3ff)
		default:
			b = appendU(b, r)
		}
	}
	return append(b, '"')
}

func appendU(b []byte, r rune) []byte {
	return append(b, '\\', 'u', hexDigits[r>>12&15], hexDigits[r>>8&15], hexDigits[r>>4&15], hexDigits[r&15])
}

func jsonFloat(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	return FloatRepr(f)
}
