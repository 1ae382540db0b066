package safetensors

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/testenv"
	"quern/tensor"
)

// file builds a file from a header and data, with a right length in front.
func file(header string, data ...byte) []byte {
	out := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(out, header...), data...)
}

func read(b []byte) (*File, error) { return Read(bytes.NewReader(b), int64(len(b))) }

// TestLies has one file for every way in which a header can be wrong.
func TestLies(t *testing.T) {
	entry := func(fields string) string { return `{"a":{` + fields + `}}` }
	good := `"dtype":"F32","shape":[2],"data_offsets":[0,8]`
	if _, err := read(file(entry(good), make([]byte, 8)...)); err != nil {
		t.Fatalf("the good file: %v", err)
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                   {nil, ErrHeaderTooSmall},
		"seven bytes":             {make([]byte, 7), ErrHeaderTooSmall},
		"length above the limit":  {binary.LittleEndian.AppendUint64(nil, 100_000_001), ErrHeaderTooLarge},
		"length above the file":   {append(binary.LittleEndian.AppendUint64(nil, 50), "{}"...), ErrHeaderLength},
		"length near 2^64":        {append(binary.LittleEndian.AppendUint64(nil, 1<<64-1), "{}"...), ErrHeaderTooLarge},
		"length near 2^63":        {append(binary.LittleEndian.AppendUint64(nil, 1<<63), "{}"...), ErrHeaderTooLarge},
		"no header":               {file(""), ErrHeaderJSON},
		"not UTF-8":               {file("{\"\xff\":1}"), ErrHeaderJSON},
		"an array":                {file("[]"), ErrHeaderJSON},
		"a space before":          {file(" {}"), ErrHeaderJSON},
		"cut JSON":                {file(`{"a":{"dtype":"F32"`), ErrHeaderJSON},
		"something behind":        {file(`{} {}`), ErrHeaderJSON},
		"entry is a number":       {file(`{"a":1}`), ErrHeaderJSON},
		"entry is null":           {file(`{"a":null}`), ErrHeaderJSON},
		"no dtype":                {file(entry(`"shape":[2],"data_offsets":[0,8]`), make([]byte, 8)...), ErrHeaderJSON},
		"dtype in other case":     {file(entry(`"DType":"F32","shape":[2],"data_offsets":[0,8]`), make([]byte, 8)...), ErrHeaderJSON},
		"field twice":             {file(entry(good+`,"dtype":"I32"`), make([]byte, 8)...), ErrDuplicate},
		"metadata not strings":    {file(`{"__metadata__":{"a":1}}`), ErrHeaderJSON},
		"metadata twice":          {file(`{"__metadata__":{},"__metadata__":{}}`), ErrDuplicate},
		"name twice":              {file(`{"a":{`+good+`},"a":{`+good+`}}`, make([]byte, 8)...), ErrDuplicate},
		"unknown dtype":           {file(entry(`"dtype":"F33","shape":[2],"data_offsets":[0,8]`), make([]byte, 8)...), ErrDType},
		"dtype of GGUF":           {file(entry(`"dtype":"Q8_0","shape":[32],"data_offsets":[0,34]`), make([]byte, 34)...), ErrDType},
		"negative dimension":      {file(entry(`"dtype":"F32","shape":[-2],"data_offsets":[0,8]`), make([]byte, 8)...), ErrShape},
		"fractional dimension":    {file(entry(`"dtype":"F32","shape":[2.5],"data_offsets":[0,8]`), make([]byte, 8)...), ErrHeaderJSON},
		"product wraps to 2":      {file(entry(`"dtype":"F32","shape":[9223372036854775807,2],"data_offsets":[0,8]`), make([]byte, 8)...), ErrShape},
		"product wraps to 0":      {file(entry(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]`)), ErrShape},
		"bytes wrap":              {file(entry(`"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]`)), ErrShape},
		"range too short":         {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[0,7]`), make([]byte, 7)...), ErrSize},
		"range too long":          {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[0,16]`), make([]byte, 16)...), ErrSize},
		"range backwards":         {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[8,0]`), make([]byte, 8)...), ErrOffset},
		"one offset":              {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[8]`), make([]byte, 8)...), ErrOffset},
		"three offsets":           {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[0,8,8]`), make([]byte, 8)...), ErrOffset},
		"negative offset":         {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[-8,0]`), make([]byte, 8)...), ErrOffset},
		"offset near 2^63":        {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[9223372036854775799,9223372036854775807]`), make([]byte, 8)...), ErrOffset},
		"gap at the start":        {file(entry(`"dtype":"F32","shape":[2],"data_offsets":[4,12]`), make([]byte, 12)...), ErrOffset},
		"overlap":                 {file(`{"a":{`+good+`},"b":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}}`, make([]byte, 12)...), ErrOffset},
		"same range":              {file(`{"a":{`+good+`},"b":{`+good+`}}`, make([]byte, 8)...), ErrOffset},
		"cut data":                {file(entry(good), make([]byte, 7)...), ErrIncomplete},
		"something after the end": {file(entry(good), make([]byte, 9)...), ErrIncomplete},
		"no tensors but data":     {file(`{}`, 1), ErrIncomplete},
	} {
		if _, err := read(c.file); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

func TestEmptyTensorsAndScalars(t *testing.T) {
	specs := []tensor.Spec{{Name: "scalar", DType: tensor.F32}, {Name: "none", DType: tensor.F32, Shape: tensor.Shape{0, 4}}}
	var b bytes.Buffer
	if err := Write(&b, specs, nil, map[string][]byte{"scalar": {0, 0, 128, 63}}); err != nil {
		t.Fatal(err)
	}
	f, err := read(b.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if v, err := f.Lookup("scalar").ReadFloats(); err != nil || len(v) != 1 || v[0] != 1 {
		t.Errorf("scalar: %v, %v", v, err)
	}
	if v, err := f.Lookup("none").ReadFloats(); err != nil || len(v) != 0 {
		t.Errorf("empty: %v, %v", v, err)
	}
	if f.Lookup("other") != nil {
		t.Error("found a tensor that is not there")
	}
}

// TestRewriteIsByteEqual reads files of the reference library and writes them again: not a byte may differ.
func TestRewriteIsByteEqual(t *testing.T) {
	count := 0
	root := testenv.Oracles(t, "models")
	err := filepath.WalkDir(root, func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".safetensors") || strings.Contains(path, "/bad/") {
			return err
		}
		f, err := Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		var specs []tensor.Spec
		data := map[string][]byte{}
		for _, x := range f.Tensors {
			specs = append(specs, x.Spec)
			if data[x.Name], err = x.ReadAll(); err != nil {
				return err
			}
			if err := x.View(func(b []byte) error {
				if !bytes.Equal(b, data[x.Name]) {
					return fmt.Errorf("%s: View and ReadAll differ", x.Name)
				}
				return nil
			}); err != nil {
				return err
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		var got bytes.Buffer
		if err := Write(&got, specs, f.Metadata, data); err != nil {
			return err
		}
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: written again it differs", path)
		}
		count++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if count == 0 {
		t.Fatal("no case found")
	}
	t.Logf("%d files", count)
}

func TestCheckpointFolders(t *testing.T) {
	spec := func(names ...string) (specs []tensor.Spec) {
		for _, n := range names {
			specs = append(specs, tensor.Spec{Name: n, DType: tensor.U8, Shape: tensor.Shape{1}})
		}
		return specs
	}
	data := map[string][]byte{"a": {1}, "b": {2}, "c": {3}}
	write := func(t *testing.T, dir, name string, tensors ...string) {
		var b bytes.Buffer
		if err := Write(&b, spec(tensors...), nil, data); err != nil {
			t.Fatal(err)
		}
		put(t, dir, name, b.String())
	}
	for name, c := range map[string]struct {
		build func(t *testing.T, dir string)
		want  string // names found, or part of the error
	}{
		"one file": {func(t *testing.T, dir string) { write(t, dir, "model.safetensors", "a", "b") }, "a b"},
		"one file and a stale index": {func(t *testing.T, dir string) {
			write(t, dir, "model.safetensors", "a", "b")
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"c":"gone.safetensors"}}`)
		}, "a b"},
		"index with odd names": {func(t *testing.T, dir string) {
			write(t, dir, "model.safetensors-00001-of-00002.safetensors", "a")
			write(t, dir, "second half.safetensors", "c")
			write(t, dir, "not the model.safetensors", "b")
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"model.safetensors-00001-of-00002.safetensors","c":"second half.safetensors"}}`)
		}, "a c"},
		"shards without an index, beside an adapter": {func(t *testing.T, dir string) {
			write(t, dir, "part1.safetensors", "a")
			write(t, dir, "part2.safetensors", "b")
			write(t, dir, "adapter_model.safetensors", "c")
		}, "a b"},
		"a shard is missing": {func(t *testing.T, dir string) {
			write(t, dir, "x.safetensors", "a")
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"x.safetensors","b":"y.safetensors"}}`)
		}, "the shard y.safetensors is missing"},
		"a tensor is missing": {func(t *testing.T, dir string) {
			write(t, dir, "x.safetensors", "a")
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"x.safetensors","b":"x.safetensors"}}`)
		}, `tensor "b" is in x.safetensors, but it is not there`},
		"a tensor in two shards": {func(t *testing.T, dir string) {
			write(t, dir, "x.safetensors", "a")
			write(t, dir, "y.safetensors", "a")
		}, "appears twice"},
		"an index that leaves the folder": {func(t *testing.T, dir string) {
			put(t, dir, "model.safetensors.index.json", `{"weight_map":{"a":"../x.safetensors"}}`)
		}, "not a file name in the same folder"},
		"only a pickle": {func(t *testing.T, dir string) { put(t, dir, "pytorch_model.bin", "") }, "is a pickle"},
		"nothing":       {func(t *testing.T, dir string) {}, "no safetensors weights"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.build(t, dir)
			got := ""
			if ck, err := OpenCheckpoint(dir); err != nil {
				got = err.Error()
			} else {
				for _, x := range ck.Tensors {
					got += x.Name + " "
				}
				if err := ck.Close(); err != nil {
					t.Error(err)
				}
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func put(t *testing.T, dir, name, content string) {
	if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
}

func TestShards(t *testing.T) {
	specs := []tensor.Spec{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}}, {Name: "b", DType: tensor.F32, Shape: tensor.Shape{1}},
		{Name: "big", DType: tensor.F32, Shape: tensor.Shape{100}}, {Name: "c", DType: tensor.F32, Shape: tensor.Shape{3}}}
	shards, err := Shards(specs, 12)
	if err != nil || len(shards) != 3 || len(shards[0]) != 2 || shards[2][0].Name != "c" {
		t.Fatalf("%v, %v", shards, err)
	}
	index, err := Index(shards)
	if err != nil || !strings.Contains(string(index), `"c": "model-00003-of-00003.safetensors"`) || !strings.Contains(string(index), `"total_size": 424`) {
		t.Errorf("%s, %v", index, err)
	}
}

// TestFileThatShrinks checks that a mapped file that becomes shorter is an error and not the end of the process.
func TestFileThatShrinks(t *testing.T) {
	path := filepath.Join(t.TempDir(), "m.safetensors")
	var b bytes.Buffer
	const n = 1 << 20
	if err := Write(&b, []tensor.Spec{{Name: "a", DType: tensor.U8, Shape: tensor.Shape{n}}}, nil, map[string][]byte{"a": make([]byte, n)}); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Dir(path), filepath.Base(path), b.String())
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Truncate(path, 100); err != nil {
		t.Fatal(err)
	}
	sum := 0
	err = f.Tensors[0].View(func(b []byte) error {
		for _, x := range b {
			sum += int(x)
		}
		return nil
	})
	if err == nil {
		t.Error("View of a file cut short succeeded")
	}
	if _, err := f.Tensors[0].ReadAll(); err == nil {
		t.Error("ReadAll of a file cut short succeeded")
	}
}

func FuzzRead(f *testing.F) {
	f.Add(file(`{"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`, make([]byte, 8)...))
	f.Add(file(`{"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[],"data_offsets":[4,5]}}  `, 1, 2, 3, 4, 5))
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := read(b)
		if err != nil {
			return
		}
		var specs []tensor.Spec
		data := map[string][]byte{}
		for _, s := range x.Tensors {
			specs = append(specs, s.Spec)
			if data[s.Name], err = s.ReadAll(); err != nil {
				t.Fatalf("an accepted file cannot be read: %v", err)
			}
		}
		var out bytes.Buffer
		if err := Write(&out, specs, x.Metadata, data); err != nil {
			t.Fatalf("an accepted file cannot be written: %v", err)
		}
		y, err := read(out.Bytes())
		if err != nil || len(y.Tensors) != len(x.Tensors) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
		for _, s := range y.Tensors {
			if got, err := s.ReadAll(); err != nil || !bytes.Equal(got, data[s.Name]) {
				t.Fatalf("tensor %q changed", s.Name)
			}
		}
	})
}
