// Package inspect says what is in a model file: a GGUF, a safetensors file, a checkpoint folder or an adapter; what it
// needs to run; and how two of them differ.
package inspect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"quern/arch"
	"quern/convert"
	"quern/gguf"
	"quern/lora"
	"quern/safetensors"
	"quern/tensor"
)

// Kind is what a path holds.
type Kind string

const (
	KindGGUF        Kind = "gguf"
	KindCheckpoint  Kind = "checkpoint"  // a Hugging Face folder
	KindSafetensors Kind = "safetensors" // a single file
	KindAdapter     Kind = "adapter"     // PEFT: folder, file or zip
	KindGGUFAdapter Kind = "gguf-adapter"
)

// Subject is an open model, adapter or file of tensors. Close it after use.
type Subject struct {
	Path     string
	Kind     Kind
	Parts    int             // files that hold the tensors
	Tensors  []tensor.Stored // as stored
	Meta     gguf.Metadata   // of a GGUF; of a checkpoint, what its GGUF would have
	Adapter  *lora.Adapter   // of an adapter
	Problems []string        // what keeps it from being converted or run

	model   *arch.Model      // the table; nil where the architecture has none
	hf      *arch.Checkpoint // of a checkpoint
	header  map[string]string
	closers []io.Closer
}

// Open opens a path, whatever of these it is.
func Open(path string) (*Subject, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	kind, err := sniff(path, info.IsDir())
	if err != nil {
		return nil, err
	}
	s := &Subject{Path: path, Kind: kind, Parts: 1}
	read := map[Kind]func() error{KindGGUF: s.openGGUF, KindCheckpoint: s.openCheckpoint, KindAdapter: s.openAdapter, KindSafetensors: s.openSafetensors}
	if err := read[kind](); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// Close closes all files.
func (s *Subject) Close() error {
	var errs []error
	for _, c := range s.closers {
		errs = append(errs, c.Close())
	}
	s.closers = nil
	return errors.Join(errs...)
}

// sniff tells the kind by what is there, files by their first bytes.
func sniff(path string, isDir bool) (Kind, error) {
	exists := func(dir, name string) bool {
		_, err := os.Stat(filepath.Join(dir, name))
		return err == nil
	}
	if isDir {
		if exists(path, "config.json") && !exists(path, "adapter_config.json") {
			return KindCheckpoint, nil
		}
		return KindAdapter, nil // whose reader says what is missing
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	magic := make([]byte, 4)
	if _, err := io.ReadFull(f, magic); err != nil {
		return "", fmt.Errorf("%s: too short for a model file", path)
	}
	switch {
	case string(magic) == "GGUF":
		return KindGGUF, nil
	case string(magic) == "PK\x03\x04":
		return KindAdapter, nil
	case exists(filepath.Dir(path), "adapter_config.json"):
		return KindAdapter, nil
	case strings.EqualFold(filepath.Ext(path), ".safetensors"):
		return KindSafetensors, nil
	}
	return "", fmt.Errorf("%s: neither GGUF nor safetensors nor a zip archive", path)
}

func (s *Subject) openGGUF() error {
	f, err := gguf.Open(s.Path)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, f)
	s.Parts, s.Tensors, s.Meta = len(f.Parts), f.Tensors, f.Meta
	if kind, _ := f.Meta.Text("general.type"); kind == "adapter" {
		s.Kind = KindGGUFAdapter
		return nil
	}
	if s.model, err = arch.FromGGUF(f.Meta, f.Tensors); err != nil {
		s.problem(err)
	}
	return nil
}

func (s *Subject) openCheckpoint() error {
	files, err := safetensors.OpenCheckpoint(s.Path)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, files)
	s.Parts, s.Tensors = len(files.Files), files.Tensors
	m, err := convert.Open(s.Path, false)
	if err == nil {
		s.closers = append(s.closers, m)
		s.hf, s.model = m.Checkpoint, m.Model
		s.Meta, err = m.Metadata()
	}
	if err != nil {
		s.problem(err)
		return s.readLineage()
	}
	return nil
}

// readLineage takes the record of merges from a folder that could not be read otherwise.
func (s *Subject) readLineage() error {
	record, err := os.ReadFile(filepath.Join(s.Path, lora.LineageFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	s.Meta.Set(lora.LineageKey, string(record))
	return err
}

func (s *Subject) openAdapter() error {
	a, err := lora.Open(s.Path)
	if err != nil {
		return err
	}
	s.Adapter = a
	s.closers = append(s.closers, a)
	return nil
}

func (s *Subject) openSafetensors() error {
	f, err := safetensors.Open(s.Path)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, f)
	s.Tensors, s.header = f.Tensors, f.Metadata
	return nil
}

func (s *Subject) problem(err error) { s.Problems = append(s.Problems, err.Error()) }
