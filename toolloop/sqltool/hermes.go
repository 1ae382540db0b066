package sqltool

import (
	"context"
	"strings"
	"unicode/utf8"

	"quern/internal/pytext"
	"quern/sqlguard"
	"quern/toolloop"
)

// callHermes does what Oumi's run_sql tool does inside verl's loop.
func (t *Tool) callHermes(ctx context.Context, args *toolloop.Object) (toolloop.Observation, error) {
	args = withoutNulls(args)
	if text := t.definition.SchemaError(args); text != "" {
		obs := t.shown("", "Tool error: "+text)
		obs.Failure = toolloop.FailArguments
		return obs, nil
	}
	value, _ := args.Get(t.query)
	sql, _ := value.(string)
	result, err := t.db.Query(ctx, sql)
	if err != nil {
		return toolloop.Observation{}, err
	}
	obs := t.shown(sql, HermesText(sql, result))
	obs.Rows = len(result.Rows)
	if f := result.Failure; f != nil && f.Kind != sqlguard.NoStatement {
		obs.Failure = failureKind(f)
	}
	return obs, nil
}

func (t *Tool) shown(sql, full string) toolloop.Observation {
	return observation(sql, full, Truncate(full, t.opts.MaxText, t.opts.Side))
}

// withoutNulls drops arguments that are null, as the reference does before it validates.
func withoutNulls(args *toolloop.Object) *toolloop.Object {
	kept := &toolloop.Object{}
	for _, m := range args.Members {
		if m.Value != nil {
			kept.Members = append(kept.Members, m)
		}
	}
	return kept
}

// HermesText is the text of a result as json.dumps wrote it for the model in training, not cut:
// {"columns": […], "rows": [[…]]} or {"error": "…"}. A text without a statement counts as one without rows.
func HermesText(sql string, result sqlguard.Result) string {
	if f := result.Failure; f != nil && f.Kind != sqlguard.NoStatement {
		b := append([]byte(nil), `{"error": `...)
		b = pytext.AppendJSONString(b, escapeInvalid(pythonError(sql, f)))
		return string(append(b, '}'))
	}
	b := append([]byte(nil), `{"columns": [`...)
	for i, c := range result.Columns {
		b = comma(b, i)
		b = pytext.AppendJSONString(b, escapeInvalid(c.Name))
	}
	b = append(b, `], "rows": [`...)
	for i, row := range result.Rows {
		b = append(comma(b, i), '[')
		for j, v := range row {
			b = pytext.AppendJSON(comma(b, j), pythonValue(v))
		}
		b = append(b, ']')
	}
	return string(append(b, "]}"...))
}

func comma(b []byte, i int) []byte {
	if i > 0 {
		return append(b, ", "...)
	}
	return b
}

func pythonValue(v sqlguard.Value) any {
	switch v.Kind {
	case sqlguard.Integer:
		return v.Int
	case sqlguard.Real:
		return v.Real
	case sqlguard.Text:
		return escapeInvalid(v.Data)
	case sqlguard.Blob:
		return hexText(v.Data)
	}
	return nil
}

// pythonError is the message of the exception in Python, where the connection had PRAGMA query_only set, extension
// loading off, and a transaction open.
func pythonError(sql string, f *sqlguard.Failure) string {
	switch {
	case f.Kind == sqlguard.Refused && hasVerb(sql, "VACUUM"):
		return "cannot VACUUM from within a transaction"
	case f.Message == "no such function: load_extension":
		return "not authorized" // the function is left out of the SQLite linked here
	}
	return sqlguard.PythonMessage(f)
}

func hasVerb(sql, verb string) bool {
	sql = strings.TrimSpace(sql)
	return len(sql) >= len(verb) && strings.EqualFold(sql[:len(verb)], verb)
}

const hexDigits = "0123456789abcdef"

func hexText(data string) string {
	b := make([]byte, 0, 2*len(data))
	for i := range len(data) {
		b = append(b, hexDigits[data[i]>>4], hexDigits[data[i]&15])
	}
	return string(b)
}

// escapeInvalid writes each byte that is not part of valid UTF-8 as \xNN, as Python's errors="backslashreplace" does.
func escapeInvalid(s string) string {
	if utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for len(s) > 0 {
		r, n := utf8.DecodeRuneInString(s)
		if r == utf8.RuneError && n == 1 {
			b.WriteString(`\x`)
			b.WriteString(hexText(s[:1]))
		} else {
			b.WriteString(s[:n])
		}
		s = s[n:]
	}
	return b.String()
}
