package sqlguard

import (
	"bytes"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestWireRoundTrip(t *testing.T) {
	limits := Limits{time.Second, 2, 3, 4, 5, 6, 7}
	if got, rest, err := cutLimits(append(appendLimits(nil, limits), "SELECT"...)); got != limits || string(rest) != "SELECT" || err != nil {
		t.Errorf("%+v %q %v", got, rest, err)
	}
	columns := []Column{{"a", "INTEGER"}, {"", ""}, {"\xff\x00", "é"}}
	if got, err := parseColumns(appendColumns(nil, columns)); !reflect.DeepEqual(got, columns) || err != nil {
		t.Errorf("%+v %v", got, err)
	}
	for _, o := range []outcome{{}, {CutByMaxRows, time.Second, nil}, {Whole, 1, &Failure{Kind: SQLError, Message: "\xff", Hint: "h", Code: 1}}} {
		if got, err := parseOutcome(appendOutcome(nil, o)); !reflect.DeepEqual(got, o) || err != nil {
			t.Errorf("%+v, want %+v: %v", got, o, err)
		}
	}
	var b bytes.Buffer
	big := strings.Repeat("x", 3<<20)
	for _, payload := range []string{"", "a", big} {
		if err := writeFrame(&b, 'r', []byte(payload), []byte("end")); err != nil {
			t.Fatal(err)
		}
		if kind, got, err := readFrame(&b, 4<<20); kind != 'r' || string(got) != payload+"end" || err != nil {
			t.Errorf("%c, %d bytes, %v", kind, len(got), err)
		}
	}
	if _, _, err := readFrame(bytes.NewReader([]byte{255, 255, 255, 127, 'r'}), maxFrame); err != errFrame {
		t.Errorf("a frame beyond the limit: %v", err)
	}
	if _, _, err := readFrame(bytes.NewReader([]byte{0, 0, 0, 8, 'r', 1, 2}), maxFrame); err != io.ErrUnexpectedEOF {
		t.Errorf("a frame cut short: %v", err)
	}
}

// FuzzWire reads any bytes as a worker's answer: a worker that went wrong must not harm its parent.
func FuzzWire(f *testing.F) {
	var b bytes.Buffer
	writeFrame(&b, repColumns, appendColumns(nil, []Column{{"a", "b"}}))
	writeFrame(&b, repRows, appendUint32(nil, 2), []byte{1, 1, 2, 3, 4, 5, 6, 7, 8, 3, 1, 0, 0, 0, 'x'})
	writeFrame(&b, repEnd, appendOutcome(nil, outcome{Failure: &Failure{Message: "m"}}))
	f.Add(b.Bytes())
	f.Add([]byte{5, 0, 0, 0, 'r', 255, 255, 255, 255, 5})
	f.Fuzz(func(t *testing.T, answer []byte) {
		in := bytes.NewReader(answer)
		var r Result
		for {
			kind, payload, err := readFrame(in, 1<<20)
			if err != nil || r.add(kind, payload) != nil {
				break
			}
		}
		for _, row := range r.Rows {
			if len(row) == 0 {
				t.Error("a row without cells")
			}
		}
		var d Decision
		_ = decode(answer, &d)
		if rows, err := unpackRows(string(answer), 3, 2); err == nil && len(rows) != 3 {
			t.Error("rows are missing")
		}
	})
}
