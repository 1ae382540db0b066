package sqlguard

import (
	"bytes"
	"encoding/binary"
	"encoding/gob"
	"errors"
	"fmt"
	"io"
	"math"
	"time"
)

// Parent and worker exchange frames: 4 bytes of payload length, little-endian, one byte that says what it is, the payload. Each
// request is answered by frames of which the last is an end or an error.
const (
	reqOpen     = 'O' // id, gob spec
	reqClose    = 'C' // id; not answered
	reqQuery    = 'Q' // id, limits, SQL
	reqExplain  = 'E' // id, limits, SQL
	reqSchema   = 'S' // id, limits, gob SchemaOptions
	reqBegin    = 'B' // id, limits
	reqRollback = 'R' // id, limits
	reqReset    = 'X' // id, limits

	// Messages of the control pipe: one of these and 8 bytes, the number of the request meant. Both sides count the
	// requests that are answered.
	ctlCancel = 'C'
	ctlLower  = 'L' // give its thread the lowest priority

	repReady   = 'y' // the worker's first word: protocolVersion
	repCopying = 'k' // 1: a private copy is being made, time stands still; 0: it goes on
	repColumns = 'c' // columns
	repRows    = 'r' // number of rows, packed rows
	repGob     = 'g' // Decision or Schema
	repEnd     = 'e' // outcome
	repError   = 'x' // gob remoteError
)

const protocolVersion = 1

// maxFrame bounds what is allocated for a frame beside rows.
const maxFrame = 256 << 20

var errFrame = errors.New("sqlguard: broken message between worker and parent")

// limitBytes is the size of Limits on the wire.
const limitBytes = 7 * 8

func appendLimits(b []byte, l Limits) []byte {
	for _, v := range []int64{int64(l.Timeout), int64(l.MaxRows), l.MaxBytes, l.MaxCell, int64(l.MaxLike), l.Memory, l.MaxOps} {
		b = binary.LittleEndian.AppendUint64(b, uint64(v))
	}
	return b
}

func cutLimits(b []byte) (Limits, []byte, error) {
	if len(b) < limitBytes {
		return Limits{}, nil, errFrame
	}
	var v [7]int64
	for i := range v {
		v[i] = int64(binary.LittleEndian.Uint64(b[8*i:]))
	}
	return Limits{time.Duration(v[0]), int(v[1]), v[2], v[3], int(v[4]), v[5], v[6]}, b[limitBytes:], nil
}

func appendUint32(b []byte, v uint32) []byte { return binary.LittleEndian.AppendUint32(b, v) }

func cutUint32(b []byte) (uint32, []byte, error) {
	if len(b) < 4 {
		return 0, nil, errFrame
	}
	return binary.LittleEndian.Uint32(b), b[4:], nil
}

func appendText(b []byte, s string) []byte { return append(appendUint32(b, uint32(len(s))), s...) }

func cutText(b []byte) (string, []byte, error) {
	n, b, err := cutUint32(b)
	if err != nil || uint64(n) > uint64(len(b)) {
		return "", nil, errFrame
	}
	return string(b[:n]), b[n:], nil
}

func appendColumns(b []byte, columns []Column) []byte {
	b = appendUint32(b, uint32(len(columns)))
	for _, c := range columns {
		b = appendText(appendText(b, c.Name), c.DeclType)
	}
	return b
}

func parseColumns(b []byte) ([]Column, error) {
	n, b, err := cutUint32(b)
	if err != nil || uint64(n) > uint64(len(b))/8 {
		return nil, errFrame
	}
	columns := make([]Column, n)
	for i := range columns {
		if columns[i].Name, b, err = cutText(b); err != nil {
			return nil, err
		}
		if columns[i].DeclType, b, err = cutText(b); err != nil {
			return nil, err
		}
	}
	return columns, nil
}

func appendOutcome(b []byte, o outcome) []byte {
	b = binary.LittleEndian.AppendUint64(b, uint64(o.Elapsed))
	b = appendText(b, string(o.Truncated))
	if o.Failure != nil {
		b = append(b, encode(*o.Failure)...)
	}
	return b
}

func parseOutcome(b []byte) (o outcome, err error) {
	if len(b) < 8 {
		return o, errFrame
	}
	o.Elapsed = time.Duration(binary.LittleEndian.Uint64(b))
	truncated, b, err := cutText(b[8:])
	o.Truncated = Truncation(truncated)
	if err == nil && len(b) > 0 {
		o.Failure = new(Failure)
		err = decode(b, o.Failure)
	}
	return o, err
}

// encode and decode use gob where a message is rare: it keeps texts that are not UTF-8 as they are.
func encode(v any) []byte {
	var b bytes.Buffer
	if err := gob.NewEncoder(&b).Encode(v); err != nil {
		panic(fmt.Sprintf("sqlguard: %T cannot be encoded: %v", v, err)) // a type of ours that gob does not know
	}
	return b.Bytes()
}

func decode(b []byte, v any) error {
	if err := gob.NewDecoder(bytes.NewReader(b)).Decode(v); err != nil {
		return fmt.Errorf("%w: %v", errFrame, err)
	}
	return nil
}

// remoteError is an error on the worker's side, SQLite's code with it where it has one.
type remoteError struct {
	Code    int
	Message string
}

func (e *remoteError) Error() string { return e.Message }

func writeFrame(w io.Writer, kind byte, payload ...[]byte) error {
	n := 0
	for _, p := range payload {
		n += len(p)
	}
	if n > math.MaxInt32 {
		return errFrame
	}
	head := append(appendUint32(make([]byte, 0, 5), uint32(n)), kind)
	if _, err := w.Write(head); err != nil {
		return err
	}
	for _, p := range payload {
		if _, err := w.Write(p); err != nil {
			return err
		}
	}
	return nil
}

// readFrame reads a frame of up to limit bytes. It allocates as the bytes come in, not what their number claims.
func readFrame(r io.Reader, limit int64) (kind byte, payload []byte, err error) {
	var head [5]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return 0, nil, err
	}
	n := int64(binary.LittleEndian.Uint32(head[:]))
	if n > limit {
		return 0, nil, errFrame
	}
	if n <= 1<<20 {
		payload = make([]byte, n)
		_, err = io.ReadFull(r, payload)
		return head[4], payload, err
	}
	var b bytes.Buffer
	if got, err := io.CopyN(&b, r, n); got < n {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return 0, nil, err
	}
	return head[4], b.Bytes(), nil
}
