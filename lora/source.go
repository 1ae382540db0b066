package lora

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The names that PEFT gives to an adapter's weights.
const (
	weightsFile = "adapter_model.safetensors"
	pickleFile  = "adapter_model.bin"
)

// source is the two files of an adapter, wherever they were found.
type source struct {
	config  []byte
	weights *os.File
}

func (s *source) Close() {
	if s.weights != nil {
		s.weights.Close()
	}
}

// openSource finds an adapter's files in a folder, beside a .safetensors file, or in a zip archive.
func openSource(path string) (*source, error) {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no adapter %s: no such file or folder", path)
	case err != nil:
		return nil, err
	case info.IsDir():
		return openFolder(path)
	case strings.EqualFold(filepath.Ext(path), ".safetensors"):
		return openFiles(filepath.Dir(path), path)
	case strings.EqualFold(filepath.Ext(path), ".bin"), strings.EqualFold(filepath.Ext(path), ".pt"):
		return nil, errPickle
	case strings.EqualFold(filepath.Ext(path), ".gguf"):
		return nil, fmt.Errorf("%s is an adapter in GGUF form, made for use at run time: give the PEFT adapter that it came from", path)
	default:
		return openArchive(path)
	}
}

// openFolder takes the adapter at the top of a folder, else the only one below it.
func openFolder(dir string) (*source, error) {
	has := func(name string) bool { return isFile(filepath.Join(dir, name)) }
	if !has(ConfigFile) && !has(weightsFile) && !has(pickleFile) {
		below, err := adapterFolderBelow(dir)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", dir, err)
		}
		return openFolder(below)
	}
	if err := checkFiles(has); err != nil {
		return nil, fmt.Errorf("%s: %w", dir, err)
	}
	return openFiles(dir, filepath.Join(dir, weightsFile))
}

const maxDepth = 4

func adapterFolderBelow(dir string) (string, error) {
	files := map[string]bool{}
	dir, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	err = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		name = filepath.ToSlash(name)
		if entry.IsDir() && strings.Count(name, "/") >= maxDepth {
			return fs.SkipDir
		}
		if entry.Type().IsRegular() {
			files[name] = true
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	folder, err := onlyAdapterFolder(files)
	return filepath.Join(dir, filepath.FromSlash(folder)), err
}

func openFiles(dir, weights string) (*source, error) {
	config := filepath.Join(dir, ConfigFile)
	info, err := os.Stat(config)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("no %s beside %s: without it rank, scale and targets are unknown", ConfigFile, weights)
	case err != nil:
		return nil, err
	case info.Size() > maxConfig:
		return nil, fmt.Errorf("%s: %d bytes are too much for a configuration", config, info.Size())
	}
	s := &source{}
	if s.config, err = os.ReadFile(config); err != nil {
		return nil, err
	}
	if s.weights, err = os.Open(weights); err != nil {
		return nil, err
	}
	return s, nil
}

var errPickle = fmt.Errorf("the only weights are %s, a Python pickle, which can run code when it is read, so it is not opened. "+
	"Save the adapter again as safetensors: load it in PEFT and call save_pretrained(folder, safe_serialization=True)", pickleFile)

// checkFiles tells what an adapter's folder lacks.
func checkFiles(has func(name string) bool) error {
	switch {
	case has(ConfigFile) && has(weightsFile):
		return nil
	case !has(ConfigFile):
		return fmt.Errorf("no %s: without it rank, scale and targets are unknown", ConfigFile)
	case has(pickleFile):
		return fmt.Errorf("there is no %s: %w", weightsFile, errPickle)
	default:
		return fmt.Errorf("no %s beside %s", weightsFile, ConfigFile)
	}
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}

func sortedKeys[K cmp.Ordered, V any](m map[K]V) []K { return slices.Sorted(maps.Keys(m)) }
