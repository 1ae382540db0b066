package web

import (
	"context"
	"errors"
	"io"
	"net/http/httptest"
	"strings"
	"testing"

	"quern/internal/history"
	"quern/sqlguard"
)

// fakeSource answers every question with one row, and "broken" with an error.
type fakeSource struct{}

func (fakeSource) About() About { return About{Database: "x.sqlite", Model: "m"} }

func (fakeSource) Ask(_ context.Context, question, conversation string, step func(Step)) (Answer, error) {
	step(Step{Kind: "call", Text: "SELECT 1\n</script>"})
	if question == "broken" {
		return Answer{}, errors.New("our side broke")
	}
	row := []sqlguard.Value{{Kind: sqlguard.Integer, Int: 1 << 60}, {Kind: sqlguard.Null}}
	return Answer{SQL: "SELECT 1", Conversation: conversation + "+", Result: sqlguard.Result{Columns: []sqlguard.Column{{Name: "a"}, {Name: "b"}}, Rows: [][]sqlguard.Value{row}}}, nil
}

func (fakeSource) Schema(context.Context) (sqlguard.Schema, error) { return sqlguard.Schema{}, nil }

func (fakeSource) Export(_ context.Context, sql, format string, w io.Writer) error {
	if sql == "" {
		return errors.New("refused")
	}
	_, err := io.WriteString(w, format)
	return err
}

func (fakeSource) History(context.Context) ([]history.Question, error) { return nil, nil }

func TestHandler(t *testing.T) {
	handler := Handler(fakeSource{})
	const asJSON = "application/json"
	for _, c := range []struct {
		method, path, kind, body string
		status                   int
		want                     string
	}{
		{"GET", "/", "", "", 200, "<title>Quern</title>"},
		{"GET", "/app.js", "", "", 200, "use strict"},
		{"GET", "/web.go", "", "", 404, ""},
		{"GET", "/api/about", "", "", 200, `"database":"x.sqlite"`},
		{"GET", "/api/history", "", "", 200, `{"questions":[]}`},
		{"GET", "/api/ask", "", "", 404, ""},
		{"POST", "/api/ask", asJSON, `{"question": "q", "conversation": "c"}`, 200, `"conversation":"c+"`},
		{"POST", "/api/ask", asJSON + "; charset=utf-8", `{"question": "q"}`, 200, `"v":"1152921504606846976"`}, // beyond what JavaScript's numbers hold
		{"POST", "/api/ask", asJSON, `{"question": "q"}`, 200, `\u003c/script\u003e`},
		{"POST", "/api/ask", asJSON, `{"question": "broken"}`, 200, "event: error\ndata: {\"error\":\"our side broke\"}"},
		{"POST", "/api/ask", asJSON, `{}`, 400, "the body must be"},
		{"POST", "/api/ask", "text/plain", `{"question": "q"}`, 400, "application/json"}, // what a foreign page's form can send
		{"POST", "/api/ask", asJSON, `{"question": "` + strings.Repeat("x", maxQuestion) + `"}`, 400, "too large"},
		{"POST", "/api/export", asJSON, `{"sql": "SELECT 1", "format": "csv"}`, 200, "csv"},
		{"POST", "/api/export", asJSON, `{"sql": "SELECT 1", "format": "exe"}`, 400, "want csv or json"},
		{"POST", "/api/export", asJSON, `{"format": "csv"}`, 422, "refused"},
	} {
		request := httptest.NewRequest(c.method, "http://x"+c.path, strings.NewReader(c.body))
		if c.kind != "" {
			request.Header.Set("Content-Type", c.kind)
		}
		reply := httptest.NewRecorder()
		handler.ServeHTTP(reply, request)
		if reply.Code != c.status || !strings.Contains(reply.Body.String(), c.want) {
			t.Errorf("%s %s %.60s: %d %s", c.method, c.path, c.body, reply.Code, reply.Body)
		}
		if !strings.Contains(reply.Header().Get("Content-Security-Policy"), "default-src 'none'") {
			t.Errorf("%s %s: no policy", c.method, c.path)
		}
	}
}
