package safetensors

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"quern/tensor"
)

// ErrNoWeights is wrapped when a folder holds no safetensors weights.
var ErrNoWeights = errors.New("no safetensors weights")

// Checkpoint is an open folder of safetensors weights: one file or several shards. It may be used by several
// goroutines.
type Checkpoint struct {
	Dir     string
	Files   []*File
	Tensors []tensor.Stored // of all files, by name

	byName map[string]int
}

// OpenCheckpoint opens the weights in dir. An index (*.safetensors.index.json) names the shards; without one, all
// *.safetensors files are the model, whatever they are called, except an adapter's. Every tensor that the index
// promises must be in the file that it names, and none may be there twice.
func OpenCheckpoint(dir string) (*Checkpoint, error) {
	index, shards, err := findShards(dir)
	if err != nil {
		return nil, err
	}
	c := &Checkpoint{Dir: dir, byName: map[string]int{}}
	fileOf := map[string]string{}
	for _, name := range shards {
		f, err := Open(filepath.Join(dir, name))
		if errors.Is(err, os.ErrNotExist) {
			err = fmt.Errorf("open %s: the shard %s is missing; the download may be incomplete", dir, name)
		}
		if err != nil {
			c.Close()
			return nil, err
		}
		c.Files = append(c.Files, f)
		for _, t := range f.Tensors {
			if other, twice := fileOf[t.Name]; twice {
				c.Close()
				return nil, fmt.Errorf("open %s: %w: %q is in %s and in %s", dir, ErrDuplicate, t.Name, other, name)
			}
			fileOf[t.Name] = name
			c.Tensors = append(c.Tensors, t)
		}
	}
	for name, shard := range index {
		if fileOf[name] != shard {
			c.Close()
			return nil, fmt.Errorf("open %s: the index says that tensor %q is in %s, but it is not there", dir, name, shard)
		}
	}
	slices.SortFunc(c.Tensors, func(a, b tensor.Stored) int { return strings.Compare(a.Name, b.Name) })
	for i, t := range c.Tensors {
		c.byName[t.Name] = i
	}
	return c, nil
}

// Lookup returns the tensor of that name, nil if there is none.
func (c *Checkpoint) Lookup(name string) *tensor.Stored {
	if i, ok := c.byName[name]; ok {
		return &c.Tensors[i]
	}
	return nil
}

// Close closes all files.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, f := range c.Files {
		errs = append(errs, f.Close())
	}
	return errors.Join(errs...)
}

// findShards returns the index's map from tensor to file, empty without an index, and the files' names, sorted.
func findShards(dir string) (index map[string]string, shards []string, err error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, err
	}
	var indexes []string
	for _, e := range entries {
		switch name := e.Name(); {
		case strings.HasSuffix(name, ".safetensors.index.json"):
			indexes = append(indexes, name)
		case strings.HasSuffix(name, ".safetensors") && !strings.HasPrefix(name, "adapter_model") && !strings.HasPrefix(name, "."):
			shards = append(shards, name)
		}
	}
	switch {
	case slices.Contains(shards, "model.safetensors"): // Transformers prefers it to an index
		return nil, []string{"model.safetensors"}, nil
	case len(indexes) > 1:
		return nil, nil, fmt.Errorf("open %s: several indexes: %s; keep the one that belongs to the model", dir, strings.Join(indexes, ", "))
	case len(indexes) == 1:
		return readIndex(filepath.Join(dir, indexes[0]))
	case len(shards) == 0:
		return nil, nil, fmt.Errorf("open %s: %w: no *.safetensors file%s", dir, ErrNoWeights, pickleHint(entries))
	}
	return nil, shards, nil
}

func pickleHint(entries []os.DirEntry) string {
	for _, e := range entries {
		if strings.HasSuffix(e.Name(), ".bin") || strings.HasSuffix(e.Name(), ".pt") || strings.HasSuffix(e.Name(), ".pth") {
			return fmt.Sprintf("; %s is a pickle, which can run code when it is read, and is not supported: save the model as safetensors", e.Name())
		}
	}
	return ""
}

func readIndex(path string) (map[string]string, []string, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, nil, err
	}
	var index struct {
		WeightMap map[string]string `json:"weight_map"`
	}
	if err := json.Unmarshal(data, &index); err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", path, err)
	}
	files := map[string]bool{}
	for name, file := range index.WeightMap {
		if file == "" || file != filepath.Base(file) || strings.ContainsAny(file, `/\`) || file == ".." || file == "." {
			return nil, nil, fmt.Errorf("read %s: tensor %q: %q is not a file name in the same folder", path, name, file)
		}
		files[file] = true
	}
	if len(files) == 0 {
		return nil, nil, fmt.Errorf("read %s: %w: the weight_map is empty", path, ErrNoWeights)
	}
	return index.WeightMap, slices.Sorted(maps.Keys(files)), nil
}

// Shards divides tensors into groups of at most maxBytes of data each, in the given order; a larger tensor stands
// alone. maxBytes of 0 means one group.
func Shards(specs []tensor.Spec, maxBytes int64) ([][]tensor.Spec, error) {
	var shards [][]tensor.Spec
	var size int64
	for _, t := range specs {
		n, err := t.DType.Bytes(t.Shape)
		if err != nil {
			return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
		}
		if len(shards) == 0 || maxBytes > 0 && size > 0 && size+n > maxBytes {
			shards = append(shards, nil)
			size = 0
		}
		shards[len(shards)-1] = append(shards[len(shards)-1], t)
		size += n
	}
	return shards, nil
}

// ShardName returns the usual name of shard i of n, counted from 0: model.safetensors when it is the only one.
func ShardName(i, n int) string {
	if n == 1 {
		return "model.safetensors"
	}
	return fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, n)
}

// IndexName is the usual name of the index of shards.
const IndexName = "model.safetensors.index.json"

// Index returns the contents of the index of shards named by ShardName.
func Index(shards [][]tensor.Spec) ([]byte, error) {
	var index struct {
		Metadata struct {
			TotalSize int64 `json:"total_size"`
		} `json:"metadata"`
		WeightMap map[string]string `json:"weight_map"`
	}
	index.WeightMap = map[string]string{}
	for i, shard := range shards {
		for _, t := range shard {
			n, err := t.DType.Bytes(t.Shape)
			if err != nil {
				return nil, fmt.Errorf("tensor %s: %w", t.Name, err)
			}
			index.Metadata.TotalSize += n
			index.WeightMap[t.Name] = ShardName(i, len(shards))
		}
	}
	data, err := json.MarshalIndent(index, "", "  ")
	return append(data, '\n'), err
}
