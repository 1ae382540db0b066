package sqlguard

import (
	"encoding/binary"
	"errors"
	"math"

	"quern/sqlguard/internal/sqlite"
)

var errPacked = errors.New("sqlguard: broken rows from a worker")

// unpackRows reads rows as sqlguard/internal/sqlite packs them. The values' texts are parts of packed, which therefore stays
// in memory as long as one of them.
func unpackRows(packed string, rows, columns int) ([][]Value, error) {
	if rows < 0 || columns <= 0 || rows > len(packed)/columns { // a value takes a byte at least
		return nil, errPacked
	}
	cells := make([]Value, rows*columns)
	for i := range cells {
		var err error
		if packed, err = unpackValue(packed, &cells[i]); err != nil {
			return nil, err
		}
	}
	if packed != "" {
		return nil, errPacked
	}
	out := make([][]Value, rows)
	for i := range out {
		out[i] = cells[i*columns : (i+1)*columns : (i+1)*columns]
	}
	return out, nil
}

func unpackValue(packed string, v *Value) (rest string, err error) {
	if packed == "" {
		return "", errPacked
	}
	class, packed := packed[0], packed[1:]
	switch class {
	case sqlite.TypeNull:
		return packed, nil
	case sqlite.TypeInteger, sqlite.TypeReal:
		if len(packed) < 8 {
			return "", errPacked
		}
		bits := binary.LittleEndian.Uint64([]byte(packed[:8]))
		if class == sqlite.TypeInteger {
			*v = Value{Kind: Integer, Int: int64(bits)}
		} else {
			*v = Value{Kind: Real, Real: math.Float64frombits(bits)}
		}
		return packed[8:], nil
	case sqlite.TypeText, sqlite.TypeBlob:
		if len(packed) < 4 {
			return "", errPacked
		}
		n := uint64(binary.LittleEndian.Uint32([]byte(packed[:4])))
		if packed = packed[4:]; n > uint64(len(packed)) {
			return "", errPacked
		}
		*v = Value{Kind: Text, Data: packed[:n]}
		if class == sqlite.TypeBlob {
			v.Kind = Blob
		}
		return packed[n:], nil
	}
	return "", errPacked
}
