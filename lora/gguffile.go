package lora

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	"quern/gguf"
	"quern/internal/atomicfile"
	"quern/tensor"
)

// writeGGUF makes the merged GGUF: the base's metadata and tensors in their order, with the changed ones in place.
func (m *merger) writeGGUF(ctx context.Context) error {
	if err := refuseExisting(m.o.Out); err != nil {
		return err
	}
	f, err := atomicfile.Create(m.o.Out)
	if err != nil {
		return err
	}
	defer f.Discard()
	if err := m.writeTensors(ctx, f); err != nil {
		return err
	}
	return f.Commit()
}

func (m *merger) writeTensors(ctx context.Context, f *atomicfile.File) error {
	specs := m.ggufSpecs()
	// The record goes into the metadata in front of the data, but its fingerprints are known after the data. Its length
	// does not depend on them, so one with other fingerprints holds the place.
	m.record()
	layout, err := m.layout(specs)
	if err != nil {
		return err
	}
	if err := f.Reserve(layout.Size); err != nil {
		return err
	}
	if err := layout.WriteHeader(f); err != nil {
		return f.Explain(err)
	}
	m.place(layout, f)
	if err := m.writeAndCheck(ctx, []*atomicfile.File{f}); err != nil {
		return err
	}
	final, err := m.layout(specs)
	if err != nil {
		return err
	}
	if final.Size != layout.Size {
		return fmt.Errorf("the record of the merge changed its length: %d bytes, then %d", layout.Size, final.Size)
	}
	if err := final.WriteHeader(f); err != nil {
		return f.Explain(err)
	}
	return nil
}

// ggufSpecs are the tensors of the output file; those of experts that are stacked are one.
func (m *merger) ggufSpecs() []tensor.Spec {
	var specs []tensor.Spec
	for _, j := range m.jobs {
		if j.w.slab > 0 {
			continue
		}
		spec := j.spec
		if !j.added {
			spec.Shape = m.Base.gguf.Lookup(spec.Name).Shape
		}
		specs = append(specs, spec)
	}
	return specs
}

// place tells the jobs where in the file their tensors go.
func (m *merger) place(layout *gguf.Layout, f *atomicfile.File) {
	offsets := map[string]int64{}
	for i, t := range layout.Tensors {
		offsets[t.Name] = layout.Offsets[i]
	}
	for _, j := range m.jobs {
		size, _ := j.spec.DType.Bytes(j.spec.Shape) // the layout has computed it already
		j.writeTo(f, offsets[j.spec.Name]+j.w.slab*size)
	}
}

func (m *merger) layout(specs []tensor.Spec) (*gguf.Layout, error) {
	record, err := json.Marshal(m.lineage)
	if err != nil {
		return nil, err
	}
	meta := slices.Clone(m.Base.gguf.Meta)
	meta = slices.DeleteFunc(meta, func(kv gguf.KV) bool { return isSplitKey(kv.Key) })
	meta.Set(LineageKey, string(record))
	if number, ok := fileTypes[m.o.Type]; ok && mainTypeOf(specs) == m.o.Type {
		meta.Set("general.file_type", number)
	}
	return gguf.NewLayout(meta, specs)
}

// fileTypes are the numbers of general.file_type (llama.h: enum llama_ftype) for what a merge can store.
var fileTypes = map[tensor.DType]uint32{tensor.F32: 0, tensor.F16: 1, tensor.Q4_0: 2, tensor.Q4_1: 3, tensor.Q8_0: 7,
	tensor.Q5_0: 8, tensor.Q5_1: 9, tensor.BF16: 32}

// isSplitKey tells the metadata of a part of a split file; the output is one file.
func isSplitKey(key string) bool {
	return key == "split.no" || key == "split.count" || key == "split.tensors.count"
}
