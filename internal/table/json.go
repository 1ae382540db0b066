package table

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"quern/sqlguard"
)

// Document is the JSON of a result. Numbers are exact; a real has a point or an exponent, an integer has not. Text is a string,
// bytes that are not UTF-8 as U+FFFD; a blob is {"blob": "hex"}; infinity, which JSON lacks, is {"real": "Infinity"}.
type Document struct {
	Columns   []string            `json:"columns"`
	Types     []string            `json:"types"` // declared, "" for an expression
	Rows      [][]json.RawMessage `json:"rows"`
	Truncated bool                `json:"truncated"` // at least one more row exists
	CutBy     sqlguard.Truncation `json:"cut_by,omitempty"`
}

// NewDocument converts a result.
func NewDocument(r sqlguard.Result) Document {
	d := Document{
		Columns: make([]string, len(r.Columns)), Types: make([]string, len(r.Columns)), Rows: make([][]json.RawMessage, len(r.Rows)),
		Truncated: r.Truncated != sqlguard.Whole, CutBy: r.Truncated,
	}
	for i, c := range r.Columns {
		d.Columns[i], d.Types[i] = c.Name, c.DeclType
	}
	for i, row := range r.Rows {
		d.Rows[i] = make([]json.RawMessage, len(row))
		for j, v := range row {
			d.Rows[i][j] = jsonValue(v)
		}
	}
	return d
}

func writeJSON(w io.Writer, r sqlguard.Result) error { return EncodeJSON(w, NewDocument(r)) }

// EncodeJSON writes v as one line of JSON in which no control character is left: DEL and C1, which JSON allows in strings, are
// escaped as well.
func EncodeJSON(w io.Writer, v any) error {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	_, err := io.WriteString(w, escapeControls(b.String()))
	return err
}

func escapeControls(s string) string {
	if strings.IndexFunc(s, escapable) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if escapable(r) { // inside a string: JSON's own syntax is ASCII without DEL
			b.WriteString(`\u` + hex.EncodeToString([]byte{byte(r >> 8), byte(r)}))
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func escapable(r rune) bool { return r != '\n' && hidden(r) }

func jsonValue(v sqlguard.Value) json.RawMessage {
	switch v.Kind {
	case sqlguard.Integer:
		return json.RawMessage(strconv.FormatInt(v.Int, 10))
	case sqlguard.Real:
		if math.IsInf(v.Real, 0) {
			return json.RawMessage(`{"real":"` + strings.Replace(realText(v.Real), "Inf", "Infinity", 1) + `"}`)
		}
		return json.RawMessage(realText(v.Real))
	case sqlguard.Text:
		return jsonString(v.Data)
	case sqlguard.Blob:
		return json.RawMessage(`{"blob":"` + hex.EncodeToString([]byte(v.Data)) + `"}`)
	}
	return json.RawMessage("null")
}

func jsonString(s string) json.RawMessage {
	if !utf8.ValidString(s) {
		s = strings.ToValidUTF8(s, "\ufffd")
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	e.Encode(s) // a string always encodes
	return bytes.TrimRight(b.Bytes(), "\n")
}
