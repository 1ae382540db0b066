package lora

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quern/internal/atomicfile"
	"quern/safetensors"
	"quern/tensor"
)

// writeFolder makes the merged checkpoint: weights, record, and every other file of the base's folder.
func (m *merger) writeFolder(ctx context.Context) error {
	if err := refuseExisting(m.o.Out); err != nil {
		return err
	}
	dir, err := atomicfile.CreateDir(m.o.Out)
	if err != nil {
		return err
	}
	defer dir.Discard()
	if err := m.writeShards(ctx, dir.Path); err != nil {
		return err
	}
	if err := m.copyOthers(dir.Path); err != nil {
		return err
	}
	if err := m.completeEnds(dir.Path); err != nil {
		return err
	}
	record, err := json.MarshalIndent(m.lineage, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(dir.Path, LineageFile), append(record, '\n'), 0o644); err != nil {
		return err
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	return dir.Commit()
}

func refuseExisting(path string) error {
	if entries, err := os.ReadDir(path); err == nil && len(entries) == 0 {
		return nil
	}
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists already; name another place or remove it", path)
	}
	return nil
}

// writeShards writes the weights.
func (m *merger) writeShards(ctx context.Context, dir string) error {
	specs := make([]tensor.Spec, len(m.jobs))
	jobOf := map[string]*job{}
	for i, j := range m.jobs {
		specs[i] = j.spec
		jobOf[j.spec.Name] = j
	}
	size := m.o.MaxShardSize
	if size <= 0 {
		size = defaultShardSize
	}
	shards, err := safetensors.Shards(specs, size)
	if err != nil {
		return err
	}
	var files []*atomicfile.File
	defer func() {
		for _, f := range files {
			f.Discard()
		}
	}()
	var ordered []*job // as they lie in the files
	for i, shard := range shards {
		layout, err := safetensors.NewLayout(shard, map[string]string{"format": "pt"})
		if err != nil {
			return err
		}
		f, err := atomicfile.Create(filepath.Join(dir, safetensors.ShardName(i, len(shards))))
		if err != nil {
			return err
		}
		files = append(files, f)
		if err := f.Reserve(layout.Size); err != nil {
			return err
		}
		if err := layout.WriteHeader(f); err != nil {
			return f.Explain(err)
		}
		for k, t := range layout.Tensors {
			j := jobOf[t.Name]
			j.writeTo(f, layout.Offsets[k])
			ordered = append(ordered, j)
		}
	}
	m.jobs = ordered
	if err := m.writeAndCheck(ctx, files); err != nil {
		return err
	}
	for _, f := range files {
		if err := f.Commit(); err != nil {
			return err
		}
	}
	if len(shards) == 1 {
		return nil
	}
	index, err := safetensors.Index(shards)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, safetensors.IndexName), index, 0o644)
}

// weightSuffixes are the ends of names of files that hold the base's weights, in this or other formats.
var weightSuffixes = []string{".safetensors", ".safetensors.index.json", ".bin", ".bin.index.json", ".pt", ".pth", ".gguf", ".h5", ".msgpack", ".onnx", ".onnx_data"}

// copyOthers copies what is beside the weights: tokenizer, template, generation_config and whatever else. Other forms
// of the base's weights are left out, since they are not the merged model's.
func (m *merger) copyOthers(dir string) error {
	base, err := filepath.EvalSymlinks(m.Base.Path) // WalkDir does not enter a folder that is a link
	if err != nil {
		return err
	}
	return filepath.WalkDir(base, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(base, path)
		if err != nil || name == "." {
			return err
		}
		hidden := strings.HasPrefix(entry.Name(), ".")
		info, err := os.Stat(path) // the download cache has links to files
		switch {
		case err != nil:
			return fmt.Errorf("copy %s: %w", path, err)
		case info.IsDir() && (hidden || entry.Type()&fs.ModeSymlink != 0):
			if entry.IsDir() {
				return fs.SkipDir
			}
			return nil
		case info.IsDir():
			return os.MkdirAll(filepath.Join(dir, name), 0o755)
		case hidden || !info.Mode().IsRegular() || name == LineageFile:
			return nil
		case slices.ContainsFunc(weightSuffixes, func(s string) bool { return strings.HasSuffix(name, s) }):
			if !strings.Contains(name, ".safetensors") {
				m.report.Notes = append(m.report.Notes, name+" was not copied: it holds weights of the base")
			}
			return nil
		case name == "config.json":
			return os.WriteFile(filepath.Join(dir, name), m.mergedConfig(), 0o644)
		}
		return copyFile(filepath.Join(dir, name), path)
	})
}

// completeEnds replaces the copied generation_config.json where it lacks an end.
func (m *merger) completeEnds(dir string) error {
	settings, added, err := completeEnds(dir, m.Base.config)
	if settings == nil || err != nil {
		return err
	}
	m.report.Notes = append(m.report.Notes, fmt.Sprintf("%s did not name all ends that the model's tokenizer and chat template use: tokens %v were added", generationFile, added))
	return os.WriteFile(filepath.Join(dir, generationFile), settings, 0o644)
}

func copyFile(dst, src string) error {
	in, err := os.Open(src)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.Create(dst)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy %s: %w", src, err)
	}
	return out.Close()
}

// torchNames are the types as config.json spells them.
var torchNames = map[tensor.DType]string{tensor.F32: "float32", tensor.F16: "float16", tensor.BF16: "bfloat16"}

// mergedConfig is the base's config.json with what the merge changed: the head's tie, the type.
func (m *merger) mergedConfig() []byte {
	changes := map[string]json.RawMessage{}
	if m.head != nil {
		changes["tie_word_embeddings"] = json.RawMessage("false")
	}
	if name := torchNames[m.o.Type]; name != "" {
		changes["dtype"] = json.RawMessage(`"` + name + `"`)
		changes["torch_dtype"] = changes["dtype"]
	}
	return rewriteConfig(m.Base.config, changes)
}

// rewriteConfig replaces values in a config.json, and in its text_config, and keeps the order of all keys. The head's
// tie is added where it is absent, since its absence may mean either.
func rewriteConfig(config []member, changes map[string]json.RawMessage) []byte {
	config = slices.Clone(config)
	if _, isSet := changes["tie_word_embeddings"]; isSet && !slices.ContainsFunc(config, func(f member) bool { return f.key == "tie_word_embeddings" }) {
		config = append(config, member{"tie_word_embeddings", nil})
	}
	var b bytes.Buffer
	for i, f := range config {
		value := f.value
		if changed, ok := changes[f.key]; ok {
			value = changed
		}
		if text, err := parseObject(f.value); f.key == "text_config" && err == nil {
			var inner []member
			for _, t := range text {
				if changed, ok := changes[t.key]; ok {
					t.value = changed
				}
				inner = append(inner, t)
			}
			value = joinObject(inner)
		}
		config[i].value = value
	}
	json.Indent(&b, joinObject(config), "", "  ") // of valid JSON, which cannot fail
	b.WriteByte('\n')
	return b.Bytes()
}

func joinObject(members []member) []byte {
	var b bytes.Buffer
	b.WriteByte('{')
	for i, f := range members {
		if i > 0 {
			b.WriteByte(',')
		}
		key, _ := json.Marshal(f.key) // a string
		b.Write(key)
		b.WriteByte(':')
		b.Write(f.value)
	}
	b.WriteByte('}')
	return b.Bytes()
}
