package backend_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unicode/utf8"

	"quern/backend"
	"quern/engine"
	"quern/internal/enginegen"
	"quern/internal/testenv"
	"quern/toolloop"
)

// llamaServer starts llama.cpp's own server on loopback and returns its address.
func llamaServer(t *testing.T, model string, args ...string) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().(*net.TCPAddr)
	listener.Close()
	command := exec.Command(testenv.Tool(t, "llama-server"), append([]string{
		"-m", model, "--host", "127.0.0.1", "--port", fmt.Sprint(address.Port), "-c", "8192", "-np", "2", "-t", "1", "--no-warmup",
	}, args...)...)
	var log strings.Builder
	command.Stdout, command.Stderr = &log, &log
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	exited := make(chan error, 1)
	go func() { exited <- command.Wait() }()
	t.Cleanup(func() {
		command.Process.Kill()
		<-exited
	})
	url := "http://" + address.String()
	for range 600 {
		select {
		case err := <-exited:
			exited <- err
			t.Fatalf("llama-server ended: %v\n%s", err, log.String())
		case <-time.After(50 * time.Millisecond):
		}
		if resp, err := http.Get(url + "/health"); err == nil {
			resp.Body.Close()
			if resp.StatusCode == http.StatusOK {
				return url
			}
		}
	}
	t.Fatalf("llama-server does not answer:\n%s", log.String())
	return ""
}

func client(t *testing.T, url string) *backend.Client {
	t.Helper()
	c, err := backend.New(backend.Options{URL: url, Attempts: 2})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// llama-server gives the ids that the engine in this process gives for the same model and prompt, many at once. It does
// not tell the ids of characters that take several tokens; answers with such are left out.
func TestCompletionsAgainstLlamaServer(t *testing.T) {
	path := testenv.OracleInputs(t, "models", "gguf", "qwen2-tiny.f32.gguf")
	url := llamaServer(t, path, "-ctk", "f32", "-ctv", "f32", "-fa", "off")
	model, err := engine.Load(context.Background(), path, engine.LoadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer model.Close()
	own, err := model.NewEngine(context.Background(), engine.EngineOptions{ContextLength: 4096, KVType: engine.KVF32, FlashAttention: engine.Off, Threads: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer own.Close()
	tokenizer := enginegen.Tokenizer{Model: model}
	end, _ := model.SpecialToken("<|im_end|>")
	theirs := &backend.Completions{Client: client(t, url), Tokenizer: tokenizer, End: end}
	var wg sync.WaitGroup
	var compared atomic.Int32
	for n := range 24 {
		wg.Go(func() {
			prompt := fmt.Sprintf("<|im_start|>user\nSELECT %d FROM customers<|im_end|>\n<|im_start|>assistant\n", n)
			ids, err := tokenizer.Tokenize([]toolloop.Segment{{Text: prompt, Template: true}})
			if err != nil {
				t.Error(err)
				return
			}
			req := toolloop.GenerateRequest{Prompt: ids, MaxTokens: 24}
			var shown strings.Builder
			req.OnText = func(s string) { shown.WriteString(s) }
			got, err := theirs.Generate(context.Background(), req)
			if err != nil {
				t.Error(err)
				return
			}
			req.OnText = nil
			want, err := enginegen.Generator{Engine: own, LogProbs: true}.Generate(context.Background(), req)
			if err != nil {
				t.Error(err)
				return
			}
			if slices.ContainsFunc(want.Tokens, func(id toolloop.Token) bool { return !utf8.ValidString(model.Piece(id, true)) }) {
				return
			}
			compared.Add(1)
			if !slices.Equal(got.Tokens, want.Tokens) || got.Finish != want.Finish || got.Text != want.Text {
				t.Errorf("%q: server %v %s, engine %v %s", prompt, got.Tokens, got.Finish, want.Tokens, want.Finish)
			}
			if d := got.LogProb - want.LogProb; d > 1e-2 || d < -1e-2 {
				t.Errorf("%q: log-probability %v, engine %v", prompt, got.LogProb, want.LogProb)
			}
			if got.Usage.PromptTokens != len(ids) || shown.Len() == 0 {
				t.Errorf("%q: usage %+v, shown %q", prompt, got.Usage, shown.String())
			}
		})
	}
	wg.Wait()
	if compared.Load() == 0 {
		t.Fatal("no answer could be compared")
	}
	t.Logf("%d answers with equal ids", compared.Load())
}

// A question through llama-server's chat API, which applies the template itself.
func TestChatAgainstLlamaServer(t *testing.T) {
	path := testenv.OracleInputs(t, "models", "gguf", "qwen2-tiny.f32.gguf")
	template := testenv.OracleInputs(t, "chat", "templates", "Qwen-Qwen2.5-7B-Instruct.jinja")
	if _, err := os.Stat(template); err != nil {
		t.Fatal(err)
	}
	url := llamaServer(t, path, "--jinja", "--chat-template-file", template)
	g := &backend.Chat{Client: client(t, url), Profile: toolloop.Hermes(), Tools: []toolloop.Definition{echo{}.Definition()}}
	loop := &toolloop.Loop{
		Profile: toolloop.Hermes(), Generator: g, Renderer: g, Tokenizer: g, Tools: []toolloop.Tool{echo{}}, Limits: toolloop.Limits{MaxTurns: 2, MaxNewTokens: 16},
	}
	conversation, err := loop.Start([]toolloop.Message{{Role: "system", Content: "You write SQL."}, {Role: "user", Content: "Count the customers."}})
	if err != nil {
		t.Fatal(err)
	}
	tr, err := loop.Run(context.Background(), conversation, nil)
	if err != nil || len(tr.Turns) == 0 || tr.Turns[0].Usage.PromptTokens == 0 || tr.Turns[0].Usage.GeneratedTokens == 0 {
		t.Fatalf("%v, %+v", err, tr)
	}
	g.Client = client(t, url)
	long := &toolloop.Loop{Profile: loop.Profile, Generator: g, Renderer: g, Tokenizer: g}
	if conversation, err = long.Start([]toolloop.Message{{Role: "user", Content: strings.Repeat("many words ", 5000)}}); err != nil {
		t.Fatal(err)
	}
	if tr, err = long.Run(context.Background(), conversation, nil); err != nil || tr.Stop != toolloop.StopContextFull {
		t.Errorf("a prompt beyond the context: %v, %+v", err, tr)
	}
}
