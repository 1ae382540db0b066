package lora

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash"
	"slices"
	"strings"
	"unsafe"

	"github.com/zeebo/blake3"

	"quern/arch"
	"quern/tensor"
)

// A fingerprint is a hash of a model's values: of all tensors of the language model, sorted by name, each in blocks of
// whole rows in the checkpoint's layout. It does not depend on sharding, on the container's order, on metadata, nor on
// the type that values are stored in: a block whose values all fit bfloat16 is hashed as bfloat16, any other as
// float32. So a checkpoint and the f32 or bf16 GGUF made of it have the same fingerprint, as long as the type lost
// nothing. The vision tower and the layers for multi-token prediction, which a GGUF may lack, have their own hashes.
//
// Left out are the decays of linear attention (A_log): GGUF holds -exp of them, which cannot be taken back exactly.

// fingerprintPrefix says by which rules the hash was made.
const fingerprintPrefix = "q1-"

// blockValues is about how many values are hashed, and merged, together.
const blockValues = 1 << 18

// sum is the hash of a block's values; the zero value stands for none.
type sum [33]byte

// Fingerprint identifies a model by content.
type Fingerprint struct {
	Text   string `json:"text"`             // the fingerprint proper: of the language model
	MTP    string `json:"mtp,omitempty"`    // of the layers for multi-token prediction
	Vision string `json:"vision,omitempty"` // of the vision tower
}

func (f Fingerprint) String() string { return f.Text }

// Matches tells whether a fingerprint that a person gave is this one. 16 digits are enough.
func (f Fingerprint) Matches(given string) bool {
	given = strings.TrimPrefix(strings.ToLower(given), fingerprintPrefix)
	return len(given) >= 16 && strings.HasPrefix(strings.TrimPrefix(f.Text, fingerprintPrefix), given)
}

// blockRows returns how many rows a block of the tensor has.
func (w *Weight) blockRows() int64 { return min(w.rows, max(1, blockValues/max(1, w.width))) }

func (w *Weight) numBlocks() int64 {
	if w.rows == 0 || w.width == 0 {
		return 0
	}
	return (w.rows + w.blockRows() - 1) / w.blockRows()
}

// hashed tells whether the fingerprint covers the tensor.
func (w *Weight) hashed() bool { return w.row == nil || w.row.Op != arch.NegExp }

// sumRows hashes rows as they lie in a file with the layout l.
func (w *Weight) sumRows(l *layout, data []byte, t tensor.DType) (sum, error) {
	shifted := w.row != nil && w.row.Op == arch.AddOne
	switch {
	case !t.CanDecode():
		return sumBytes(asStored+byte(t), data), nil
	case l.plain() && !shifted && t == tensor.BF16:
		return sumBytes(asBF16, data), nil
	}
	x := make([]float32, int64(len(data))/int64(t.BlockBytes())*int64(t.BlockLen()))
	if err := l.decode(x, data, t, w.width); err != nil {
		return sum{}, err
	}
	if shifted && l.op == arch.Keep { // so that both layouts lose the same bits
		for i, v := range x {
			x[i] = float32(v+1) - 1
		}
	}
	return sumValues(x), nil
}

func sumValues(x []float32) sum {
	if len(x) == 0 {
		return sumBytes(asBF16, nil)
	}
	words := unsafe.Slice((*uint32)(unsafe.Pointer(&x[0])), len(x))
	for _, word := range words {
		if word&0xffff != 0 {
			data := make([]byte, 4*len(x))
			for i, word := range words {
				binary.LittleEndian.PutUint32(data[4*i:], word)
			}
			return sumBytes(asF32, data)
		}
	}
	data := make([]byte, 2*len(x))
	for i, word := range words {
		binary.LittleEndian.PutUint16(data[2*i:], uint16(word>>16))
	}
	return sumBytes(asBF16, data)
}

// The forms in which a block is hashed; other types than these are hashed as they are stored.
const (
	asBF16 byte = iota
	asF32
	asStored
)

// sumBytes hashes a block: its form, then the hash (BLAKE3: several times as fast as SHA-256, and every byte of base
// and output is hashed).
func sumBytes(form byte, data []byte) (s sum) {
	h := blake3.Sum256(data)
	s[0] = form
	copy(s[1:], h[:])
	return s
}

// sums are the hashes of a tensor's blocks.
type sums struct {
	key    string
	w      *Weight // for the shape
	blocks []sum
}

// fingerprint puts the hashes of tensors together.
func fingerprint(list []sums) Fingerprint {
	slices.SortFunc(list, func(a, b sums) int { return strings.Compare(a.key, b.key) })
	hashes := map[part]hash.Hash{}
	for _, s := range list {
		if !s.w.hashed() {
			continue
		}
		h := hashes[s.w.part]
		if h == nil {
			h = blake3.New()
			hashes[s.w.part] = h
		}
		fmt.Fprintf(h, "%s %d %d\n", s.key, s.w.rows, s.w.width)
		for _, block := range s.blocks {
			h.Write(block[:])
		}
	}
	text := func(p part) string {
		if hashes[p] == nil {
			return ""
		}
		return fingerprintPrefix + hex.EncodeToString(hashes[p].Sum(nil))
	}
	return Fingerprint{Text: text(partText), MTP: text(partMTP), Vision: text(partVision)}
}

// Fingerprint reads all weights and hashes them.
func (b *Base) Fingerprint(ctx context.Context) (Fingerprint, error) {
	var jobs []*job
	for _, w := range b.Weights {
		jobs = append(jobs, newJob(w, w.Spec, nil, false, 0))
	}
	if err := run(ctx, jobs, nil); err != nil {
		return Fingerprint{}, fmt.Errorf("fingerprint of %s: %w", b.Path, err)
	}
	return fingerprintAfter(jobs, 0), nil
}

// fingerprintAfter puts the hashes that the jobs have after a stage together; 0 is the base.
func fingerprintAfter(jobs []*job, stage int) Fingerprint {
	var list []sums
	for _, j := range jobs {
		if stage > 0 || !j.added {
			list = append(list, j.sumsAfter(stage))
		}
	}
	return fingerprint(list)
}

// short is enough digits to recognise and to state a fingerprint.
func (f Fingerprint) short() string { return f.Text[:min(len(f.Text), len(fingerprintPrefix)+16)] }
