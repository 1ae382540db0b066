package gguf

import (
	"fmt"
	"path/filepath"
	"regexp"
	"strconv"

	"quern/internal/binread"
)

// Metadata of split models (llama.cpp: tools/gguf-split). Every part has the first two; parts count from 0 in the
// metadata and from 1 in the file names.
const (
	splitNoKey      = "split.no"
	splitCountKey   = "split.count"
	splitTensorsKey = "split.tensors.count"
)

var partName = regexp.MustCompile(`^(.*)-(\d{5})-of-(\d{5})\.gguf$`)

// Open opens a file and reads its header; given the first part of a split model, all its parts. Close it after use.
func Open(path string) (*File, error) {
	f, err := openOne(path)
	if err != nil {
		return nil, err
	}
	count, _ := f.Meta.Int(splitCountKey)
	if count <= 1 {
		return f, nil
	}
	if err := f.openParts(count); err != nil {
		f.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return f, nil
}

func openOne(path string) (*File, error) {
	r, err := binread.Open(path)
	if err != nil {
		return nil, err
	}
	f, err := Read(r, r.Size())
	if err != nil {
		r.Close()
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	f.Path, f.Parts = path, []string{path}
	f.closers = append(f.closers, r)
	return f, nil
}

// openParts adds the tensors of the other parts to f, the first one.
func (f *File) openParts(count int64) error {
	dir, base := filepath.Split(f.Path)
	m := partName.FindStringSubmatch(base)
	if m == nil || m[3] != fmt.Sprintf("%05d", count) {
		return fmt.Errorf("%w: a part of %d must be called NAME-00001-of-%05d.gguf", ErrSplit, count, count)
	}
	name := func(i int64) string { return fmt.Sprintf("%s%s-%05d-of-%05d.gguf", dir, m[1], i+1, count) }
	if no, ok := f.Meta.Int(splitNoKey); !ok || no != 0 || m[2] != "00001" {
		return fmt.Errorf("%w: this is part %s; give the first part, %s", ErrSplit, strconv.FormatInt(no+1, 10), name(0))
	}
	for i := int64(1); i < count; i++ {
		if err := f.openPart(name(i), i, count); err != nil {
			return err
		}
	}
	if want, ok := f.Meta.Int(splitTensorsKey); !ok || want != int64(len(f.Tensors)) {
		return fmt.Errorf("%w: %d tensors announced, %d found in %d parts", ErrSplit, want, len(f.Tensors), count)
	}
	return nil
}

func (f *File) openPart(path string, no, count int64) error {
	part, err := openOne(path)
	if err != nil {
		return fmt.Errorf("%w: part %d of %d: %w", ErrSplit, no+1, count, err)
	}
	f.closers = append(f.closers, part.closers...)
	f.Parts = append(f.Parts, path)
	gotNo, ok := part.Meta.Int(splitNoKey)
	gotCount, ok2 := part.Meta.Int(splitCountKey)
	if !ok || !ok2 || gotNo != no || gotCount != count {
		return fmt.Errorf("%w: %s says that it is part %d of %d", ErrSplit, path, gotNo+1, gotCount)
	}
	for _, t := range part.Tensors {
		if _, twice := f.byName[t.Name]; twice {
			return fmt.Errorf("%w: %w: tensor %q again in %s", ErrSplit, ErrDuplicate, t.Name, path)
		}
		f.byName[t.Name] = len(f.Tensors)
		f.Tensors = append(f.Tensors, t)
	}
	return nil
}
