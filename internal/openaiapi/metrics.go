package openaiapi

import (
	"fmt"
	"io"
	"sync"
	"time"

	"quern/engine"
)

// metrics are the server's own counters; the engine's are read when asked for.
type metrics struct {
	mu        sync.Mutex
	byStatus  map[int]int64
	seconds   float64
	prompt    int64
	cached    int64
	generated int64
}

func (m *metrics) request(status int, took time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byStatus == nil {
		m.byStatus = map[int]int64{}
	}
	m.byStatus[status]++
	m.seconds += took.Seconds()
}

func (m *metrics) generation(u engine.Usage) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.prompt += int64(u.PromptTokens)
	m.cached += int64(u.CachedTokens)
	m.generated += int64(u.Generated)
}

// WriteMetrics writes all counters in Prometheus's text format.
func (s *Server) WriteMetrics(w io.Writer) {
	stats := s.Engine.Stats()
	m := &s.metrics
	m.mu.Lock()
	defer m.mu.Unlock()
	fmt.Fprintln(w, "# HELP quern_requests_total Requests answered, by HTTP status.\n# TYPE quern_requests_total counter")
	total := int64(0)
	for status, n := range m.byStatus {
		fmt.Fprintf(w, "quern_requests_total{status=\"%d\"} %d\n", status, n)
		total += n
	}
	fmt.Fprintf(w, "# HELP quern_request_seconds Time to answer a request.\n# TYPE quern_request_seconds summary\nquern_request_seconds_sum %g\nquern_request_seconds_count %d\n", m.seconds, total)
	for _, c := range []struct {
		name, kind, help string
		value            float64
	}{
		{"prompt_tokens_total", "counter", "Prompt tokens received.", float64(m.prompt)},
		{"prompt_tokens_cached_total", "counter", "Prompt tokens taken from memory.", float64(m.cached)},
		{"generated_tokens_total", "counter", "Tokens generated.", float64(m.generated)},
		{"engine_steps_total", "counter", "Batches computed.", float64(stats.PromptSteps + stats.DecodeSteps)},
		{"engine_evictions_total", "counter", "Held prefixes given up for room.", float64(stats.Evictions)},
		{"engine_preemptions_total", "counter", "Lanes set back for room.", float64(stats.Preemptions)},
		{"engine_lanes", "gauge", "Requests that can run at once.", float64(stats.Lanes)},
		{"engine_lanes_active", "gauge", "Requests that run now.", float64(stats.Running)},
		{"engine_requests_waiting", "gauge", "Requests that wait for a lane.", float64(stats.Waiting)},
	} {
		fmt.Fprintf(w, "# HELP quern_%s %s\n# TYPE quern_%s %s\nquern_%s %g\n", c.name, c.help, c.name, c.kind, c.name, c.value)
	}
}
