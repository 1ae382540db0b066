// Package binread reads binary formats that nobody has vouched for: every read is checked against the size of the
// input, no length that the input claims is allocated before it is known to be there, and complaints carry the offset.
package binread

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
)

// ErrTruncated is the cause of an Error when the input ends before what it announced.
var ErrTruncated = errors.New("the file ends too early")

// Error is a complaint about the bytes at Offset, counted from the start of the input.
type Error struct {
	Offset int64
	Err    error
}

func (e *Error) Error() string { return fmt.Sprintf("at byte %d: %v", e.Offset, e.Err) }
func (e *Error) Unwrap() error { return e.Err }

const window = 64 << 10

// Reader reads little-endian values in sequence. After the first failure every method returns zero values and Err
// tells the failure, so that a caller may check once per record. It is for one goroutine.
type Reader struct {
	r    io.ReaderAt
	size int64 // of the whole input
	off  int64 // of the next byte
	err  error

	buf      []byte // holds the input from bufStart
	bufStart int64
}

// NewReader reads from the start of r, which is size bytes long.
func NewReader(r io.ReaderAt, size int64) *Reader {
	return &Reader{r: r, size: size}
}

// Offset returns the position of the next byte.
func (r *Reader) Offset() int64 { return r.off }

// Left returns how many bytes the input still has.
func (r *Reader) Left() int64 { return r.size - r.off }

// Err returns the first failure.
func (r *Reader) Err() error { return r.err }

// Fail records a complaint about the current position unless there is an earlier one.
func (r *Reader) Fail(err error) {
	if r.err == nil {
		r.err = &Error{Offset: r.off, Err: err}
	}
}

// take returns the next n bytes, valid until the next call; nil after a failure.
func (r *Reader) take(n int64) []byte {
	if r.err != nil {
		return nil
	}
	if n > r.Left() {
		r.Fail(fmt.Errorf("%w: %d bytes announced, %d left", ErrTruncated, n, r.Left()))
		return nil
	}
	if start := r.off - r.bufStart; start < 0 || start+n > int64(len(r.buf)) {
		if !r.fill(max(n, min(window, r.Left()))) {
			return nil
		}
	}
	start := r.off - r.bufStart
	r.off += n
	return r.buf[start : start+n]
}

func (r *Reader) fill(n int64) bool {
	if int64(cap(r.buf)) < n {
		r.buf = make([]byte, n)
	}
	r.buf = r.buf[:n]
	r.bufStart = r.off
	if got, err := r.r.ReadAt(r.buf, r.off); got < len(r.buf) {
		r.buf = nil
		if err == io.EOF {
			err = ErrTruncated
		}
		r.Fail(err)
		return false
	}
	return true
}

// U8 reads one byte.
func (r *Reader) U8() uint8 {
	if b := r.take(1); b != nil {
		return b[0]
	}
	return 0
}

// U16 reads two bytes.
func (r *Reader) U16() uint16 {
	if b := r.take(2); b != nil {
		return binary.LittleEndian.Uint16(b)
	}
	return 0
}

// U32 reads four bytes.
func (r *Reader) U32() uint32 {
	if b := r.take(4); b != nil {
		return binary.LittleEndian.Uint32(b)
	}
	return 0
}

// U64 reads eight bytes.
func (r *Reader) U64() uint64 {
	if b := r.take(8); b != nil {
		return binary.LittleEndian.Uint64(b)
	}
	return 0
}

// F32 reads a float.
func (r *Reader) F32() float32 { return math.Float32frombits(r.U32()) }

// F64 reads a double.
func (r *Reader) F64() float64 { return math.Float64frombits(r.U64()) }

// Bytes reads n bytes into a new slice; more than limit or than the input holds is a failure, found before anything
// is allocated.
func (r *Reader) Bytes(n uint64, limit int64) []byte { return r.Append(nil, n, limit) }

// Append reads n bytes to the end of dst, under the rules of Bytes. After a failure it returns nil.
func (r *Reader) Append(dst []byte, n uint64, limit int64) []byte {
	if n > uint64(limit) {
		r.Fail(fmt.Errorf("length %d is above the limit of %d", n, limit))
		return nil
	}
	b := r.take(int64(n))
	if b == nil {
		return nil
	}
	if dst == nil {
		dst = make([]byte, 0, len(b))
	}
	return append(dst, b...)
}
