package arch

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	"quern/tensor"
)

// Fingerprint identifies weights by their content.
type Fingerprint struct {
	// Sum stands for all tensors: "qfp1:" and 64 hexadecimal digits.
	Sum string
	// Tensors has the SHA-256 of each tensor's values, by GGUF name (by stored name from FingerprintTensors).
	Tensors map[string]string
}

// fingerprintVersion changes when the definition does.
const fingerprintVersion = "qfp1:"

// The definition. Each tensor's hash is the SHA-256 of its values as little-endian float32 in GGUF's layout, rows
// and columns in GGUF's order, norms shifted. The sum is the SHA-256 over the lines "name, tab, shape, tab, hash" in
// the order of the names. It does not depend on sharding, order, container or metadata, nor on the stored type where
// that is wide enough: a bf16 checkpoint, its f32 GGUF and its bf16 GGUF have the same fingerprint. Left out are what
// not every container of the same model has (the vision tower, multi-token prediction), and the decay of linear
// attention, whose exponential differs in its last bit between converters.

// Fingerprint returns the fingerprint of a checkpoint.
func (ck *Checkpoint) Fingerprint(ctx context.Context) (*Fingerprint, error) {
	var parts []part
	for i := range ck.Tensors {
		t := &ck.Tensors[i]
		sources := ck.Stored(t)
		if t.MTP || t.Op == NegExp || sources == nil {
			continue
		}
		parts = append(parts, part{t, sources})
	}
	return fingerprint(ctx, parts)
}

// FingerprintGGUF returns the fingerprint of the tensors of a GGUF file of this model. Quantised tensors count with
// their dequantised values.
func (m *Model) FingerprintGGUF(ctx context.Context, tensors []tensor.Stored) (*Fingerprint, error) {
	var parts []part
	for i := range tensors {
		s := &tensors[i]
		if t := m.ByGGUF(s.Name); t != nil && !t.MTP && t.Op != NegExp {
			parts = append(parts, asStored(s))
		}
	}
	return fingerprint(ctx, parts)
}

// FingerprintTensors returns the fingerprint of tensors that belong to no known model, an adapter's for instance:
// all of them, under their own names and in their own layout.
func FingerprintTensors(ctx context.Context, tensors []tensor.Stored) (*Fingerprint, error) {
	parts := make([]part, len(tensors))
	for i := range tensors {
		parts[i] = asStored(&tensors[i])
	}
	return fingerprint(ctx, parts)
}

// part is one tensor to hash.
type part struct {
	t       *Tensor
	sources []*tensor.Stored
}

func asStored(s *tensor.Stored) part {
	return part{&Tensor{GGUF: s.Name, Shape: s.Shape, SourceShape: s.Shape}, []*tensor.Stored{s}}
}

func fingerprint(ctx context.Context, parts []part) (*Fingerprint, error) {
	var (
		sums    = make([]string, len(parts))
		errs    = make([]error, len(parts))
		next    = make(chan int)
		workers sync.WaitGroup
	)
	for range min(runtime.GOMAXPROCS(0), len(parts)) {
		workers.Go(func() {
			for i := range next {
				sums[i], errs[i] = parts[i].hash(ctx)
			}
		})
	}
	for i := range parts {
		next <- i
	}
	close(next)
	workers.Wait()

	f := &Fingerprint{Tensors: map[string]string{}}
	lines := map[string]string{}
	for i, p := range parts {
		if errs[i] != nil {
			return nil, errs[i]
		}
		f.Tensors[p.t.GGUF] = sums[i]
		lines[p.t.GGUF] = fmt.Sprintf("%s\t%v\t%s\n", p.t.GGUF, p.t.Shape, sums[i])
	}
	var all strings.Builder
	for _, name := range slices.Sorted(maps.Keys(lines)) {
		all.WriteString(lines[name])
	}
	sum := sha256.Sum256([]byte(all.String()))
	f.Sum = fingerprintVersion + hex.EncodeToString(sum[:])
	return f, nil
}

// hash returns the SHA-256 of the values; of the stored bytes and the type's name where those cannot be decoded.
func (p part) hash(ctx context.Context) (string, error) {
	h := sha256.New()
	if s := p.sources[0]; !s.DType.CanDecode() || s.DType.Quantized() && len(s.Shape) < 2 {
		h.Write([]byte(s.DType.String()))
		err := s.View(func(b []byte) error {
			h.Write(b)
			return ctx.Err()
		})
		return hex.EncodeToString(h.Sum(nil)), err
	}
	rowLen, rows := p.t.RowLen(), p.t.NumRows()
	perChunk := max(1, (1<<18)/max(1, rowLen))
	var r Reader
	values := make([]float32, min(perChunk, rows)*rowLen)
	raw := make([]byte, 4*len(values))
	for from := int64(0); from < rows; from += perChunk {
		if err := ctx.Err(); err != nil {
			return "", err
		}
		chunk := values[:min(perChunk, rows-from)*rowLen]
		if err := r.Floats(p.t, p.sources, from, chunk); err != nil {
			return "", err
		}
		if err := tensor.Encode(raw[:4*len(chunk)], chunk, tensor.F32); err != nil {
			return "", err
		}
		h.Write(raw[:4*len(chunk)])
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
