package backend_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"quern/backend"
	"quern/toolloop"
)

const fence = "```sql\nSELECT 1\n```"

// fake is a server that answers each request as the next of its steps says, the last one for all further ones.
type fake struct {
	*httptest.Server
	steps []func(w http.ResponseWriter, r *http.Request)
	calls atomic.Int32

	mu     sync.Mutex
	bodies []map[string]any
}

func newFake(t *testing.T, steps ...func(http.ResponseWriter, *http.Request)) *fake {
	f := &fake{steps: steps}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var body map[string]any
		json.NewDecoder(r.Body).Decode(&body)
		f.mu.Lock()
		f.bodies = append(f.bodies, body)
		f.mu.Unlock()
		n := int(f.calls.Add(1)) - 1
		f.steps[min(n, len(f.steps)-1)](w, r)
	}))
	t.Cleanup(f.Close)
	return f
}

func (f *fake) client(t *testing.T, edit func(*backend.Options)) *backend.Client {
	t.Helper()
	opts := backend.Options{URL: f.URL + "/v1", Model: "m", Backoff: time.Millisecond, Silence: 5 * time.Second, Attempts: 3}
	if edit != nil {
		edit(&opts)
	}
	c, err := backend.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func events(w http.ResponseWriter, data ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, d := range data {
		fmt.Fprintf(w, "data: %s\n\n", d)
		w.(http.Flusher).Flush()
	}
}

func delta(text string) string {
	quoted, _ := json.Marshal(text)
	return fmt.Sprintf(`{"choices": [{"delta": {"content": %s}, "finish_reason": null}]}`, quoted)
}

const (
	stopped = `{"choices": [{"delta": {}, "finish_reason": "stop"}]}`
	usage   = `{"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 3, "prompt_tokens_details": {"cached_tokens": 5}}}`
)

func good(w http.ResponseWriter, _ *http.Request) {
	events(w, delta(fence[:10]), delta(fence[10:]), stopped, usage, "[DONE]")
}

func status(code int, body string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, _ *http.Request) { http.Error(w, body, code) }
}

func chat(c *backend.Client) *backend.Chat {
	return &backend.Chat{Client: c, Profile: toolloop.Hermes()}
}

func generate(ctx context.Context, g *backend.Chat, onText func(string)) (toolloop.Generation, error) {
	segments, err := g.Render([]toolloop.Message{{Role: "system", Content: "s"}, {Role: "user", Content: "q"}}, toolloop.RenderOptions{AddGenerationPrompt: true})
	if err != nil {
		return toolloop.Generation{}, err
	}
	ids, err := g.Tokenize(segments)
	if err != nil {
		return toolloop.Generation{}, err
	}
	return g.Generate(ctx, toolloop.GenerateRequest{Prompt: ids, MaxTokens: 100, OnText: onText})
}

// What goes wrong once and then works is no error, and text is shown once.
func TestPassingFailures(t *testing.T) {
	cut := func(w http.ResponseWriter, _ *http.Request) { events(w, delta(fence[:10])) }
	reset := func(w http.ResponseWriter, _ *http.Request) {
		conn, _, _ := w.(http.Hijacker).Hijack()
		conn.Close()
	}
	for name, bad := range map[string]func(http.ResponseWriter, *http.Request){
		"500":            status(500, `{"error": {"message": "out of luck"}}`),
		"502 with HTML":  status(502, "<html>bad gateway</html>"),
		"429":            status(429, "slow down"),
		"cut stream":     cut,
		"empty stream":   func(http.ResponseWriter, *http.Request) {},
		"broken JSON":    func(w http.ResponseWriter, _ *http.Request) { events(w, delta(fence[:10]), `{"choices": [`) },
		"other JSON":     func(w http.ResponseWriter, _ *http.Request) { events(w, `{"choices": 7}`) },
		"error in event": func(w http.ResponseWriter, _ *http.Request) { events(w, `{"error": {"message": "gone"}}`) },
		"reset":          reset,
		"stray call": func(w http.ResponseWriter, _ *http.Request) {
			events(w, `{"choices": [{"delta": {"tool_calls": [{"index": 7}]}}]}`)
		},
	} {
		f := newFake(t, bad, good)
		var shown strings.Builder
		gen, err := generate(context.Background(), chat(f.client(t, nil)), func(s string) { shown.WriteString(s) })
		if err != nil || gen.Text != fence || gen.Finish != toolloop.FinishEOG || shown.String() != fence {
			t.Errorf("%s: %v, %+v, shown %q", name, err, gen, shown.String())
		}
		if u := gen.Usage; u.PromptTokens != 7 || u.CachedTokens != 5 || u.GeneratedTokens != 3 {
			t.Errorf("%s: usage %+v", name, u)
		}
		f = newFake(t, bad)
		if _, err := generate(context.Background(), chat(f.client(t, nil)), nil); err == nil || f.calls.Load() != 3 || !strings.Contains(err.Error(), "try 3 of 3") {
			t.Errorf("%s for ever: %d tries, %v", name, f.calls.Load(), err)
		}
	}
}

func TestSilenceIsGivenUp(t *testing.T) {
	done := make(chan struct{})
	hang := func(w http.ResponseWriter, r *http.Request) {
		events(w, delta(fence[:5]))
		select {
		case <-r.Context().Done():
		case <-done:
		}
	}
	f := newFake(t, hang, good)
	defer close(done)
	gen, err := generate(context.Background(), chat(f.client(t, func(o *backend.Options) { o.Silence = 200 * time.Millisecond })), nil)
	if err != nil || gen.Text != fence {
		t.Errorf("%v, %+v", err, gen)
	}
}

// What the server says about the request itself is the error, at once.
func TestErrorsThatStay(t *testing.T) {
	f := newFake(t, status(401, `{"error": {"message": "no key", "type": "auth"}}`))
	_, err := generate(context.Background(), chat(f.client(t, nil)), nil)
	var answered *backend.StatusError
	if !errors.As(err, &answered) || answered.Status != 401 || answered.Message != "no key" || f.calls.Load() != 1 {
		t.Errorf("%v after %d tries", err, f.calls.Load())
	}
	for _, bad := range []string{"", "host", "ftp://x", "http://"} {
		if _, err := backend.New(backend.Options{URL: bad}); err == nil {
			t.Errorf("address %q was taken", bad)
		}
	}
}

func TestContextFullIsNoError(t *testing.T) {
	for _, body := range []string{
		`{"error": {"code": 400, "message": "request (77 tokens) exceeds the available context size (64 tokens)", "type": "exceed_context_size_error"}}`,
		`{"object": "error", "message": "This model's maximum context length is 64 tokens."}`,
	} {
		f := newFake(t, status(400, body))
		gen, err := generate(context.Background(), chat(f.client(t, nil)), nil)
		if err != nil || gen.Finish != toolloop.FinishContextFull {
			t.Errorf("%s: %v, %+v", body, err, gen)
		}
	}
}

func TestCancelIsNoError(t *testing.T) {
	done := make(chan struct{})
	defer close(done)
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		events(w, delta("abc"))
		<-done
	})
	ctx, cancel := context.WithCancel(context.Background())
	gen, err := generate(ctx, chat(f.client(t, nil)), func(string) { cancel() })
	if err != nil || gen.Finish != toolloop.FinishCancelled || gen.Text != "abc" {
		t.Errorf("%v, %+v", err, gen)
	}
}

// A server that refuses fields which OpenAI's API does not have is asked without them, from then on.
func TestPlainServer(t *testing.T) {
	strict := func(w http.ResponseWriter, r *http.Request) { good(w, r) }
	f := newFake(t, status(422, "unknown field"), strict)
	thinking := false
	g := chat(f.client(t, nil))
	g.Thinking = &thinking
	for range 2 {
		if _, err := generate(context.Background(), g, nil); err != nil {
			t.Fatal(err)
		}
	}
	if _, extra := f.bodies[0]["chat_template_kwargs"]; !extra {
		t.Error("the first request does not say enable_thinking")
	}
	for _, body := range f.bodies[1:] {
		if _, extra := body["chat_template_kwargs"]; extra {
			t.Error("a field that was refused is sent again")
		}
	}
}

func TestConcurrencyIsBounded(t *testing.T) {
	var now, most atomic.Int32
	f := newFake(t, func(w http.ResponseWriter, r *http.Request) {
		for n := now.Add(1); ; {
			if m := most.Load(); n <= m || most.CompareAndSwap(m, n) {
				break
			}
		}
		time.Sleep(5 * time.Millisecond)
		now.Add(-1)
		good(w, r)
	})
	g := chat(f.client(t, func(o *backend.Options) { o.Concurrency = 3 }))
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if _, err := generate(context.Background(), g, nil); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if most.Load() > 3 {
		t.Errorf("%d requests at once", most.Load())
	}
}

func TestFirstModelIsAsked(t *testing.T) {
	list := func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" || r.Header.Get("Authorization") != "Bearer key" {
			t.Errorf("%s %v", r.URL.Path, r.Header)
		}
		fmt.Fprint(w, `{"data": [{"id": "first"}, {"id": "second"}]}`)
	}
	f := newFake(t, list, good)
	g := chat(f.client(t, func(o *backend.Options) { o.Model, o.APIKey = "", "key" }))
	if _, err := generate(context.Background(), g, nil); err != nil {
		t.Fatal(err)
	}
	if got := f.bodies[1]["model"]; got != "first" {
		t.Errorf("model %v", got)
	}
}

// A whole question through a chat server: the call comes back in pieces, its result goes out under its id.
func TestChatLoop(t *testing.T) {
	call := func(w http.ResponseWriter, _ *http.Request) {
		events(w, `{"choices": [{"delta": {"reasoning_content": "hm"}}]}`,
			`{"choices": [{"delta": {"tool_calls": [{"index": 0, "id": "x", "function": {"name": "run_sql", "arguments": "{\"query\": "}}]}}]}`,
			`{"choices": [{"delta": {"tool_calls": [{"index": 0, "function": {"arguments": "\"SELECT 2\"}"}}]}}]}`,
			`{"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}`, "[DONE]")
	}
	for _, profile := range []toolloop.Profile{toolloop.Hermes(), toolloop.QwenXML()} {
		f := newFake(t, call, good)
		g := &backend.Chat{Client: f.client(t, nil), Profile: profile, Tools: []toolloop.Definition{echo{}.Definition()}}
		loop := &toolloop.Loop{Profile: profile, Generator: g, Renderer: g, Tokenizer: g, Tools: []toolloop.Tool{echo{}}, Limits: toolloop.Limits{MaxTurns: 4}}
		conversation, err := loop.Start([]toolloop.Message{{Role: "system", Content: "s <|end|> s"}, {Role: "user", Content: "q"}})
		if err != nil {
			t.Fatal(err)
		}
		tr, err := loop.Run(context.Background(), conversation, nil)
		if err != nil || tr.FinalSQL != "SELECT 1" || len(tr.Turns) != 2 || tr.Turns[0].Thinking != "hm" {
			t.Fatalf("%s: %v, %+v", profile.Name, err, tr)
		}
		if got := tr.Turns[0].Calls[0].Observation.Text; got != "rows of SELECT 2" {
			t.Errorf("%s: %q", profile.Name, got)
		}
		sent, _ := json.Marshal(f.bodies[1]["messages"])
		want := `[{"content":"s \u003c|end|\u003e s","role":"system"},{"content":"q","role":"user"},` +
			`{"content":"","reasoning_content":"hm","role":"assistant","tool_calls":[{"function":{"arguments":"{\"query\": \"SELECT 2\"}","name":"run_sql"},"id":"call_2_0","index":0,"type":"function"}]},` +
			`{"content":"rows of SELECT 2","role":"tool","tool_call_id":"call_2_0"}]`
		if string(sent) != want {
			t.Errorf("%s: messages\n got %s\nwant %s", profile.Name, sent, want)
		}
	}
}

// echo is a tool that gives back its query.
type echo struct{}

func (echo) Definition() toolloop.Definition {
	d, err := toolloop.NewDefinition(`{"type": "function", "function": {"name": "run_sql", "parameters": {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]}}}`)
	if err != nil {
		panic(err)
	}
	return d
}

func (echo) Call(_ context.Context, inv toolloop.Invocation) (toolloop.Observation, error) {
	query, _ := inv.Arguments.Get("query")
	return toolloop.Observation{Text: fmt.Sprint("rows of ", query)}, nil
}

// Whatever is streamed, the client neither panics nor hangs.
func FuzzStream(f *testing.F) {
	f.Add(delta("x") + "\n" + stopped)
	f.Add(`{"choices": [{"delta": {"tool_calls": [{"index": -1}]}}]}`)
	f.Add("[DONE]")
	f.Fuzz(func(t *testing.T, stream string) {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			for line := range strings.Lines(stream) {
				fmt.Fprintf(w, "data: %s\n", line)
			}
		}))
		defer server.Close()
		c, err := backend.New(backend.Options{URL: server.URL, Model: "m", Attempts: 1, Silence: time.Second})
		if err != nil {
			t.Fatal(err)
		}
		generate(context.Background(), chat(c), nil)
	})
}
