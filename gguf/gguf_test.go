package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"quern/internal/binread"
	"quern/internal/testenv"
	"quern/tensor"
)

func read(b []byte) (*File, error) { return Read(bytes.NewReader(b), int64(len(b))) }

// raw writes a file field by field, so that each can lie.
type raw struct{ bytes.Buffer }

func start(version uint32, tensors, keys uint64) *raw {
	r := &raw{}
	r.WriteString("GGUF")
	return r.put(version, tensors, keys)
}

func (r *raw) put(values ...any) *raw {
	for _, v := range values {
		if s, ok := v.(string); ok {
			r.put(uint64(len(s)))
			r.WriteString(s)
			continue
		}
		binary.Write(r, binary.LittleEndian, v)
	}
	return r
}

// data pads to the alignment and appends the data section.
func (r *raw) data(n int) []byte {
	for r.Len()%32 != 0 {
		r.WriteByte(0)
	}
	return append(r.Bytes(), make([]byte, n)...)
}

const f32, q8 = uint32(0), uint32(8)

// TestLies has one file for every way in which a header can be wrong.
func TestLies(t *testing.T) {
	one := func() *raw { return start(3, 1, 0) } // what follows is one tensor
	kv := func() *raw { return start(3, 0, 1) }  // what follows is one metadata entry
	if _, err := read(one().put("a", uint32(1), uint64(4), f32, uint64(0)).data(16)); err != nil {
		t.Fatalf("the good file: %v", err)
	}
	for name, c := range map[string]struct {
		file []byte
		want error
	}{
		"empty":                         {nil, ErrMagic},
		"three letters":                 {[]byte("GGU"), ErrMagic},
		"other magic":                   {[]byte("GGML\x03\x00\x00\x00"), ErrMagic},
		"no counts":                     {[]byte("GGUF\x03\x00\x00\x00"), binread.ErrTruncated},
		"version 0":                     {start(0, 0, 0).Bytes(), ErrVersion},
		"version 1":                     {start(1, 0, 0).Bytes(), ErrVersion},
		"version 4":                     {start(4, 0, 0).Bytes(), ErrVersion},
		"big-endian":                    {start(3<<24, 0, 0).Bytes(), ErrVersion},
		"tensors near 2^64":             {start(3, math.MaxUint64, 0).Bytes(), ErrCount},
		"tensors that wrap when sized":  {start(3, 1<<61, 0).data(64), ErrCount},
		"more tensors than bytes":       {start(3, 100, 0).data(64), ErrCount},
		"keys near 2^64":                {start(3, 0, math.MaxUint64).Bytes(), ErrCount},
		"more keys than bytes":          {start(3, 0, 1000).data(640), ErrCount},
		"key longer than the file":      {kv().put(uint64(1000)).data(64), binread.ErrTruncated},
		"key near 2^64":                 {kv().put(uint64(math.MaxUint64)).data(64), ErrKey},
		"key of 64 KiB":                 {kv().put(strings.Repeat("k", 1<<16), uint32(0), uint8(1)).data(0), ErrKey},
		"empty key":                     {kv().put("", uint32(0), uint8(1)).data(64), ErrKey},
		"key twice":                     {start(3, 0, 2).put("k", uint32(0), uint8(1), "k", uint32(0), uint8(1)).Bytes(), ErrDuplicate},
		"value type 13":                 {kv().put("k", uint32(13), uint64(0)).Bytes(), ErrValue},
		"array of arrays":               {kv().put("k", uint32(9), uint32(9), uint64(1), uint32(0), uint64(0)).Bytes(), ErrValue},
		"cut value":                     {kv().put("key", uint32(10), uint32(0)).Bytes(), binread.ErrTruncated},
		"string longer than the file":   {kv().put("k", uint32(8), uint64(1000)).data(64), binread.ErrTruncated},
		"string near 2^63":              {kv().put("k", uint32(8), uint64(math.MaxInt64)).data(64), nil},
		"array longer than the file":    {kv().put("k", uint32(9), uint32(4), uint64(1000)).data(64), binread.ErrTruncated},
		"array whose size wraps":        {kv().put("k", uint32(9), uint32(10), uint64(1<<61)).data(64), binread.ErrTruncated},
		"strings longer than the file":  {kv().put("k", uint32(9), uint32(8), uint64(2), uint64(1), byte('a'), uint64(99)).data(32), binread.ErrTruncated},
		"alignment 0":                   {kv().put(alignmentKey, uint32(4), uint32(0)).Bytes(), ErrAlignment},
		"alignment 24":                  {kv().put(alignmentKey, uint32(4), uint32(24)).Bytes(), ErrAlignment},
		"alignment 2^31":                {kv().put(alignmentKey, uint32(4), uint32(1<<31)).Bytes(), ErrAlignment},
		"alignment of another type":     {kv().put(alignmentKey, uint32(10), uint64(32)).Bytes(), ErrAlignment},
		"tensor name longer than file":  {one().put(uint64(60), uint64(0), uint64(0)).Bytes(), ErrName},
		"tensor name of 64 bytes":       {one().put(strings.Repeat("n", 64), uint32(1), uint64(4), f32, uint64(0)).data(16), ErrName},
		"empty tensor name":             {one().put("", uint32(1), uint64(4), f32, uint64(0)).data(16), ErrName},
		"tensor name twice":             {start(3, 2, 0).put("a", uint32(1), uint64(4), f32, uint64(0), "a", uint32(1), uint64(4), f32, uint64(32)).data(48), ErrDuplicate},
		"5 dimensions":                  {one().put("a", uint32(5), uint64(1), uint64(1), uint64(1), uint64(1), uint64(1), f32, uint64(0)).data(4), ErrShape},
		"a million dimensions":          {one().put("a", uint32(1_000_000), uint64(1)).data(64), ErrShape},
		"2^32-1 dimensions":             {one().put("a", uint32(math.MaxUint32), uint64(1)).data(64), ErrShape},
		"dimension 0":                   {one().put("a", uint32(1), uint64(0), f32, uint64(0)).data(16), ErrShape},
		"negative dimension":            {one().put("a", uint32(1), uint64(math.MaxUint64), f32, uint64(0)).data(16), ErrShape},
		"product wraps to 0":            {one().put("a", uint32(2), uint64(1<<32), uint64(1<<32), f32, uint64(0)).data(16), ErrShape},
		"product wraps to 4":            {one().put("a", uint32(4), uint64(1<<61), uint64(8), uint64(1), uint64(4), f32, uint64(0)).data(16), ErrShape},
		"bytes wrap":                    {one().put("a", uint32(1), uint64(1<<61), f32, uint64(0)).data(16), ErrShape},
		"rows that are not whole block": {one().put("a", uint32(1), uint64(33), q8, uint64(0)).data(68), ErrShape},
		"type 43":                       {one().put("a", uint32(1), uint64(4), uint32(43), uint64(0)).data(16), ErrType},
		"removed type 4":                {one().put("a", uint32(1), uint64(32), uint32(4), uint64(0)).data(64), ErrType},
		"type 2^32-1":                   {one().put("a", uint32(1), uint64(4), uint32(math.MaxUint32), uint64(0)).data(16), ErrType},
		"cut description":               {one().put("abcdefgh", uint32(1), uint64(4)).Bytes(), binread.ErrTruncated},
		"offset not the expected":       {one().put("a", uint32(1), uint64(4), f32, uint64(32)).data(64), ErrOffset},
		"offset near 2^64":              {one().put("a", uint32(1), uint64(4), f32, uint64(math.MaxUint64-15)).data(64), ErrOffset},
		"overlapping":                   {start(3, 2, 0).put("a", uint32(1), uint64(4), f32, uint64(0), "b", uint32(1), uint64(4), f32, uint64(0)).data(48), ErrOffset},
		"doubled dimension":             {one().put("a", uint32(1), uint64(8), f32, uint64(0)).data(16), ErrBounds},
		"cut data":                      {one().put("a", uint32(1), uint64(4), f32, uint64(0)).data(15), ErrBounds},
		"no data section":               {one().put("a", uint32(1), uint64(4), f32, uint64(0)).Bytes(), ErrBounds},
		"second tensor beyond the end":  {start(3, 2, 0).put("a", uint32(1), uint64(4), f32, uint64(0), "b", uint32(1), uint64(4), f32, uint64(32)).data(40), ErrBounds},
	} {
		_, err := read(c.file)
		if err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// TestEveryCut reads every beginning of a good file: all but the whole one must be refused.
func TestEveryCut(t *testing.T) {
	whole := example(t)
	for n := range len(whole) {
		if _, err := read(whole[:n]); err == nil && n < len(whole)-28 { // the padding of the last tensor may be missing
			t.Errorf("a file cut from %d to %d bytes was accepted", len(whole), n)
		}
	}
}

var exampleMeta = Metadata{
	{"general.architecture", "test"}, {"a", uint8(1)}, {"b", int8(-1)}, {"c", uint16(2)}, {"d", int16(-2)}, {"e", uint32(3)},
	{"f", int32(-3)}, {"g", float32(0.5)}, {"h", true}, {"i", uint64(4)}, {"j", int64(-4)}, {"k", 0.25},
	{"l", []string{"x", "", "žluťoučký"}}, {"m", []int32{1, -2}}, {"n", []bool{true, false}}, {"o", []uint8{1, 2, 3}},
	{"p", []float64{1.5}}, {"q", []uint64{}}, {"r", []int8{-1}}, {"s", []uint16{1}}, {"t", []int16{1}}, {"u", []uint32{1}},
	{"v", []float32{1}}, {"w", []int64{1}},
}

func example(t testing.TB) []byte {
	specs := []tensor.Spec{
		{Name: "x.weight", DType: tensor.Q8_0, Shape: tensor.Shape{3, 32}},
		{Name: "scalar", DType: tensor.F32},
		{Name: "four", DType: tensor.F16, Shape: tensor.Shape{1, 2, 3, 5}},
		{Name: "y", DType: tensor.F32, Shape: tensor.Shape{1}},
	}
	data := map[string][]byte{}
	for i, s := range specs {
		n, _ := s.DType.Bytes(s.Shape)
		data[s.Name] = bytes.Repeat([]byte{byte(i + 1)}, int(n))
	}
	var b bytes.Buffer
	if err := Write(&b, exampleMeta, specs, data); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func TestRoundTrip(t *testing.T) {
	f, err := read(example(t))
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprintf("%#v", f.Meta), fmt.Sprintf("%#v", exampleMeta); got != want {
		t.Errorf("metadata\n%s\nwant\n%s", got, want)
	}
	if s := f.Lookup("four").Shape; !s.Equal(tensor.Shape{1, 2, 3, 5}) {
		t.Errorf("shape %v", s)
	}
	if f.Lookup("x.weight").Bytes() != 3*34 || f.Architecture() != "test" {
		t.Error("wrong contents")
	}
	if n, ok := f.Meta.Int("j"); !ok || n != -4 {
		t.Error("Int of an int64")
	}
	if x, ok := f.Meta.Float("g"); !ok || x != 0.5 {
		t.Error("Float of a float32")
	}
}

// TestVersion2 reads a file of version 2, whose layout is that of version 3.
func TestVersion2(t *testing.T) {
	file := example(t)
	file[4] = 2
	f, err := read(file)
	if err != nil || f.Version != 2 || len(f.Tensors) != 4 {
		t.Errorf("%+v, %v", f, err)
	}
}

func TestWriterRefuses(t *testing.T) {
	ok := tensor.Spec{Name: "a", DType: tensor.F32, Shape: tensor.Shape{2}}
	for name, c := range map[string]struct {
		meta  Metadata
		specs []tensor.Spec
		want  error
	}{
		"int":            {Metadata{{"k", 1}}, nil, ErrValue},
		"empty key":      {Metadata{{"", "v"}}, nil, ErrKey},
		"key twice":      {Metadata{{"k", "v"}, {"k", "v"}}, nil, ErrDuplicate},
		"alignment":      {Metadata{{alignmentKey, uint32(3)}}, nil, ErrAlignment},
		"name twice":     {nil, []tensor.Spec{ok, ok}, ErrDuplicate},
		"long name":      {nil, []tensor.Spec{{Name: strings.Repeat("n", 64), DType: tensor.F32, Shape: tensor.Shape{2}}}, ErrName},
		"five":           {nil, []tensor.Spec{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{1, 1, 1, 1, 1}}}, ErrShape},
		"broken block":   {nil, []tensor.Spec{{Name: "a", DType: tensor.Q8_0, Shape: tensor.Shape{3, 31}}}, ErrShape},
		"safetensors'":   {nil, []tensor.Spec{{Name: "a", DType: tensor.Bool, Shape: tensor.Shape{3}}}, ErrType},
		"zero dimension": {nil, []tensor.Spec{{Name: "a", DType: tensor.F32, Shape: tensor.Shape{0}}}, ErrShape},
	} {
		if _, err := NewLayout(c.meta, c.specs); !errors.Is(err, c.want) {
			t.Errorf("%s: error %v, want %v", name, err, c.want)
		}
	}
}

// TestRewriteIsByteEqual reads files of the reference converter and writes them again: not a byte may differ.
func TestRewriteIsByteEqual(t *testing.T) {
	files, _ := filepath.Glob(filepath.Join(testenv.OracleInputs(t, "models", "gguf"), "*.gguf"))
	if len(files) == 0 {
		t.Fatal("no case found")
	}
	for _, path := range files {
		f, err := Open(path)
		if err != nil {
			t.Error(err)
			continue
		}
		var specs []tensor.Spec
		data := map[string][]byte{}
		for _, x := range f.Tensors {
			specs = append(specs, x.Spec)
			data[x.Name], _ = x.ReadAll()
		}
		var got bytes.Buffer
		if err := Write(&got, f.Meta, specs, data); err != nil {
			t.Error(err)
		}
		want, _ := os.ReadFile(path)
		if !bytes.Equal(got.Bytes(), want) {
			t.Errorf("%s: written again it differs", path)
		}
		f.Close()
	}
	t.Logf("%d files", len(files))
}

func TestSplit(t *testing.T) {
	part := func(dir, name string, no, count uint16, total int32, tensors ...string) {
		var specs []tensor.Spec
		data := map[string][]byte{}
		for _, n := range tensors {
			specs = append(specs, tensor.Spec{Name: n, DType: tensor.F32, Shape: tensor.Shape{1}})
			data[n] = []byte{1, 2, 3, 4}
		}
		meta := Metadata{{splitNoKey, no}, {splitCountKey, count}, {splitTensorsKey, total}}
		var b bytes.Buffer
		if err := Write(&b, meta, specs, data); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), b.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	const one, two = "m-00001-of-00002.gguf", "m-00002-of-00002.gguf"
	for name, c := range map[string]struct {
		build func(dir string)
		open  string
		want  string // names found, or part of the error
	}{
		"good":             {func(d string) { part(d, one, 0, 2, 3, "a"); part(d, two, 1, 2, 3, "b", "c") }, one, "a b c"},
		"a missing part":   {func(d string) { part(d, one, 0, 2, 3, "a") }, one, two},
		"the second part":  {func(d string) { part(d, one, 0, 2, 3, "a"); part(d, two, 1, 2, 3, "b", "c") }, two, "give the first part"},
		"renamed":          {func(d string) { part(d, "m.gguf", 0, 2, 3, "a") }, "m.gguf", "must be called"},
		"wrong order":      {func(d string) { part(d, one, 0, 2, 2, "a"); part(d, two, 0, 2, 2, "b") }, one, "says that it is part 1"},
		"a missing tensor": {func(d string) { part(d, one, 0, 2, 3, "a"); part(d, two, 1, 2, 3, "b") }, one, "3 tensors announced, 2 found"},
		"a tensor twice":   {func(d string) { part(d, one, 0, 2, 2, "a"); part(d, two, 1, 2, 2, "a") }, one, "again"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			c.build(dir)
			got := ""
			if f, err := Open(filepath.Join(dir, c.open)); err != nil {
				got = err.Error()
			} else {
				for _, x := range f.Tensors {
					got += x.Name + " "
				}
				f.Close()
			}
			if !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
}

func FuzzRead(f *testing.F) {
	f.Add(example(f))
	f.Add(start(3, 1, 0).put("a", uint32(1), uint64(4), f32, uint64(0)).data(16))
	f.Add(start(2, 0, 1).put("k", uint32(9), uint32(8), uint64(1), "v").Bytes())
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
		if err := Write(&out, x.Meta, specs, data); err != nil {
			t.Fatalf("an accepted file cannot be written: %v", err)
		}
		y, err := read(out.Bytes())
		if err != nil || len(y.Tensors) != len(x.Tensors) || len(y.Meta) != len(x.Meta) {
			t.Fatalf("what was written cannot be read: %v", err)
		}
	})
}
