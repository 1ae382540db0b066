package openaiapi

import (
	"bufio"
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"quern/engine"
)

// testServer serves the demo's model.
func testServer(t *testing.T, timeout time.Duration) *Server {
	t.Helper()
	model, err := engine.Load(context.Background(), "../demo/model.gguf", engine.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { model.Close() })
	e, err := model.NewEngine(context.Background(), engine.EngineOptions{Lanes: 2})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { e.Close() })
	template, err := model.ChatTemplate()
	if err != nil {
		t.Fatal(err)
	}
	return New(Config{Engine: e, Template: template, Name: "demo", Timeout: timeout})
}

func post(handler http.Handler, path, body string) *httptest.ResponseRecorder {
	reply := httptest.NewRecorder()
	handler.ServeHTTP(reply, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
	return reply
}

// errorCode is the code of an error in OpenAI's form.
func errorCode(t *testing.T, text string) string {
	t.Helper()
	var body struct {
		Error struct{ Message, Type, Code string }
	}
	if err := json.Unmarshal([]byte(text), &body); err != nil || body.Error.Message == "" || body.Error.Type == "" {
		t.Fatalf("no error in OpenAI's form: %v: %s", err, text)
	}
	return body.Error.Code
}

// A request that is over its time before it has begun gets an error and nothing else, streamed or not.
func TestTimeLimitBeforeTheFirstToken(t *testing.T) {
	s := testServer(t, time.Nanosecond)
	for path, body := range map[string]string{
		"/v1/chat/completions":          `{"messages": [{"role": "user", "content": "Hello"}]}`,
		"/v1/chat/completions?streamed": `{"messages": [{"role": "user", "content": "Hello"}], "stream": true}`,
		"/v1/completions":               `{"prompt": "SELECT "}`,
		"/v1/completions?streamed":      `{"prompt": "SELECT ", "stream": true}`,
	} {
		reply := post(s, path, body)
		if code := errorCode(t, reply.Body.String()); reply.Code != http.StatusGatewayTimeout || code != "timeout" || reply.Header().Get("X-Should-Retry") != "false" {
			t.Errorf("%s: %d %s", path, reply.Code, reply.Body)
		}
	}
	if reply := post(s, "/v1/completions", `{`); reply.Code != http.StatusBadRequest {
		t.Errorf("half a body: %d", reply.Code)
	}
}

// A stream under way that reaches the limit ends with the error as its last event.
func TestTimeLimitWithinAStream(t *testing.T) {
	s := testServer(t, 20*time.Millisecond)
	handler := s.admit(func(w http.ResponseWriter, r *http.Request, _ []byte) error {
		out := &events{w: w, flush: http.NewResponseController(w)}
		if err := out.send(chatReply{Object: "chat.completion.chunk"}); err != nil {
			return err
		}
		<-r.Context().Done()
		_, err := s.generate(r.Context(), engine.Request{Prompt: []engine.Token{1}, MaxTokens: 5}, func(engine.Event) error { return nil })
		return out.fail(err)
	})
	reply := post(handler, "/", "")
	list := strings.Split(strings.TrimSpace(reply.Body.String()), "\n\n")
	if reply.Code != http.StatusOK || len(list) != 2 || !strings.Contains(list[0], "chat.completion.chunk") {
		t.Fatalf("%d %s", reply.Code, reply.Body)
	}
	if code := errorCode(t, strings.TrimPrefix(list[1], "data: ")); code != "timeout" {
		t.Errorf("the last event is %s", list[1])
	}
}

// A connection that never ends its body gives its place back.
func TestTimeLimitOfABody(t *testing.T) {
	server := httptest.NewServer(testServer(t, 20*time.Millisecond))
	defer server.Close()
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	io.WriteString(conn, "POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{")
	reply, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	body, _ := io.ReadAll(reply.Body)
	if reply.StatusCode != http.StatusGatewayTimeout || errorCode(t, string(body)) != "timeout" {
		t.Errorf("%d %s", reply.StatusCode, body)
	}
}

// Without a limit, and with one that is not reached, requests are answered as ever.
func TestNoTimeLimit(t *testing.T) {
	for _, limit := range []time.Duration{0, time.Hour} {
		s := testServer(t, limit)
		if reply := post(s, "/v1/completions", `{"prompt": "SELECT ", "max_tokens": 3}`); reply.Code != http.StatusOK {
			t.Errorf("limit %v: %d %s", limit, reply.Code, reply.Body)
		}
	}
}

func TestBadRequests(t *testing.T) {
	s := testServer(t, time.Minute)
	for _, c := range []struct {
		path, body, want string
		status           int
	}{
		{"/v1/chat/completions", `{}`, "messages", 400},
		{"/v1/chat/completions", ``, "not JSON", 400},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}]} {`, "not JSON", 400},
		{"/v1/chat/completions", `{"messages": "x"}`, "messages", 400},
		{"/v1/chat/completions", `{"messages": [{"content": "x"}]}`, "role", 400},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}`, "image_url", 400},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "temperature": 9}`, "temperature", 400},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "tool_choice": "required"}`, "tool_choice", 400},
		{"/v1/chat/completions", `{"messages": [{"role": "user", "content": "x"}], "n": 0}`, "n must be", 400},
		{"/v1/completions", `{"prompt": ""}`, "prompt", 400},
		{"/v1/completions", `{"prompt": [99999999]}`, "vocabulary", 400},
		{"/v1/completions", `{"prompt": "x", "max_tokens": -1}`, "max_tokens", 400},
		{"/v1/completions", `{"prompt": "x", "model": "other"}`, "other", 404},
		{"/v1/completions", `{"prompt": "` + strings.Repeat("word ", 20000) + `"}`, "context", 400},
		{"/v1/embeddings", `{}`, "unknown request", 404},
	} {
		reply := post(s, c.path, c.body)
		errorCode(t, reply.Body.String())
		if reply.Code != c.status || !strings.Contains(reply.Body.String(), c.want) {
			t.Errorf("%s %.80s: %d %s", c.path, c.body, reply.Code, reply.Body)
		}
	}
}
