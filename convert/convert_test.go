package convert

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"quern/gguf"
	"quern/internal/testenv"
	"quern/safetensors"
	"quern/tensor"
)

// manifest describes a GGUF file that the reference converter wrote.
type manifest struct {
	Source  string
	Outtype string
	Args    []string
	KV      []struct {
		Key, Type, Elem, SHA256 string
		Value                   any
	}
	Tensors []struct {
		Name, Type, SHA256 string
		NE                 []int64
		NBytes             int64
		Values             []float64
	}
}

func readManifest(t *testing.T, path string) *manifest {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	m := &manifest{}
	if err := json.Unmarshal(data, m); err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	return m
}

func (m *manifest) options() Options {
	o := Options{Type: Type(m.Outtype)}
	for _, a := range m.Args {
		o.MTP = map[string]MTP{"--no-mtp": DropMTP, "--mtp": OnlyMTP}[a]
	}
	return o
}

// compare converts dir as the manifest says and compares every entry and tensor. It returns the worst difference of
// exponentials in units in the last place.
func (m *manifest) compare(t *testing.T, dir string, o Options) (worst float64) {
	t.Helper()
	out := filepath.Join(t.TempDir(), "out.gguf")
	if _, err := Convert(context.Background(), dir, out, o); err != nil {
		t.Fatal(err)
	}
	f, err := gguf.Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m.compareMetadata(t, f)
	if len(f.Tensors) != len(m.Tensors) {
		t.Errorf("%d tensors, want %d", len(f.Tensors), len(m.Tensors))
	}
	for _, want := range m.Tensors {
		got := f.Lookup(want.Name)
		if got == nil {
			t.Errorf("%s is missing", want.Name)
			continue
		}
		shape := slices.Clone(want.NE)
		slices.Reverse(shape)
		if got.DType.String() != want.Type || !got.Shape.Equal(shape) || got.Bytes() != want.NBytes {
			t.Errorf("%s: %v %v, %d bytes; want %s %v, %d", want.Name, got.DType, got.Shape, got.Bytes(), want.Type, shape, want.NBytes)
			continue
		}
		data, err := got.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		if hex.EncodeToString(sum[:]) == want.SHA256 {
			continue
		}
		if want.Values == nil { // only exponentials are given by value, since their last bit may differ
			t.Errorf("%s: the data differs", want.Name)
			continue
		}
		for i, v := range want.Values {
			x := math.Float32frombits(binary.LittleEndian.Uint32(data[4*i:]))
			ulps := math.Abs(float64(int32(math.Float32bits(x))) - float64(int32(math.Float32bits(float32(v)))))
			if worst = max(worst, ulps); ulps > 1 {
				t.Errorf("%s[%d] = %v, want %v", want.Name, i, x, v)
			}
		}
	}
	return worst
}

// notCompared are derived from the folder's name and the size; everything else must be the reference's.
var notCompared = []string{"general.name", "general.size_label"}

func (m *manifest) compareMetadata(t *testing.T, f *gguf.File) {
	t.Helper()
	want := map[string]string{}
	for _, kv := range m.KV {
		typ, value := kv.Type, fmt.Sprint(kv.Value)
		if kv.Type == "ARRAY" {
			typ, value = "[]"+kv.Elem, kv.SHA256
		}
		want[kv.Key] = typ + " " + value
	}
	for _, kv := range f.Meta {
		got := kv.TypeName() + " " + describe(kv.Value)
		w, ok := want[kv.Key]
		delete(want, kv.Key)
		if slices.Contains(notCompared, kv.Key) {
			if ok && got != w {
				t.Logf("not compared: %s is %s, the reference has %s", kv.Key, got, w)
			}
			continue
		}
		if !ok {
			t.Errorf("metadata %s: the reference does not have it", kv.Key)
		} else if got != w {
			t.Errorf("metadata %s: %s, want %s", kv.Key, got, w)
		}
	}
	for key := range want {
		t.Errorf("metadata %s is missing", key)
	}
}

// describe writes a value as the manifests do: numbers as JSON reads them, arrays by their hash.
func describe(v any) string {
	h := sha256.New()
	switch v := v.(type) {
	case []string:
		for _, s := range v {
			binary.Write(h, binary.LittleEndian, uint64(len(s)))
			h.Write([]byte(s))
		}
	case []int32, []bool, []float32:
		binary.Write(h, binary.LittleEndian, v)
	case string, bool:
		return fmt.Sprint(v)
	default:
		var f float64
		fmt.Sscan(fmt.Sprint(v), &f)
		if x, ok := v.(float32); ok {
			f = float64(x)
		}
		return fmt.Sprint(f)
	}
	return hex.EncodeToString(h.Sum(nil))
}

// TestCheckpointsAreTheReferences converts the checkpoints with every choice that there is a reference for.
func TestCheckpointsAreTheReferences(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "*.manifest.json"))
	if len(files) == 0 {
		t.Fatal("no case found")
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".manifest.json"), func(t *testing.T) {
			m := readManifest(t, path)
			worst := m.compare(t, testenv.OracleInputs(t, "models", "checkpoints", m.Source), m.options())
			t.Logf("worst difference of an exponential: %v units in the last place", worst)
		})
	}
}

// TestMergesAreTheReferences converts merged checkpoints, put together from their base and what the merge changed.
func TestMergesAreTheReferences(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testenv.Oracles(t, "models", "merged"), "*", "gguf", "*.manifest.json"))
	if len(files) == 0 {
		t.Fatal("no case found")
	}
	for _, path := range files {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".manifest.json"), func(t *testing.T) {
			m := readManifest(t, path)
			merged := filepath.Dir(filepath.Dir(path))
			at := strings.LastIndexByte(m.Source, '-')
			dir := filepath.Join(t.TempDir(), m.Source) // names are derived from the folder
			buildMerge(t, merged, m.Source[at+1:], dir, nil)
			m.compare(t, dir, m.options())
		})
	}
}

// TestMultimodalAsTransformersSavesIt converts a merge of the multimodal class as Transformers writes it: without the
// layers for multi-token prediction that config.json still announces. The reference then writes a file that cannot be
// loaded; ours must be the one that the reference writes when it is told to leave them out.
func TestMultimodalAsTransformersSavesIt(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testenv.Oracles(t, "models", "merged"), "*", "gguf-as-saved", "*-no-mtp.*.manifest.json"))
	if len(files) == 0 {
		testenv.Missing(t, "no merge of this kind among the references")
	}
	for _, path := range files {
		m := readManifest(t, path)
		dir := filepath.Join(t.TempDir(), m.Source)
		buildMerge(t, filepath.Dir(filepath.Dir(path)), "bf16", dir, func(s *tensor.Spec, data []byte) []byte {
			if strings.HasPrefix(s.Name, "mtp.") {
				return nil
			}
			return recode(t, s, data, tensor.BF16)
		})
		m.compare(t, dir, Options{Type: Type(m.Outtype)})
		m.compare(t, dir, m.options())
		report, err := Convert(context.Background(), dir, filepath.Join(t.TempDir(), "out.gguf"), Options{})
		if err != nil || len(report.Warnings) != 1 || !strings.Contains(report.Warnings[0], "announces 1 layers") {
			t.Errorf("warnings %q, error %v", report.Warnings, err)
		}
	}
}

// recode converts stored data to another type and sets it in s.
func recode(t *testing.T, s *tensor.Spec, data []byte, to tensor.DType) []byte {
	if s.DType == to {
		return data
	}
	n, _ := s.Shape.Elements()
	values := make([]float32, n)
	if err := tensor.Decode(values, data, s.DType); err != nil {
		t.Fatal(err)
	}
	size, _ := to.RowBytes(n)
	out := make([]byte, size)
	if err := tensor.Encode(out, values, to); err != nil {
		t.Fatal(err)
	}
	s.DType = to
	return out
}

// buildMerge writes the merged checkpoint that merge.json in the folder merged describes, for one dtype. edit may
// change tensors or leave them out.
func buildMerge(t *testing.T, merged, dtype, dir string, edit func(s *tensor.Spec, data []byte) []byte) {
	t.Helper()
	var info struct {
		Base   string
		Merges map[string]struct {
			All map[string]struct{ DType, SHA256 string } `json:"all_tensors"`
		}
	}
	if err := readJSON(os.DirFS(merged), "merge.json", &info); err != nil {
		t.Fatal(err)
	}
	base := testenv.OracleInputs(t, "models", "checkpoints", info.Base)
	copyFiles(t, base, dir)
	ck, err := safetensors.OpenCheckpoint(base)
	if err != nil {
		t.Fatal(err)
	}
	defer ck.Close()
	changed, err := safetensors.Open(filepath.Join(merged, "changed-"+dtype+".safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	defer changed.Close()

	var specs []tensor.Spec
	contents := map[string][]byte{}
	add := func(stored *tensor.Stored) {
		data, err := stored.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		s := stored.Spec
		want := info.Merges[dtype].All[s.Name]
		to := map[string]tensor.DType{"float32": tensor.F32, "bfloat16": tensor.BF16, "float16": tensor.F16}[want.DType]
		data = recode(t, &s, data, to)
		if sum := sha256.Sum256(data); hex.EncodeToString(sum[:]) != want.SHA256 {
			t.Fatalf("%s: the merge was not put together right", s.Name)
		}
		if edit != nil {
			if data = edit(&s, data); data == nil {
				return
			}
		}
		specs, contents[s.Name] = append(specs, s), data
	}
	for i := range ck.Tensors {
		if x := changed.Lookup(ck.Tensors[i].Name); x != nil {
			add(x)
		} else {
			add(&ck.Tensors[i])
		}
	}
	writeWeights(t, dir, specs, contents)
}

func writeWeights(t *testing.T, dir string, specs []tensor.Spec, contents map[string][]byte) {
	t.Helper()
	var b bytes.Buffer
	if err := safetensors.Write(&b, specs, map[string]string{"format": "pt"}, contents); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "model.safetensors"), b.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
}

// copyFiles copies a checkpoint folder without its weights.
func copyFiles(t *testing.T, from, to string) {
	t.Helper()
	if err := os.MkdirAll(to, 0o755); err != nil {
		t.Fatal(err)
	}
	entries, err := os.ReadDir(from)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.Contains(e.Name(), ".safetensors") {
			continue
		}
		data, err := os.ReadFile(filepath.Join(from, e.Name()))
		if err == nil {
			err = os.WriteFile(filepath.Join(to, e.Name()), data, 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}
