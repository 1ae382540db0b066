package binread

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestReader(t *testing.T) {
	data := []byte{1, 2, 0, 3, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 128, 63, 'a', 'b', 'c'}
	r := NewReader(bytes.NewReader(data), int64(len(data)))
	if r.U8() != 1 || r.U16() != 2 || r.U32() != 3 || r.U64() != 4 || r.F32() != 1 || string(r.Bytes(2, 10)) != "ab" || r.Err() != nil {
		t.Fatalf("at %d: %v", r.Offset(), r.Err())
	}
	if r.Left() != 1 {
		t.Errorf("%d left", r.Left())
	}
	if r.U32() != 0 || !errors.Is(r.Err(), ErrTruncated) || !strings.Contains(r.Err().Error(), "at byte 21") {
		t.Errorf("beyond the end: %v", r.Err())
	}
	if r.U8() != 0 || r.Bytes(1, 10) != nil {
		t.Error("reading goes on after a failure")
	}
}

// TestLyingLengths: nothing is allocated for a length that the input cannot have.
func TestLyingLengths(t *testing.T) {
	for _, n := range []uint64{5, 1 << 40, 1 << 63, 1<<64 - 1} {
		r := NewReader(bytes.NewReader([]byte("abcd")), 4)
		if b := r.Bytes(n, 1<<50); b != nil || r.Err() == nil {
			t.Errorf("%d bytes of 4: %q", n, b)
		}
	}
	r := NewReader(bytes.NewReader([]byte("abcd")), 4)
	if r.Bytes(4, 3); r.Err() == nil {
		t.Error("the limit was ignored")
	}
	r = NewReader(bytes.NewReader([]byte("abcd")), 100) // the size lies
	if r.Bytes(50, 100); !errors.Is(r.Err(), ErrTruncated) {
		t.Errorf("an input shorter than its size: %v", r.Err())
	}
}

// TestLargerThanTheWindow reads across the edges of what is buffered.
func TestLargerThanTheWindow(t *testing.T) {
	data := bytes.Repeat([]byte("0123456789abcde"), 20000)
	r := NewReader(bytes.NewReader(data), int64(len(data)))
	var got []byte
	for n := uint64(1); r.Left() > 0; n = n*2%100003 + 1 {
		got = append(got, r.Bytes(min(n, uint64(r.Left())), 1<<20)...)
	}
	if r.Err() != nil || !bytes.Equal(got, data) {
		t.Errorf("%d of %d bytes, %v", len(got), len(data), r.Err())
	}
}

func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f")
	data := bytes.Repeat([]byte("0123456789"), 10000)
	if err := os.WriteFile(path, data, 0o644); err != nil {
		t.Fatal(err)
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, at := range [][2]int64{{0, 0}, {0, 10}, {4095, 2}, {4096, 4096}, {5, 99995}, {100000, 0}} {
		if err := f.View(at[0], at[1], func(b []byte) error {
			if !bytes.Equal(b, data[at[0]:at[0]+at[1]]) {
				t.Errorf("%v: wrong bytes", at)
			}
			return nil
		}); err != nil {
			t.Errorf("%v: %v", at, err)
		}
	}
	for _, at := range [][2]int64{{0, 100001}, {100001, 0}, {-1, 5}, {5, -1}, {1 << 62, 1 << 62}} {
		if err := f.View(at[0], at[1], func([]byte) error { t.Errorf("%v: called", at); return nil }); err == nil {
			t.Errorf("%v: no error", at)
		}
	}
	func() {
		defer func() {
			if recover() != "mine" {
				t.Error("a panic of the caller was swallowed")
			}
		}()
		_ = f.View(0, 10, func([]byte) error { panic("mine") })
	}()
	if _, err := Open(t.TempDir()); err == nil || !strings.Contains(err.Error(), "not a regular file") {
		t.Errorf("a folder: %v", err)
	}
}
