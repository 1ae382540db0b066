package inspect

import (
	"bufio"
	"bytes"
	"fmt"
	"os"
	"strconv"
	"strings"
)

// Memory is what running a model takes, in bytes. Scratch buffers come on top: tens to hundreds of megabytes, by batch
// size and vocabulary.
type Memory struct {
	Weights      int64 `json:"weights"`
	KVPerToken   int64 `json:"kv_per_token"`   // of one conversation, in f16
	StatePerLane int64 `json:"state_per_lane"` // recurrent state, in f32; 0 for plain attention
	Context      int64 `json:"context"`        // the longest conversation that the model was trained for

	Total     int64    `json:"machine_total"`     // of this machine; 0 where it is not known
	Available int64    `json:"machine_available"` // now
	Devices   []Device `json:"devices,omitempty"` // GPUs; filled in by who knows them

	// Fits says how many tokens of how many conversations fit beside the weights at this moment.
	Fits []Fit `json:"fits"`
}

// Device is a GPU and its memory in bytes.
type Device struct {
	Name  string `json:"name"`
	Total int64  `json:"total"`
	Free  int64  `json:"free"`
}

// Fit is one way of using the memory that is left.
type Fit struct {
	Lanes  int64 `json:"lanes"`
	Tokens int64 `json:"tokens"` // of each lane, at most Context; 0: it does not fit
}

func (s *Subject) memory() *Memory {
	m := &Memory{KVPerToken: s.model.KVBytesPerToken(2), StatePerLane: s.model.StateBytesPerLane(), Context: s.model.Context}
	for i := range s.Tensors {
		if s.hf == nil {
			m.Weights += s.Tensors[i].Bytes()
		}
	}
	if s.hf != nil { // its GGUF: the text model only
		for i := range s.hf.Tensors {
			for _, source := range s.hf.Stored(&s.hf.Tensors[i]) {
				m.Weights += source.Bytes()
			}
		}
	}
	m.Total, m.Available = MachineMemory()
	if m.Available > 0 {
		for _, lanes := range []int64{1, 4, 16} {
			m.Fits = append(m.Fits, Fit{lanes, m.tokens(lanes)})
		}
	}
	return m
}

// tokens returns how many tokens each of the lanes can hold.
func (m *Memory) tokens(lanes int64) int64 {
	left := m.Available - m.Weights - lanes*m.StatePerLane
	if left <= 0 || m.KVPerToken == 0 {
		return 0
	}
	return min(m.Context, left/(lanes*m.KVPerToken))
}

// MachineMemory returns the machine's memory and what of it is free to use, within the limit of a container. Both are
// 0 where the system does not say.
func MachineMemory() (total, available int64) {
	data, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for lines := bufio.NewScanner(bytes.NewReader(data)); lines.Scan(); {
		var kib int64
		if n, _ := fmt.Sscanf(lines.Text(), "MemTotal: %d kB", &kib); n == 1 {
			total = kib << 10
		}
		if n, _ := fmt.Sscanf(lines.Text(), "MemAvailable: %d kB", &kib); n == 1 {
			available = kib << 10
		}
	}
	limit, used := readNumber("/sys/fs/cgroup/memory.max"), readNumber("/sys/fs/cgroup/memory.current")
	if limit > 0 && limit < total {
		total, available = limit, min(available, max(0, limit-used))
	}
	return total, available
}

func readNumber(path string) int64 {
	data, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	n, _ := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64) // "max": no limit
	return n
}
