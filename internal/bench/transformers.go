package bench

import (
	"bytes"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"

	"quern/engine"
)

// loopScript is a loop of the reference harness's form over Transformers: a static batch with left padding, in which
// every turn of every conversation is read from its beginning and waits for the longest.
//
//go:embed transformers.py
var loopScript []byte

// HasTransformers says whether a Python interpreter has what the Transformers loop needs.
func HasTransformers(ctx context.Context, python string) bool {
	return exec.CommandContext(ctx, python, "-c", "import torch, transformers").Run() == nil
}

// missingTransformers says why the Transformers loop cannot run here, "" when it can.
func (o AgentOptions) missingTransformers(ctx context.Context) string {
	switch {
	case o.Python == "":
		return "it was not asked for"
	case !HasTransformers(ctx, o.Python):
		return o.Python + " has no torch and transformers"
	case o.HF == "":
		return "there is no checkpoint of this model for it"
	}
	return ""
}

// runTransformers plays the first Static questions and counts their time as so much of the whole load's.
func (o AgentOptions) runTransformers(ctx context.Context, m *engine.Model, f *Figure) error {
	load := o.Load.First(o.Static)
	type item struct {
		Prompt  []int32   `json:"prompt"`
		Turns   [][2]int  `json:"turns"`
		Answers [][]int32 `json:"answers"`
	}
	var items []item
	for _, c := range load.conversations(m.VocabSize()) {
		items = append(items, item{c.prompt, c.turns, c.answers})
	}
	dir, err := os.MkdirTemp("", "quern-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	data, err := json.Marshal(items)
	script, input := filepath.Join(dir, "loop.py"), filepath.Join(dir, "load.json")
	if err := errors.Join(err, os.WriteFile(script, loopScript, 0o644), os.WriteFile(input, data, 0o644)); err != nil {
		return err
	}
	device := "cpu"
	if m.GPULayers() > 0 {
		device = "cuda"
	}
	cmd := exec.CommandContext(ctx, o.Python, script, o.HF, input, strconv.Itoa(o.Batch), strconv.Itoa(o.Threads), device)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("the Transformers loop: %w\n%s", err, lastLines(stderr.Bytes()))
	}
	var answer struct{ Seconds float64 }
	if err := json.Unmarshal(bytes.TrimSpace(out), &answer); err != nil {
		return fmt.Errorf("the Transformers loop printed %q: %w", lastLines(out), err)
	}
	f.add(answer.Seconds * float64(o.Load.generated()) / float64(load.generated()))
	return nil
}
