// Package web is the page of `quern serve --db FILE`: ask a database, watch each step, look at the rows.
//
// The page is plain HTML, CSS and JavaScript inside the binary and asks nothing from outside. What the model or the
// database says reaches it as JSON and is shown as text only.
package web

import (
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"

	"quern/internal/history"
	"quern/sqlguard"
)

// Source is what the page shows: a database with a model that answers.
type Source interface {
	About() About
	// Ask answers a question, continuing an earlier conversation unless its id is "". Steps are handed to step as they
	// happen. What the model did wrong is in the Answer; an error means that our side broke or ctx ended.
	Ask(ctx context.Context, question, conversation string, step func(Step)) (Answer, error)
	Schema(ctx context.Context) (sqlguard.Schema, error)
	// Export runs sql under the guard and writes its whole result as "csv" or "json".
	Export(ctx context.Context, sql, format string, w io.Writer) error
	History(ctx context.Context) ([]history.Question, error)
}

// About names what is served.
type About struct {
	Database string `json:"database"` // base name of the file
	Model    string `json:"model"`
	Note     string `json:"note,omitempty"`
}

// Step is something that happened on the way to an answer. Kind is "think", "text", "call" or "observation"; the first
// two come in pieces.
type Step struct {
	Kind string `json:"kind"`
	Text string `json:"text"`
}

// Answer is what a question came to.
type Answer struct {
	SQL          string          // "" when there was none
	Result       sqlguard.Result // of SQL
	Notes        []string        // for a person to read: why there is no answer, what was cut
	Failed       bool            // there is no result
	Foot         string          // calls, tokens, seconds
	Conversation string          // id to go on with
}

//go:embed static
var embedded embed.FS

const (
	maxQuestion = 64 << 10
	// policy lets the page load its own files and nothing else. blob: is where downloads are put together.
	policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)

// Handler serves the page at / and its data below /api/.
func Handler(source Source) http.Handler {
	static, err := fs.Sub(embedded, "static")
	if err != nil {
		panic(err) // embedded at build time
	}
	h := handler{source}
	mux := http.NewServeMux()
	mux.Handle("GET /", http.FileServerFS(static))
	mux.HandleFunc("GET /api/about", h.about)
	mux.HandleFunc("GET /api/schema", h.schema)
	mux.HandleFunc("GET /api/history", h.history)
	mux.HandleFunc("POST /api/ask", h.ask)
	mux.HandleFunc("POST /api/export", h.export)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Security-Policy", policy)
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Referrer-Policy", "no-referrer")
		mux.ServeHTTP(w, r)
	})
}

type handler struct{ source Source }

func (h handler) about(w http.ResponseWriter, _ *http.Request) { reply(w, h.source.About()) }

func (h handler) history(w http.ResponseWriter, r *http.Request) {
	questions, err := h.source.History(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	if questions == nil {
		questions = []history.Question{}
	}
	reply(w, map[string]any{"questions": questions})
}

func (h handler) schema(w http.ResponseWriter, r *http.Request) {
	schema, err := h.source.Schema(r.Context())
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	reply(w, map[string]any{"tables": tables(schema)})
}

// ask streams the steps of a question and its answer as server-sent events.
func (h handler) ask(w http.ResponseWriter, r *http.Request) {
	var request struct{ Question, Conversation string }
	if err := decode(w, r, &request); err != nil || request.Question == "" {
		fail(w, http.StatusBadRequest, errors.Join(err, errors.New(`the body must be {"question": "…", "conversation": "…"}`)))
		return
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("Cache-Control", "no-cache")
	flush := http.NewResponseController(w)
	send := func(event string, data any) {
		text, err := json.Marshal(data)
		if err == nil {
			fmt.Fprintf(w, "event: %s\ndata: %s\n\n", event, text)
			flush.Flush() // the reader has gone when this fails: r.Context() ends the work
		}
	}
	answer, err := h.source.Ask(r.Context(), request.Question, request.Conversation, func(s Step) { send("step", s) })
	if err != nil {
		send("error", map[string]string{"error": err.Error()})
		return
	}
	send("answer", encode(answer))
}

func (h handler) export(w http.ResponseWriter, r *http.Request) {
	var request struct{ SQL, Format string }
	if err := decode(w, r, &request); err != nil {
		fail(w, http.StatusBadRequest, err)
		return
	}
	types := map[string]string{"csv": "text/csv; charset=utf-8", "json": "application/json"}
	kind, ok := types[request.Format]
	if !ok {
		fail(w, http.StatusBadRequest, fmt.Errorf("format %q: want csv or json", request.Format))
		return
	}
	out := &late{w: w, kind: kind}
	if err := h.source.Export(r.Context(), request.SQL, request.Format, out); err != nil && !out.begun {
		fail(w, http.StatusUnprocessableEntity, err)
	}
}

// late sets the content type at the first write, so that an error before it can still be told.
type late struct {
	w     http.ResponseWriter
	kind  string
	begun bool
}

func (l *late) Write(b []byte) (int, error) {
	if !l.begun {
		l.begun = true
		l.w.Header().Set("Content-Type", l.kind)
	}
	return l.w.Write(b)
}

func decode(w http.ResponseWriter, r *http.Request, into any) error {
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind != "application/json" {
		return errors.New("the body must be sent as application/json") // which no foreign page can do unasked
	}
	return json.NewDecoder(http.MaxBytesReader(w, r.Body, maxQuestion)).Decode(into)
}

func reply(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v) // the reader has gone when this fails
}

func fail(w http.ResponseWriter, status int, err error) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(map[string]string{"error": err.Error()})
}
