package eval

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
)

// CheckpointError says that a checkpoint belongs to another run, and in what they differ.
type CheckpointError struct {
	Path        string
	Differences []string
}

func (e *CheckpointError) Error() string {
	return fmt.Sprintf("the checkpoint %s was made by another run; in it, and now:\n  %s\ngive other --ckpt and --out files, or remove it to start over",
		e.Path, strings.Join(e.Differences, "\n  "))
}

// checkpoint is an append-only file: a manifest line, then one line for each finished question, on disk before the next
// begins. A later line for the same question replaces an earlier one.
type checkpoint struct {
	mu   sync.Mutex
	file *os.File
	done map[string][]byte // question -> its whole line
}

// openCheckpoint opens or creates the file at path for a run with manifest m. What a killed run left half written is cut
// off; lines of questions on which our side broke do not count as done.
func openCheckpoint(path string, m Manifest) (*checkpoint, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("checkpoint: %w", err)
	}
	c := &checkpoint{file: file, done: map[string][]byte{}}
	if err := lockFile(file); err != nil {
		file.Close()
		return nil, fmt.Errorf("checkpoint %s: another run is writing it: %w", path, err)
	}
	if err := c.load(path, m); err != nil {
		file.Close()
		return nil, err
	}
	return c, nil
}

func (c *checkpoint) load(path string, m Manifest) error {
	data, err := io.ReadAll(c.file)
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	whole := data[:bytes.LastIndexByte(data, '\n')+1]
	if len(whole) == 0 {
		return c.start(m)
	}
	lines := bytes.SplitAfter(whole, []byte("\n"))
	before, err := parseHeader(lines[0])
	if err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	if diff := before.Diff(m); len(diff) > 0 {
		return &CheckpointError{Path: path, Differences: diff}
	}
	for i, line := range lines[1 : len(lines)-1] { // the last piece is empty
		result, err := parseResult(line)
		if err != nil {
			return fmt.Errorf("checkpoint %s: line %d is damaged: %w", path, i+2, err)
		}
		if !result.Failed() {
			c.done[result.ID] = line
		}
	}
	if err := c.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("checkpoint %s: %w", path, err)
	}
	_, err = c.file.Seek(0, io.SeekEnd)
	return err
}

func (c *checkpoint) start(m Manifest) error {
	if err := c.file.Truncate(0); err != nil {
		return err
	}
	if _, err := c.file.Seek(0, io.SeekStart); err != nil {
		return err
	}
	line, err := encodeLine(header{&m})
	if err != nil {
		return err
	}
	return c.write(line)
}

// add puts one finished question on disk.
func (c *checkpoint) add(r Result) error {
	line, err := EncodeResult(r)
	if err != nil {
		return fmt.Errorf("question %s: %w", r.ID, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.done[r.ID] = line
	return c.write(line)
}

func (c *checkpoint) write(line []byte) error {
	if _, err := c.file.Write(line); err != nil {
		return fmt.Errorf("checkpoint: %w", err)
	}
	if err := c.file.Sync(); err != nil && !errors.Is(err, errors.ErrUnsupported) {
		return fmt.Errorf("checkpoint: %w", err)
	}
	return nil
}

func (c *checkpoint) close() error { return c.file.Close() }
