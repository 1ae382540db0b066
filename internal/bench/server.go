package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"time"
)

// runServer plays the load through llama-server with its best settings for it: one memory shared by all slots, prompts
// kept, as many slots as Quern has lanes. Starting it is not counted.
func (o AgentOptions) runServer(ctx context.Context, vocab int, f *Figure) error {
	program, err := o.tool("llama-server")
	if err != nil {
		return err
	}
	port, err := freePort()
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	cmd := exec.CommandContext(ctx, program, append(o.peerFlags(), "--host", "127.0.0.1", "--port", strconv.Itoa(port),
		"-c", strconv.Itoa(o.pool()), "-np", strconv.Itoa(o.Lanes), "--kv-unified",
		"-b", strconv.Itoa(o.Chunk), "-ub", strconv.Itoa(o.Chunk))...)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := make(chan struct{})
	go func() { _ = cmd.Wait(); close(ended) }()
	defer func() { stop(); <-ended }()
	base := fmt.Sprintf("http://127.0.0.1:%d", port)
	if err := awaitHealth(ctx, base, ended); err != nil {
		stop()
		<-ended
		return fmt.Errorf("%s: %w\n%s", program, err, lastLines(log.Bytes()))
	}
	play := func(ctx context.Context, prompt []int32, _, n int, _ bool) ([]int32, error) {
		return complete(ctx, base, prompt, n)
	}
	if _, err := play(ctx, randomTokens(7, 8, vocab), 0, 2, true); err != nil { // warm
		return err
	}
	took, err := o.play(ctx, vocab, play)
	if err != nil {
		return err
	}
	f.add(took.Seconds())
	return nil
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// awaitHealth waits until the model is loaded.
func awaitHealth(ctx context.Context, base string, ended <-chan struct{}) error {
	for range 1200 {
		if err := get(ctx, base+"/health"); err == nil {
			return nil
		}
		select {
		case <-ended:
			return fmt.Errorf("it ended before it was ready")
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
	return errNotReady
}

func get(ctx context.Context, url string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	resp, err := httpClient.Do(req)
	if err != nil {
		return err
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return errNotReady
	}
	return nil
}

// complete asks the server for n greedy tokens after a prompt of token ids.
func complete(ctx context.Context, base string, prompt []int32, n int) ([]int32, error) {
	body, err := json.Marshal(map[string]any{
		"prompt": prompt, "n_predict": n, "ignore_eos": true, "cache_prompt": true,
		"temperature": 0, "samplers": []string{"temperature"}, "return_tokens": true, "stream": false,
	})
	if err != nil {
		return nil, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, base+"/completion", bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := httpClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("llama-server: %s: %s", resp.Status, lastLines(data))
	}
	var answer struct{ Tokens []int32 }
	return answer.Tokens, json.Unmarshal(data, &answer)
}
