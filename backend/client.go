// Package backend lets a model that another program serves take part in the tool loop: any server with OpenAI's
// /v1/completions or /v1/chat/completions (vLLM, SGLang, llama-server), on one machine or on a cluster.
//
// [Completions] sends the conversation as token ids and gets ids back, so that the loop is the same as with the engine
// in this process; it needs the model's vocabulary here. [Chat] needs nothing but the server, which then applies the
// template itself; ids, and with them exactness, are lost.
//
// A request that fails for a reason that may pass (no connection, 429, 5xx, silence, a stream cut short, an answer that
// is no JSON) is tried again; what the server says about a bad request is the error. All types may be used from many
// goroutines.
package backend

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// Options say how to reach a server. Only URL is needed.
type Options struct {
	URL         string        // with or without the final /v1
	Model       string        // as the server names it; "" asks for its first one
	APIKey      string        // sent as a bearer token
	Silence     time.Duration // longest wait for the next piece of an answer; 0: 2 minutes
	Attempts    int           // tries of one request; 0: 5
	Backoff     time.Duration // wait before the second try, doubled for each further one; 0: 500 ms
	Concurrency int           // requests at once; 0: 16
	HTTP        *http.Client  // nil: http.DefaultClient without its timeout
	Log         *slog.Logger  // nil: no log
}

// Client talks to one server.
type Client struct {
	opts  Options
	base  string
	slots chan struct{}
	model atomic.Pointer[string]
	plain atomic.Bool // the server refuses fields that OpenAI's API does not have
}

// New checks the options; it does not connect.
func New(opts Options) (*Client, error) {
	base := strings.TrimSuffix(strings.TrimRight(opts.URL, "/"), "/v1")
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("backend: %q is no address of a server; it has the form http://host:port", opts.URL)
	}
	if opts.Silence <= 0 {
		opts.Silence = 2 * time.Minute
	}
	if opts.Attempts <= 0 {
		opts.Attempts = 5
	}
	if opts.Backoff <= 0 {
		opts.Backoff = 500 * time.Millisecond
	}
	if opts.Concurrency <= 0 {
		opts.Concurrency = 16
	}
	if opts.HTTP == nil {
		opts.HTTP = &http.Client{}
	}
	if opts.Log == nil {
		opts.Log = slog.New(slog.DiscardHandler)
	}
	c := &Client{opts: opts, base: base, slots: make(chan struct{}, opts.Concurrency)}
	if opts.Model != "" {
		c.model.Store(&opts.Model)
	}
	return c, nil
}

// Model is the name of the model that is asked: the one in the options, or the first that the server lists.
func (c *Client) Model(ctx context.Context) (string, error) {
	if m := c.model.Load(); m != nil {
		return *m, nil
	}
	var list struct{ Data []struct{ ID string } }
	err := c.retry(ctx, "/v1/models", func(ctx context.Context, touch func()) error {
		body, err := c.do(ctx, http.MethodGet, "/v1/models", nil)
		if err != nil {
			return err
		}
		defer body.Close()
		if err := json.NewDecoder(body).Decode(&list); err != nil {
			return passing{fmt.Errorf("the answer is no JSON: %w", err)}
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	if len(list.Data) == 0 {
		return "", fmt.Errorf("backend: %s lists no model", c.base)
	}
	c.model.Store(&list.Data[0].ID)
	return list.Data[0].ID, nil
}

// passing marks an error that may be gone when the request is made again.
type passing struct{ error }

func (p passing) Unwrap() error { return p.error }

// StatusError is what a server answered instead of a result.
type StatusError struct {
	Status  int
	Type    string // the server's own word for the kind of error
	Message string
	after   time.Duration // Retry-After
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("the server answers %d %s: %s", e.Status, http.StatusText(e.Status), e.Message)
}

// contextFull says whether the server refused the request because it is too long for the model's context.
func (e *StatusError) contextFull() bool {
	text := strings.ToLower(e.Type + " " + e.Message)
	return e.Status == http.StatusBadRequest && strings.Contains(text, "context") &&
		(strings.Contains(text, "exceed") || strings.Contains(text, "maximum") || strings.Contains(text, "longer"))
}

// stream posts a request for a streamed answer and hands each event's data to onEvent. begin is called before each try.
// An error of onEvent that is no passing one ends the tries.
func (c *Client) stream(ctx context.Context, path string, request any, begin func(), onEvent func(data []byte) error) error {
	body, err := json.Marshal(request)
	if err != nil {
		return err
	}
	return c.retry(ctx, path, func(ctx context.Context, touch func()) error {
		begin()
		answer, err := c.do(ctx, http.MethodPost, path, body)
		if err != nil {
			return err
		}
		defer answer.Close()
		return readEvents(answer, func(data []byte) error {
			touch()
			return onEvent(data)
		})
	})
}

// retry runs an exchange until it succeeds, fails for good or has been tried often enough. A slot is held meanwhile.
func (c *Client) retry(ctx context.Context, path string, exchange func(ctx context.Context, touch func()) error) error {
	select {
	case c.slots <- struct{}{}:
		defer func() { <-c.slots }()
	case <-ctx.Done():
		return ctx.Err()
	}
	wait := c.opts.Backoff
	for attempt := 1; ; attempt++ {
		err := c.once(ctx, exchange)
		if err == nil || ctx.Err() != nil {
			return err
		}
		if !mayPass(err) || attempt >= c.opts.Attempts {
			return fmt.Errorf("backend: %s%s: %w (try %d of %d)", c.base, path, err, attempt, c.opts.Attempts)
		}
		pause := wait + rand.N(wait/2+1)
		var status *StatusError
		if errors.As(err, &status) && status.after > 0 {
			pause = status.after
		}
		c.opts.Log.Warn("the backend failed; trying again", "server", c.base, "error", err, "try", attempt, "wait", pause.Round(time.Millisecond))
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return ctx.Err()
		}
		wait *= 2
	}
}

var errSilence = errors.New("no answer")

// once runs one exchange, which has to call touch more often than the longest silence.
func (c *Client) once(ctx context.Context, exchange func(ctx context.Context, touch func()) error) error {
	attempt, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	timer := time.AfterFunc(c.opts.Silence, func() { cancel(errSilence) })
	defer timer.Stop()
	err := exchange(attempt, func() { timer.Reset(c.opts.Silence) })
	if err != nil && context.Cause(attempt) == errSilence {
		return passing{fmt.Errorf("%w for %s", errSilence, c.opts.Silence)}
	}
	return err
}

func mayPass(err error) bool {
	var status *StatusError
	if errors.As(err, &status) {
		return status.Status == http.StatusTooManyRequests || status.Status == http.StatusRequestTimeout || status.Status >= 500
	}
	return errors.As(err, new(passing))
}

// do makes one request and returns the body of a good answer.
func (c *Client) do(ctx context.Context, method, path string, body []byte) (io.ReadCloser, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.base+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	if c.opts.APIKey != "" {
		req.Header.Set("Authorization", "Bearer "+c.opts.APIKey)
	}
	resp, err := c.opts.HTTP.Do(req)
	if err != nil {
		return nil, passing{err}
	}
	if resp.StatusCode/100 == 2 {
		return resp.Body, nil
	}
	defer resp.Body.Close()
	return nil, statusError(resp)
}

// statusError reads the error in the forms in which servers write it.
func statusError(resp *http.Response) *StatusError {
	text, _ := io.ReadAll(io.LimitReader(resp.Body, 1<<16)) // what is missing of it is no matter
	e := &StatusError{Status: resp.StatusCode, Message: strings.TrimSpace(string(text))}
	var answer struct {
		Error   json.RawMessage
		Message string
	}
	if json.Unmarshal(text, &answer) == nil {
		var inner struct{ Message, Type string }
		if json.Unmarshal(answer.Error, &inner) == nil && inner.Message != "" {
			e.Message, e.Type = inner.Message, inner.Type
		} else if answer.Message != "" {
			e.Message = answer.Message
		}
	}
	const longest = 500
	if len(e.Message) > longest {
		e.Message = strings.ToValidUTF8(e.Message[:longest], "") + "…"
	}
	if seconds, err := strconv.Atoi(resp.Header.Get("Retry-After")); err == nil && seconds > 0 && seconds < 3600 {
		e.after = time.Duration(seconds) * time.Second
	}
	return e
}

// readEvents reads server-sent events up to [DONE]. A stream that ends before is one that was cut.
func readEvents(r io.Reader, onEvent func(data []byte) error) error {
	const longestLine = 16 << 20
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		data, isData := bytes.CutPrefix(lines.Bytes(), []byte("data:"))
		if !isData {
			continue
		}
		data = bytes.TrimSpace(data)
		if string(data) == "[DONE]" {
			return nil
		}
		if err := onEvent(data); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil {
		return passing{fmt.Errorf("the stream broke: %w", err)}
	}
	return passing{errors.New("the stream was cut short")}
}

// decodeEvent reads an event's JSON, which may also be an error that the server found while it generated.
func decodeEvent(data []byte, into any) error {
	var failure struct {
		Error *struct {
			Message, Type string
			Code          any
		}
	}
	if err := json.Unmarshal(data, &failure); err != nil {
		return passing{fmt.Errorf("an event is no JSON: %w", err)}
	}
	if f := failure.Error; f != nil {
		return &StatusError{Status: http.StatusInternalServerError, Type: f.Type, Message: f.Message}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return passing{fmt.Errorf("an event has another form than it should: %w", err)}
	}
	return nil
}
