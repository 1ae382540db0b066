// Package convert turns a Hugging Face checkpoint into a GGUF file: the tensors that llama.cpp's own converter writes,
// bit for bit, in bounded memory and on all cores.
//
// It departs from that converter on purpose where a checkpoint announces multi-token prediction that it does not have
// (written without, with a warning, instead of a file that cannot be loaded), and in arithmetic on tensors stored in
// f16, which is done in float32.
package convert

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"

	"quern/arch"
	"quern/gguf"
	"quern/internal/atomicfile"
	"quern/safetensors"
	"quern/tensor"
)

// Type is what the matrices of the output are stored as. Vectors, norms and convolutions are always F32.
type Type string

const (
	F32  Type = "f32"
	F16  Type = "f16"
	BF16 Type = "bf16"
	Q8_0 Type = "q8_0" // matrices whose rows are not whole blocks of 32 become F16
	Auto Type = "auto" // BF16 if the checkpoint has a matrix in bf16, else F16
)

// fileTypes gives each type's dtype and general.file_type (llama.h: enum llama_ftype).
var fileTypes = map[Type]struct {
	dtype  tensor.DType
	number uint32
}{F32: {tensor.F32, 0}, F16: {tensor.F16, 1}, Q8_0: {tensor.Q8_0, 7}, BF16: {tensor.BF16, 32}}

// Valid tells whether t is one of the types, "" included.
func (t Type) Valid() bool {
	_, ok := fileTypes[t]
	return ok || t == Auto || t == ""
}

// Resolve returns the type that Auto means for the checkpoint in dir; another type is returned as it is.
func Resolve(dir string, t Type) (Type, error) {
	if t != Auto && t != "" {
		return t, nil
	}
	m, err := Open(dir, true)
	if err != nil {
		return "", err
	}
	defer m.Close()
	return detect(m), nil
}

// MTP says what happens to the layers for multi-token prediction.
type MTP uint8

const (
	KeepMTP MTP = iota
	DropMTP
	OnlyMTP // only they, with embedding and head: a draft model
)

// Options are the choices of a conversion; the zero value is a good one.
type Options struct {
	Type     Type // "" means Auto
	MTP      MTP
	Pre      string                  // name of the pre-tokenizer; "" to recognise it
	Name     string                  // general.name; "" to derive it from the checkpoint
	Progress func(done, total int64) // bytes written, called from several goroutines; may be nil
}

// Report is what a conversion did.
type Report struct {
	Arch       string   `json:"arch"`
	Type       Type     `json:"type"`
	Tensors    int      `json:"tensors"`
	Parameters int64    `json:"parameters"`
	Bytes      int64    `json:"bytes"`
	Skipped    int      `json:"skipped"` // tensors that are no part of the text model
	Warnings   []string `json:"warnings,omitempty"`
}

// Model is an open checkpoint folder.
type Model struct {
	*arch.Checkpoint
	Dir   string
	files *safetensors.Checkpoint
}

// Open opens the checkpoint in dir and checks that it is complete. dropMTP leaves out the tensors for multi-token
// prediction. Close it after use.
func Open(dir string, dropMTP bool) (*Model, error) {
	data, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("open %s: no config.json, so this is no Hugging Face checkpoint%s", dir, adapterHint(dir))
	}
	if err != nil {
		return nil, err
	}
	config, err := arch.ParseConfig(data)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	files, err := safetensors.OpenCheckpoint(dir)
	if err != nil {
		return nil, err
	}
	tensors := files.Tensors
	if dropMTP {
		tensors = nil
		for _, t := range files.Tensors {
			if name, ok := arch.Canonical(t.Name); !ok || !strings.HasPrefix(name, "mtp.") {
				tensors = append(tensors, t)
			}
		}
	}
	ck, err := arch.NewCheckpoint(config, tensors)
	if err != nil {
		files.Close()
		return nil, fmt.Errorf("open %s: %w", dir, err)
	}
	return &Model{ck, dir, files}, nil
}

// Close closes the checkpoint's files.
func (m *Model) Close() error { return m.files.Close() }

func adapterHint(dir string) string {
	if _, err := os.Stat(filepath.Join(dir, "adapter_config.json")); err == nil {
		return "; it is an adapter: merge it into its base with `quern lora merge`"
	}
	return ""
}

// Convert writes the checkpoint in dir to the GGUF file out, which appears when it is complete. Canceling ctx leaves
// nothing behind.
func Convert(ctx context.Context, dir, out string, o Options) (*Report, error) {
	m, err := Open(dir, o.MTP == DropMTP)
	if err != nil {
		return nil, err
	}
	defer m.Close()
	p, err := newPlan(m, o)
	if err != nil {
		return nil, fmt.Errorf("convert %s: %w", dir, err)
	}
	if err := p.write(ctx, out, o.Progress); err != nil {
		return nil, fmt.Errorf("convert %s: %w", dir, err)
	}
	return &p.report, nil
}

// plan is everything about the output but the data.
type plan struct {
	tensors []*arch.Tensor
	sources [][]*tensor.Stored
	layout  *gguf.Layout
	report  Report
}

func newPlan(m *Model, o Options) (*plan, error) {
	p := &plan{report: Report{Arch: m.Arch, Type: o.Type, Skipped: len(m.Skipped)}}
	if o.Type == "" || o.Type == Auto {
		p.report.Type = detect(m)
	}
	kind, ok := fileTypes[p.report.Type]
	if !ok {
		return nil, fmt.Errorf("type %q; possible are f32, f16, bf16, q8_0, auto", o.Type)
	}
	if o.MTP == OnlyMTP && m.NumMTP == 0 {
		return nil, errors.New("the checkpoint has no layers for multi-token prediction")
	}
	if o.MTP != DropMTP && m.MTPLayers != m.NumMTP && m.MTPLayers > 0 {
		p.report.Warnings = append(p.report.Warnings, fmt.Sprintf(
			"config.json announces %d layers for multi-token prediction, the checkpoint has %d (Transformers drops them when it saves); written with %d",
			m.MTPLayers, m.NumMTP, m.NumMTP))
	}
	var specs []tensor.Spec
	for i := range m.Tensors {
		t := &m.Tensors[i]
		sources := m.Stored(t)
		if sources == nil || o.MTP == OnlyMTP && !t.MTP && strings.HasPrefix(t.GGUF, "blk.") {
			continue
		}
		n, _ := t.Shape.Elements() // checked with the table
		p.report.Parameters += n
		p.tensors = append(p.tensors, t)
		p.sources = append(p.sources, sources)
		specs = append(specs, tensor.Spec{Name: t.GGUF, DType: storedType(t, kind.dtype), Shape: t.Shape})
	}
	meta, err := metadata(m, o, kind.number, p.report.Parameters)
	if err != nil {
		return nil, err
	}
	if p.layout, err = gguf.NewLayout(meta, specs); err != nil {
		return nil, err
	}
	p.report.Tensors, p.report.Bytes = len(specs), p.layout.Size
	return p, nil
}

// detect chooses the type that loses nothing for checkpoints in bf16 and f16.
func detect(m *Model) Type {
	for i := range m.Tensors {
		t := &m.Tensors[i]
		if sources := m.Stored(t); sources != nil && len(t.Shape) > 1 && sources[0].DType == tensor.BF16 {
			return BF16
		}
	}
	return F16
}

// storedType returns what a tensor is stored as when matrices are stored as matrix.
func storedType(t *arch.Tensor, matrix tensor.DType) tensor.DType {
	switch {
	case t.F32:
		return tensor.F32
	case t.Shape.RowLen()%int64(matrix.BlockLen()) != 0:
		return tensor.F16
	}
	return matrix
}

// Metadata returns the metadata that a GGUF of the checkpoint has, with the type that Auto means.
func (m *Model) Metadata() (gguf.Metadata, error) {
	params := int64(0)
	for i := range m.Tensors {
		if m.Stored(&m.Tensors[i]) != nil {
			n, _ := m.Tensors[i].Shape.Elements() // checked with the table
			params += n
		}
	}
	return metadata(m, Options{}, fileTypes[detect(m)].number, params)
}

func metadata(m *Model, o Options, fileType uint32, params int64) (gguf.Metadata, error) {
	meta, err := generalMetadata(m.Dir, m.Arch, o.Name, params)
	if err != nil {
		return nil, err
	}
	for _, e := range m.Model.Metadata(m.NumMTP, fileType) {
		meta.Set(e.Key, e.Value)
	}
	meta.Set("general.quantization_version", uint32(2)) // ggml.h: GGML_QNT_VERSION
	files := os.DirFS(m.Dir)
	t, err := readTokenizer(files)
	if err != nil {
		return nil, err
	}
	tokens, err := t.metadata(files, int(m.Vocab), o.Pre)
	return append(meta, tokens...), err
}

// chunkValues is how many values a worker converts at a time: enough to make the overhead small, few enough that the
// buffers of all workers together are.
const chunkValues = 1 << 18

// chunk is a piece of work: rows of one tensor.
type chunk struct {
	tensor    int
	from, num int64
}

// write writes the file with one worker for each processor. Each reads rows, converts them and writes them at their
// place, so no worker waits for another.
func (p *plan) write(ctx context.Context, out string, progress func(done, total int64)) error {
	f, err := atomicfile.Create(out)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := f.Reserve(p.layout.Size); err != nil {
		return err
	}
	if err := p.layout.WriteHeader(f); err != nil {
		return f.Explain(err)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	work := make(chan chunk)
	var workers sync.WaitGroup
	var done atomic.Int64
	for range min(runtime.GOMAXPROCS(0), 32) { // beyond that the disk is slower than the workers
		workers.Go(func() {
			w := worker{plan: p, out: f}
			for c := range work {
				n, err := w.convert(c)
				if err != nil {
					fail(err)
				}
				if d := done.Add(n); progress != nil {
					progress(d, p.layout.Size)
				}
			}
		})
	}
	p.feed(ctx, work)
	workers.Wait()
	if err := context.Cause(ctx); err != nil {
		return err
	}
	return f.Commit()
}

// feed hands out all rows of all tensors, until ctx is done.
func (p *plan) feed(ctx context.Context, work chan<- chunk) {
	defer close(work)
	for i, t := range p.tensors {
		rows, perChunk := t.NumRows(), max(1, chunkValues/t.RowLen())
		for from := int64(0); from < rows; from += perChunk {
			select {
			case work <- chunk{i, from, min(perChunk, rows-from)}:
			case <-ctx.Done():
				return
			}
		}
	}
}

// worker converts chunks with its own buffers.
type worker struct {
	*plan
	out    *atomicfile.File
	reader arch.Reader
	values []float32
	data   []byte
}

// convert converts one chunk and returns how many bytes it wrote.
func (w *worker) convert(c chunk) (int64, error) {
	t, sources, spec := w.tensors[c.tensor], w.sources[c.tensor], w.layout.Tensors[c.tensor]
	values := c.num * t.RowLen()
	size, err := spec.DType.RowBytes(values)
	if err != nil {
		return 0, fmt.Errorf("tensor %s: %w", spec.Name, err)
	}
	w.data = grow(w.data, size)
	if copies(t, sources, spec.DType) {
		err = w.reader.Bytes(t, sources, c.from, w.data)
	} else {
		w.values = grow(w.values, values)
		if err = w.reader.Floats(t, sources, c.from, w.values); err == nil {
			err = tensor.Encode(w.data, w.values, spec.DType)
		}
	}
	if err != nil {
		return 0, err
	}
	offset := w.layout.Offsets[c.tensor] + size/c.num*c.from
	if _, err := w.out.WriteAt(w.data, offset); err != nil {
		return 0, w.out.Explain(err)
	}
	return size, nil
}

// copies tells whether the stored bytes are the output's already.
func copies(t *arch.Tensor, sources []*tensor.Stored, dtype tensor.DType) bool {
	for _, s := range sources {
		if s.DType != dtype {
			return false
		}
	}
	return t.Cols == nil && t.Op == arch.Keep
}

// grow returns a slice of n elements, reusing s where it is large enough.
func grow[T any](s []T, n int64) []T {
	if int64(cap(s)) < n {
		return make([]T, n)
	}
	return s[:n]
}
