package eval

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
)

// ResultsFile is a run read back: its manifest and one Result a question, in the dataset's order.
type ResultsFile struct {
	Path     string
	Manifest Manifest
	Results  []Result
}

// header is the first line of results files and checkpoints.
type header struct {
	Manifest *Manifest `json:"manifest"`
}

// maxLine bounds a line of a results file, in bytes: a transcript with large observations.
const maxLine = 256 << 20

// ReadResults reads a results file.
func ReadResults(path string) (*ResultsFile, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	out := &ResultsFile{Path: path}
	scanner := bufio.NewScanner(file)
	scanner.Buffer(nil, maxLine)
	seen := map[string]int{}
	for n := 1; scanner.Scan(); n++ {
		line := scanner.Bytes()
		if n == 1 {
			if out.Manifest, err = parseHeader(line); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
			continue
		}
		result, err := parseResult(line)
		if err != nil {
			return nil, fmt.Errorf("%s: line %d: %w", path, n, err)
		}
		if first, twice := seen[result.ID]; twice {
			return nil, fmt.Errorf("%s: lines %d and %d are both for question %s", path, first, n, result.ID)
		}
		seen[result.ID] = n
		out.Results = append(out.Results, result)
	}
	if err := scanner.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	if out.Manifest.Format == 0 {
		return nil, fmt.Errorf("%s is empty", path)
	}
	return out, nil
}

// IsResultsFile reports whether a file begins like a results file.
func IsResultsFile(path string) bool {
	file, err := os.Open(path)
	if err != nil {
		return false
	}
	defer file.Close()
	start := make([]byte, len(`{"manifest":`))
	_, err = io.ReadFull(file, start)
	return err == nil && string(start) == `{"manifest":`
}

func parseHeader(line []byte) (Manifest, error) {
	var h header
	if err := json.Unmarshal(line, &h); err != nil || h.Manifest == nil {
		return Manifest{}, fmt.Errorf("line 1 is no manifest, so this is no results file of quern eval")
	}
	if h.Manifest.Format != FormatVersion {
		return Manifest{}, fmt.Errorf("results format %d; this program reads %d", h.Manifest.Format, FormatVersion)
	}
	return *h.Manifest, nil
}

func parseResult(line []byte) (Result, error) {
	var r Result
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.UseNumber() // shown cells keep all digits
	if err := dec.Decode(&r); err != nil {
		return r, err
	}
	if r.ID == "" {
		return r, fmt.Errorf("no id")
	}
	return r, nil
}

// WriteResults writes a results file from whole lines, one a question.
func WriteResults(path string, m Manifest, lines [][]byte) error {
	first, err := encodeLine(header{&m})
	if err != nil {
		return err
	}
	return writeWhole(path, func(w io.Writer) error {
		for _, line := range append([][]byte{first}, lines...) {
			if _, err := w.Write(line); err != nil {
				return err
			}
		}
		return nil
	})
}

// EncodeResult is one line of a results file, line feed included.
func EncodeResult(r Result) ([]byte, error) { return encodeLine(r) }

func encodeLine(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return b.Bytes(), nil
}

// writeWhole writes a file under a temporary name beside it and renames it, so that no half of it is ever seen.
func writeWhole(path string, write func(io.Writer) error) error {
	temp, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return err
	}
	defer os.Remove(temp.Name())
	w := bufio.NewWriterSize(temp, 1<<20)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = temp.Sync()
	}
	if closeErr := temp.Close(); err == nil {
		err = closeErr
	}
	if err == nil {
		err = os.Chmod(temp.Name(), 0o644)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return os.Rename(temp.Name(), path)
}

// Name is a run's short name: its file's name without the ending.
func (r *ResultsFile) Name() string {
	return strings.TrimSuffix(filepath.Base(r.Path), filepath.Ext(r.Path))
}
