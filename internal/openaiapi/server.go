// Package openaiapi answers OpenAI's HTTP API (chat completions, completions, models) from a model in this process.
package openaiapi

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"quern/engine"
)

// Config says what is served.
type Config struct {
	Engine   *engine.Engine
	Template *engine.ChatTemplate // nil: chat completions are refused
	Name     string               // the model's name in answers
	// Parse reads the tool calls out of a text that begins with the first of them.
	Parse func(text string) []Call
	// Temperature is used where a request names none.
	Temperature float64
	// MaxWaiting is how many requests may wait for a lane before further ones are turned away (429); 0 is 64.
	MaxWaiting int
	// Timeout bounds a request from its arrival to its last byte; 0 sets no bound.
	Timeout time.Duration
	Log     *slog.Logger
}

// Call is a tool call that the model wrote; Arguments is JSON.
type Call struct{ Name, Arguments string }

// maxBody bounds a request's size: a long conversation fits, a bomb does not.
const maxBody = 16 << 20

// Server is an http.Handler for /v1/… . It may serve many requests at once; the engine seats them in its lanes.
type Server struct {
	Config
	mux     *http.ServeMux
	active  atomic.Int64
	metrics metrics
}

// New makes a Server.
func New(c Config) *Server {
	if c.MaxWaiting == 0 {
		c.MaxWaiting = 64
	}
	s := &Server{Config: c, mux: http.NewServeMux()}
	s.mux.HandleFunc("GET /v1/models", s.models)
	s.mux.HandleFunc("GET /v1/models/{id...}", s.model)
	s.mux.HandleFunc("POST /v1/chat/completions", s.admit(s.chat))
	s.mux.HandleFunc("POST /v1/completions", s.admit(s.completions))
	s.mux.HandleFunc("/v1/", func(w http.ResponseWriter, r *http.Request) {
		writeError(w, failure(http.StatusNotFound, "invalid_request_error", "unknown_url", "unknown request: %s %s; there are GET /v1/models, POST /v1/chat/completions and POST /v1/completions", r.Method, r.URL.Path))
	})
	return s
}

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) { s.mux.ServeHTTP(w, r) }

// admit turns requests away when too many wait, and answers with the error that a handler returns before it has
// written anything.
func (s *Server) admit(handle func(w http.ResponseWriter, r *http.Request, body []byte) error) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		start := time.Now()
		out := &counting{ResponseWriter: w}
		defer func() { s.metrics.request(out.status, time.Since(start)) }()
		if waiting := s.active.Add(1) - int64(s.Engine.Stats().Lanes); waiting > int64(s.MaxWaiting) {
			s.active.Add(-1)
			out.Header().Set("Retry-After", "1")
			writeError(out, failure(http.StatusTooManyRequests, "rate_limit_error", "overloaded", "%d requests wait already; try again", waiting-1))
			return
		}
		defer s.active.Add(-1)
		ctx, cancel := s.limited(r.Context())
		defer cancel()
		body, err := s.body(out, r)
		if err != nil {
			writeError(out, asAPIError(err))
			return
		}
		if err := handle(out, r.WithContext(ctx), body); err != nil && r.Context().Err() == nil {
			writeError(out, asAPIError(err))
		}
	}
}

// limited is ctx under the time limit of a request. What ends by it gets, as the context's cause, the error to answer.
func (s *Server) limited(ctx context.Context) (context.Context, context.CancelFunc) {
	if s.Timeout <= 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeoutCause(ctx, s.Timeout, s.timedOut())
}

func (s *Server) timedOut() *apiError {
	return failure(http.StatusGatewayTimeout, "server_error", "timeout", "the request took longer than %v, this server's limit (--request-timeout); ask for fewer tokens", s.Timeout)
}

// body reads what was sent, within the time limit: a connection that trickles must not hold a place for ever.
func (s *Server) body(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	conn := http.NewResponseController(w)
	if s.Timeout > 0 {
		conn.SetReadDeadline(time.Now().Add(s.Timeout)) // an error means that no connection is behind w
	}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if errors.Is(err, os.ErrDeadlineExceeded) {
		w.Header().Set("Connection", "close") // the deadline stays, so that nothing waits for the rest
		return nil, s.timedOut()
	}
	conn.SetReadDeadline(time.Time{})
	return body, err
}

// asAPIError says in OpenAI's terms what went wrong; what is not the client's fault is a 500 without inner details.
func asAPIError(err error) *apiError {
	var known *apiError
	var tooBig *http.MaxBytesError
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &tooBig):
		return failure(http.StatusRequestEntityTooLarge, "invalid_request_error", "too_large", "the request is over %d bytes", tooBig.Limit)
	case errors.Is(err, engine.ErrContextFull):
		return failure(http.StatusBadRequest, "invalid_request_error", "context_length_exceeded", "%v", err)
	case errors.Is(err, engine.ErrTemplate):
		return invalid("messages", "the chat template refuses these messages: %v", err)
	default:
		return failure(http.StatusInternalServerError, "server_error", "internal", "%v", err)
	}
}

// counting remembers the status that was sent.
type counting struct {
	http.ResponseWriter
	status int
}

func (c *counting) WriteHeader(status int) {
	if c.status == 0 {
		c.status = status
	}
	c.ResponseWriter.WriteHeader(status)
}

func (c *counting) Write(b []byte) (int, error) {
	if c.status == 0 {
		c.status = http.StatusOK
	}
	return c.ResponseWriter.Write(b)
}

func (c *counting) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func writeError(w http.ResponseWriter, e *apiError) {
	if e.status == http.StatusGatewayTimeout {
		w.Header().Set("X-Should-Retry", "false") // OpenAI's clients would ask for the same long work again
	}
	writeJSON(w, e.status, map[string]any{"error": e})
}

func writeJSON(w http.ResponseWriter, status int, v any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	json.NewEncoder(w).Encode(v) // the client has gone when this fails
}

// read decodes a request's body.
func read(body []byte, into any) error {
	err := json.Unmarshal(body, into)
	var syntax *json.SyntaxError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &syntax):
		return invalid("", "the body is not JSON: %v", err)
	case errors.As(err, &kind):
		return invalid(kind.Field, "%s must be a %s, not a %s", kind.Field, kind.Type, kind.Value)
	default:
		return invalid("", "%v", err)
	}
}

// events writes a stream of server-sent events.
type events struct {
	w     http.ResponseWriter
	flush *http.ResponseController
	begun bool
}

func (e *events) send(v any) error {
	if !e.begun {
		e.begun = true
		e.w.Header().Set("Content-Type", "text/event-stream")
		e.w.Header().Set("Cache-Control", "no-cache")
	}
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := fmt.Fprintf(e.w, "data: %s\n\n", data); err != nil {
		return err
	}
	return e.flush.Flush()
}

func (e *events) done() error {
	if _, err := io.WriteString(e.w, "data: [DONE]\n\n"); err != nil {
		return err
	}
	return e.flush.Flush()
}

// fail tells a client of an error when the stream may have begun already.
func (e *events) fail(err error) error {
	if !e.begun {
		return err
	}
	return e.send(map[string]any{"error": asAPIError(err)})
}

func (s *Server) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, map[string]any{"object": "list", "data": []any{s.modelEntry()}})
}

func (s *Server) model(w http.ResponseWriter, r *http.Request) {
	if err := s.checkModel(r.PathValue("id")); err != nil {
		writeError(w, asAPIError(err))
		return
	}
	writeJSON(w, http.StatusOK, s.modelEntry())
}

func (s *Server) modelEntry() map[string]any {
	return map[string]any{"id": s.Name, "object": "model", "created": started.Unix(), "owned_by": "quern"}
}

var started = time.Now()

// checkModel refuses a name that is not served here; no name at all means the one model.
func (s *Server) checkModel(name string) error {
	if name == "" || name == s.Name {
		return nil
	}
	e := failure(http.StatusNotFound, "invalid_request_error", "model_not_found", "no model %q here; this server runs %q", name, s.Name)
	return e
}

// generate runs one generation and hands its events to take: each token, and what text comes with the end. An error of
// take cancels it.
func (s *Server) generate(ctx context.Context, req engine.Request, take func(engine.Event) error) (engine.Result, error) {
	if ctx.Err() != nil {
		return engine.Result{}, context.Cause(ctx)
	}
	stream, err := s.Engine.Generate(ctx, req)
	if err != nil {
		return engine.Result{}, err
	}
	for event, err := range stream.Events() {
		if err != nil {
			return engine.Result{}, err
		}
		if event.Kind == engine.EventToken || event.Text != "" {
			if err := take(event); err != nil {
				return engine.Result{}, err
			}
		}
		if event.Kind == engine.EventDone {
			s.metrics.generation(event.Result.Usage)
			if event.Result.Stop == engine.StopCancelled {
				return engine.Result{}, context.Cause(ctx)
			}
			return *event.Result, nil
		}
	}
	return engine.Result{}, context.Cause(ctx)
}
