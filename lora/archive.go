package lora

import (
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// An archive comes from a stranger. Nothing is unpacked to a place that it names: the two files of the adapter are
// read, everything else is only checked.

const (
	maxRatio     = 100     // uncompressed to compressed size; weights reach about 2, JSON about 20
	ratioFrom    = 1 << 20 // below this size the ratio does not matter
	maxEntries   = 10_000
	maxConfig    = 16 << 20
	metadataTree = "__MACOSX/" // what macOS puts beside the files
)

// openArchive finds the one adapter in a zip file and returns its two files.
func openArchive(file string) (*source, error) {
	r, err := zip.OpenReader(file)
	if err != nil {
		return nil, fmt.Errorf("%s: not a whole zip archive: %w", file, err)
	}
	defer r.Close()
	s, err := readArchive(r.File)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return s, nil
}

func readArchive(files []*zip.File) (*source, error) {
	entries, err := safeEntries(files)
	if err != nil {
		return nil, err
	}
	folder, err := onlyAdapterFolder(entries)
	if err != nil {
		return nil, err
	}
	return readEntries(entries, folder)
}

// safeEntries checks every entry's name, kind and sizes, and returns the files by path.
func safeEntries(files []*zip.File) (map[string]*zip.File, error) {
	if len(files) > maxEntries {
		return nil, fmt.Errorf("the archive has %d entries; an adapter has a handful", len(files))
	}
	entries := map[string]*zip.File{}
	for _, f := range files {
		if err := checkEntry(f); err != nil {
			return nil, fmt.Errorf("entry %q: %w", f.Name, err)
		}
		if f.Mode().IsDir() || strings.HasSuffix(f.Name, "/") {
			continue
		}
		if entries[f.Name] != nil {
			return nil, fmt.Errorf("entry %q occurs twice", f.Name)
		}
		entries[f.Name] = f
	}
	return entries, nil
}

func checkEntry(f *zip.File) error {
	name := strings.TrimSuffix(f.Name, "/")
	mode := f.Mode()
	switch {
	case strings.Contains(f.Name, `\`):
		return errors.New("its name has a backslash, which could lead out of the folder: path escape refused")
	case !fs.ValidPath(name):
		return errors.New("its path leads out of the folder: path escape refused")
	case strings.ContainsAny(name, ":\x00"):
		return errors.New("its name has a character that no adapter's file has")
	case mode&fs.ModeSymlink != 0:
		return errors.New("it is a symbolic link, which could lead out of the folder")
	case !mode.IsRegular() && !mode.IsDir():
		return fmt.Errorf("it is no ordinary file (%v)", mode.Type())
	case f.Flags&1 != 0:
		return errors.New("it is encrypted; unpack the archive first")
	case f.UncompressedSize64 > ratioFrom && f.UncompressedSize64/maxRatio > f.CompressedSize64:
		return fmt.Errorf("%d bytes unpack to %d: a zip bomb, no adapter compresses like that", f.CompressedSize64, f.UncompressedSize64)
	}
	return nil
}

// onlyAdapterFolder returns the folder, "." for the top, that holds an adapter's files.
func onlyAdapterFolder[T any](files map[string]T) (string, error) {
	var folders []string
	for name := range files {
		base := path.Base(name)
		if strings.HasPrefix(name, metadataTree) || base != ConfigFile && base != weightsFile && base != pickleFile {
			continue
		}
		if dir := path.Dir(name); !slices.Contains(folders, dir) {
			folders = append(folders, dir)
		}
	}
	slices.Sort(folders)
	switch len(folders) {
	case 0:
		return "", fmt.Errorf("no adapter inside: there is no %s", ConfigFile)
	case 1:
		return folders[0], nil
	default:
		return "", fmt.Errorf("%d adapters inside (%s): unpack it and name the folder that is meant", len(folders), strings.Join(folders, ", "))
	}
}

// readEntries reads the adapter's files, and every other entry once, so that a damaged archive is not trusted in part.
func readEntries(entries map[string]*zip.File, folder string) (*source, error) {
	has := func(name string) bool { return entries[path.Join(folder, name)] != nil }
	if err := checkFiles(has); err != nil {
		return nil, err
	}
	s := &source{}
	for _, name := range sortedKeys(entries) {
		var err error
		switch f := entries[name]; name {
		case path.Join(folder, ConfigFile):
			s.config, err = readConfigEntry(f)
		case path.Join(folder, weightsFile):
			s.weights, err = spill(f)
		default:
			err = copyEntry(io.Discard, f)
		}
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("entry %q: %w", name, err)
		}
	}
	return s, nil
}

func readConfigEntry(f *zip.File) ([]byte, error) {
	if f.UncompressedSize64 > maxConfig {
		return nil, fmt.Errorf("%d bytes are too much for a configuration", f.UncompressedSize64)
	}
	var text strings.Builder
	err := copyEntry(&text, f)
	return []byte(text.String()), err
}

// spill unpacks weights into a file without a name, so that nothing is left behind however the process ends.
func spill(f *zip.File) (*os.File, error) {
	temp, err := os.CreateTemp("", "quern-adapter-*.safetensors")
	if err != nil {
		return nil, err
	}
	os.Remove(temp.Name())
	if err := copyEntry(temp, f); err != nil {
		temp.Close()
		return nil, err
	}
	return temp, nil
}

// copyEntry unpacks one entry; its size and checksum are those that the archive states, or it fails.
func copyEntry(dst io.Writer, f *zip.File) error {
	r, err := f.Open()
	if err != nil {
		return err
	}
	defer r.Close()
	n, err := io.Copy(dst, io.LimitReader(r, int64(f.UncompressedSize64)+1))
	switch {
	case errors.Is(err, zip.ErrChecksum):
		return errors.New("the stored checksum does not match the data: the archive is damaged")
	case err != nil:
		return fmt.Errorf("the archive is damaged: %w", err)
	case n != int64(f.UncompressedSize64):
		return fmt.Errorf("%d bytes announced, %d found: the archive is damaged", f.UncompressedSize64, n)
	}
	return nil
}
