package engine

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"

	"quern/engine/internal/llama"
)

// Memory is what a model and its engine need, in bytes.
type Memory struct {
	Weights   uint64 // all tensors
	KV        uint64 // key/value memory of the whole pool
	Recurrent uint64 // recurrent state of all sequences (hybrid models)
	Compute   uint64 // scratch and output buffers
	GPULayers int    // layers on the GPU, the output layer counted
	Devices   []DeviceMemory
}

// Total is the sum.
func (m Memory) Total() uint64 { return m.Weights + m.KV + m.Recurrent + m.Compute }

// DeviceMemory is the share of one device.
type DeviceMemory struct {
	Device      string // "CPU", "CUDA0", …
	Need        uint64 // bytes, as all below
	Free, Total uint64
}

// Estimate says what a file needs with these options, without loading its weights. It reads the header and lets
// llama.cpp plan its buffers; expect a fraction of a second.
func Estimate(ctx context.Context, path string, opt LoadOptions) (Memory, error) {
	fail := func(kind, err error) (Memory, error) {
		return Memory{}, &Error{Op: "estimate", Path: path, Kind: kind, Err: err}
	}
	h, err := readHeader(path, true)
	if err != nil {
		return fail(kindOf(err, ErrBadFile), err)
	}
	if err := opt.Engine.check(); err != nil {
		return fail(nil, err)
	}
	devices := llama.Devices()
	layers, err := chooseLayers(ctx, h, opt, devices)
	if err != nil {
		return fail(kindOf(err, nil), err)
	}
	m, err := plan(ctx, h, opt, layers, devices)
	if err != nil {
		return fail(kindOf(err, nil), err)
	}
	return m, nil
}

// Memory is what the engine and its model hold, as llama.cpp measured it when they were made.
func (e *Engine) Memory() Memory {
	m := Memory{GPULayers: e.model.gpuLayers}
	m.add(e.model.llama.Sizes() + e.context.Sizes())
	m.describe(llama.Devices())
	return m
}

// plan lets llama.cpp go through a load and a context without allocating weights and key/value memory.
func plan(ctx context.Context, h *header, opt LoadOptions, layers int, devices []llama.Device) (Memory, error) {
	if err := ctx.Err(); err != nil {
		return Memory{}, err
	}
	model, err := llama.LoadModel(h.path, llama.ModelParams{GPULayers: h.llamaLayers(layers), NoAlloc: true})
	if err != nil {
		return Memory{}, err
	}
	defer model.Close()
	o := opt.Engine.withDefaults(h)
	c, err := llama.NewContext(model, o.contextParams())
	if err != nil {
		return Memory{}, err
	}
	defer c.Close()
	m := Memory{GPULayers: layers}
	m.add(c.Sizes()) // in which key/value memory is 0, since it is not allocated
	gpuWeights, allWeights := h.weights(layers)
	m.Weights = allWeights
	m.share(allWeights-gpuWeights, gpuWeights)
	m.KV = h.kvBytes(c.Ctx(), o.KVType)
	gpuKV := m.KV * uint64(min(layers, h.layers)) / uint64(h.layers)
	m.share(m.KV-gpuKV, gpuKV)
	m.describe(devices)
	return m, nil
}

// llamaLayers is a number of layers on the GPU as llama.cpp counts them: with the layers for drafting, which stand
// behind all others.
func (h *header) llamaLayers(n int) int {
	if n == 0 {
		return 0
	}
	return n + h.draftLayers
}

// weights is what llama.cpp loads with a number of layers on the GPU: the output layer comes first, then the layers
// from the last on; the token embedding stays, and is there twice where it serves as output layer too.
func (h *header) weights(gpuLayers int) (gpu, all uint64) {
	var embedding uint64
	untied := false
	for t, layer := range h.loaded {
		n, _ := t.DType.Bytes(t.Shape) // gguf has checked it
		size := uint64(n)
		all += size
		switch {
		case t.Name == "token_embd.weight":
			embedding = size
		case layer < 0 && gpuLayers > 0, layer >= 0 && layer > h.layers-gpuLayers:
			gpu += size
		}
		untied = untied || t.Name == "output.weight"
	}
	if gpuLayers > 0 && !untied {
		gpu, all = gpu+embedding, all+embedding
	}
	return gpu, all
}

// bufferLine is how llama.cpp v0.5.0 logs a buffer; the only place where it names all their sizes. A test compares the
// sum with what is known of the model, so a change of the wording cannot go unnoticed.
var bufferLine = regexp.MustCompile(`(\S+) +(model|KV|RS|compute|output) buffer size = +([0-9.]+) MiB`)

// add adds the buffers that log names.
func (m *Memory) add(log string) {
	for _, match := range bufferLine.FindAllStringSubmatch(log, -1) {
		mib, err := strconv.ParseFloat(match[3], 64)
		if err != nil {
			continue
		}
		size := uint64(mib * (1 << 20))
		switch match[2] {
		case "model":
			m.Weights += size
		case "KV":
			m.KV += size
		case "RS":
			m.Recurrent += size
		default:
			m.Compute += size
		}
		m.on(deviceOf(match[1])).Need += size
	}
}

// deviceOf is the device of a buffer type: "CUDA0" and "CPU" are devices, "CPU_Mapped", "CPU_REPACK" and "CUDA_Host" are
// kinds of host memory.
func deviceOf(buffer string) string {
	if strings.Contains(buffer, "_") {
		return "CPU"
	}
	return buffer
}

// on is the entry of a device.
func (m *Memory) on(device string) *DeviceMemory {
	for i := range m.Devices {
		if m.Devices[i].Device == device {
			return &m.Devices[i]
		}
	}
	m.Devices = append(m.Devices, DeviceMemory{Device: device})
	return &m.Devices[len(m.Devices)-1]
}

// share adds memory of the host, and of the GPUs: evenly among them.
func (m *Memory) share(host, gpu uint64) {
	var gpus []string
	for _, d := range m.Devices {
		if d.Device != "CPU" {
			gpus = append(gpus, d.Device)
		}
	}
	if len(gpus) == 0 {
		host, gpu = host+gpu, 0
	}
	m.on("CPU").Need += host
	for _, name := range gpus {
		m.on(name).Need += gpu / uint64(len(gpus))
	}
}

// describe adds what the devices have.
func (m *Memory) describe(devices []llama.Device) {
	for i := range m.Devices {
		for _, d := range devices {
			if d.Name == m.Devices[i].Device {
				m.Devices[i].Free, m.Devices[i].Total = d.Free, d.Total
			}
		}
	}
}

// planLayers chooses the number of layers for the GPU and checks that everything fits.
func planLayers(ctx context.Context, h *header, opt LoadOptions) (int, error) {
	if opt.VocabOnly {
		return 0, nil
	}
	var devices []llama.Device
	if len(llama.Backends()) > 1 { // asking starts the driver
		devices = llama.Devices()
	}
	layers, err := chooseLayers(ctx, h, opt, devices)
	if err != nil || layers > 0 {
		return layers, err
	}
	return 0, h.fitsHost(opt)
}

// margin is the share of a GPU's free memory that is left alone: the driver and fragmentation need some.
const margin = 0.04

// chooseLayers is how many layers, the output layer counted, go to the GPUs among devices.
func chooseLayers(ctx context.Context, h *header, opt LoadOptions, devices []llama.Device) (int, error) {
	all := h.layers + 1
	gpus := 0
	for _, d := range devices {
		if d.GPU {
			gpus++
		}
	}
	switch {
	case opt.GPULayers == GPUAll && gpus == 0:
		return 0, fmt.Errorf("%w: all layers are to go to a GPU, and there is none", errNoRoom)
	case opt.GPULayers == GPUNone || gpus == 0:
		return 0, nil
	case opt.GPULayers == GPUAll:
		return all, nil
	case opt.GPULayers > 0:
		return min(int(opt.GPULayers), all), nil
	}
	return fitLayers(all, func(layers int) (need, room uint64, err error) {
		m, err := plan(ctx, h, opt, layers, devices)
		if err != nil {
			if kindOf(err, nil) == ErrOutOfMemory { // recurrent state is allocated even in a plan
				return 1, 0, nil
			}
			return 0, 0, err
		}
		for _, d := range m.Devices {
			if d.Device != "CPU" {
				need, room = need+d.Need, room+uint64(float64(d.Free)*(1-margin))
			}
		}
		return need, room, nil
	})
}

// fitLayers is the largest number of layers, up to all, whose need is within the room there is. What layers need grows
// evenly, so a few plans are enough.
func fitLayers(all int, plan func(layers int) (need, room uint64, err error)) (int, error) {
	low, high := 0, all+1 // low fits, high does not
	for try := all; ; try = low + (high-low)/2 {
		need, room, err := plan(try)
		if err != nil {
			return 0, err
		}
		if need <= room {
			low = try
		} else {
			high = try
		}
		if low+1 >= high {
			return low, nil
		}
	}
}

// kvBits is the size of one number of the key/value memory in half bits; block types have a scale for 32 numbers.
var kvBits = map[KVType]uint64{KVF32: 64, KVF16: 32, KVBF16: 32, KVQ8_0: 17, KVQ4_0: 9}

// kvBytes is the key/value memory for a number of tokens, from the widths of the attention layers; 0 for models whose
// attention is built in another way.
func (h *header) kvBytes(tokens int, kind KVType) uint64 {
	width := uint64(0)
	for t := range h.loaded {
		if strings.HasSuffix(t.Name, ".attn_k.weight") || strings.HasSuffix(t.Name, ".attn_v.weight") {
			width += uint64(t.Shape[0])
		}
	}
	return width * uint64(tokens) * kvBits[kind] / 16
}

// recurrentBytes is the state of a number of sequences: the last inputs of the convolution, and the state matrix.
func (h *header) recurrentBytes(seqs, rollback int) uint64 {
	perSeq := uint64(0)
	for _, t := range h.tensors {
		if strings.HasSuffix(t.Name, ".ssm_conv1d.weight") && len(t.Shape) == 2 {
			perSeq += 4 * (uint64(t.Shape[0])*uint64(t.Shape[1]-1) + uint64(h.number("ssm.state_size", 0)*h.number("ssm.inner_size", 0)))
		}
	}
	return perSeq * uint64(seqs*(1+rollback))
}

// fitsHost refuses what cannot fit into the memory of this machine. Mapped weights may be larger than what is free,
// since the system can drop and read them again, but not larger than all there is.
func (h *header) fitsHost(opt LoadOptions) error {
	o := opt.Engine.withDefaults(h)
	state := h.kvBytes(o.Pool, o.KVType) + h.recurrentBytes(o.Lanes+o.Holders, o.Rollback)
	own := state
	if opt.NoMmap {
		own += h.weightBytes
	}
	free, total := hostMemory()
	switch {
	case free > 0 && own > free:
		return fmt.Errorf("%w: the weights need %s, the context of %d tokens %s, and %s are free; a smaller context, fewer lanes or a q8_0 key/value memory need less",
			errNoRoom, gib(h.weightBytes), o.Pool, gib(state), gib(free))
	case total > 0 && h.weightBytes+state > total:
		return fmt.Errorf("%w: the weights need %s, the context of %d tokens %s, and this machine has %s; take a smaller model or quantization",
			errNoRoom, gib(h.weightBytes), o.Pool, gib(state), gib(total))
	}
	return nil
}

func gib(n uint64) string { return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30)) }

// hostMemory is the free and the whole memory that this process can have, 0 where the system does not say.
func hostMemory() (free, total uint64) {
	info, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, 0
	}
	for line := range strings.Lines(string(info)) {
		var kib uint64
		if n, _ := fmt.Sscanf(line, "MemAvailable: %d kB", &kib); n == 1 {
			free = kib << 10
		}
		if n, _ := fmt.Sscanf(line, "MemTotal: %d kB", &kib); n == 1 {
			total = kib << 10
		}
	}
	limit, used := cgroupNumber("memory.max"), cgroupNumber("memory.current")
	if limit > 0 && limit < total {
		return min(free, limit-min(limit, used)), limit
	}
	return free, total
}

func cgroupNumber(name string) uint64 {
	text, _ := os.ReadFile("/sys/fs/cgroup/" + name)
	n, _ := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64) // "max" is none
	return n
}
