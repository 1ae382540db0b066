// Package demo holds what `quern demo` runs on: a tiny model that was trained for this project, and a sample database
// that it has not seen in training.
package demo

import (
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

//go:embed model.gguf
var model []byte

//go:embed harbor.sqlite
var database []byte

// Questions are asked by default: one whose stored value has to be looked up first, one that joins, one that looks for
// what is missing.
var Questions = []string{
	"What is the average crew of vessels where the kind is 'Trawler'?",
	"Show the name of the ports and their number of vessels.",
	"What is the name of the ports without any vessels?",
}

// Accuracy is how often the model is right, as measured (execution accuracy, greedy, with the tool).
const Accuracy = "right on 78 % of 240 questions about schemas it never saw, on 92 % of 225 about schemas it knows"

// Files are the model and the database in a folder of their own, since SQLite and llama.cpp read files.
type Files struct {
	dir             string
	Model, Database string
}

// Unpack writes them to a temporary folder; Remove deletes it.
func Unpack() (Files, error) {
	dir, err := os.MkdirTemp("", "quern-demo-")
	if err != nil {
		return Files{}, fmt.Errorf("demo: %w", err)
	}
	f := Files{dir: dir, Model: filepath.Join(dir, "demo.gguf"), Database: filepath.Join(dir, "harbor.sqlite")}
	for name, data := range map[string][]byte{f.Model: model, f.Database: database} {
		if err := os.WriteFile(name, data, 0o600); err != nil {
			f.Remove()
			return Files{}, fmt.Errorf("demo: %w", err)
		}
	}
	return f, nil
}

// Remove deletes the files.
func (f Files) Remove() { os.RemoveAll(f.dir) }
