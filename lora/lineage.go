package lora

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// LineageFile is the name of the record in a merged checkpoint's folder; LineageKey is the metadata of a merged GGUF.
const (
	LineageFile = "quern_lineage.json"
	LineageKey  = "quern.lineage"
)

const lineageFormat = "quern-lineage-1"

// Lineage is the record of how a merged model came about, from the first base to itself. It holds no time and no path
// of the machine, so that the same merge writes the same record.
type Lineage struct {
	Format string        `json:"format"`
	Root   RootRecord    `json:"root"`
	Stages []StageRecord `json:"stages"` // in the order in which they were merged
	Output OutputRecord  `json:"output"`
}

// RootRecord is the model that the first stage was merged into.
type RootRecord struct {
	Name        string `json:"name"`
	HubID       string `json:"hub_id,omitempty"`
	Fingerprint string `json:"fingerprint"`
}

// StageRecord is one adapter, merged.
type StageRecord struct {
	Adapter     string      `json:"adapter"`
	SHA256      AdapterHash `json:"sha256"`
	TrainedOn   string      `json:"trained_on"` // what its configuration names
	Scale       float64     `json:"scale"`
	Base        string      `json:"base_fingerprint"`
	Output      string      `json:"output_fingerprint"`
	OutputName  string      `json:"output_name,omitempty"` // where the result was a model of its own
	Evidence    Evidence    `json:"evidence"`
	Explanation string      `json:"explanation"`
	Mismatch    bool        `json:"accepted_base_mismatch,omitempty"`
	Tool        string      `json:"tool"`
}

// OutputRecord is the merged model itself.
type OutputRecord struct {
	Name        string `json:"name"` // that the next stage's adapter may call it by
	Fingerprint string `json:"fingerprint"`
}

// Mismatched tells whether some stage was merged into a base that nothing shows to be its own.
func (l *Lineage) Mismatched() bool {
	for _, s := range l.Stages {
		if s.Mismatch {
			return true
		}
	}
	return false
}

// ParseLineage reads a record.
func ParseLineage(data []byte) (*Lineage, error) {
	l := &Lineage{}
	if err := json.Unmarshal(data, l); err != nil {
		return nil, fmt.Errorf("lineage record: %w", err)
	}
	if l.Format != lineageFormat {
		return nil, fmt.Errorf("lineage record: its format is %q, this version reads %q", l.Format, lineageFormat)
	}
	if len(l.Stages) == 0 {
		return nil, errors.New("lineage record: it has no stages")
	}
	return l, nil
}

// Origin is what a base's own metadata says it is.
type Origin struct {
	Lineage *Lineage   // of a merged model
	Claims  []HubClaim // what it was downloaded as; empty for a merged model
}

// HubClaim is a hub id that a base carries.
type HubClaim struct {
	ID    string
	Where string // for messages: "config.json: _name_or_path"
}

var hubID = regexp.MustCompile(`^[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*$`)

// isHubID tells a hub id from a path. A relative path of two parts looks the same; it names nothing that could be
// checked either.
func isHubID(name string) bool { return hubID.MatchString(name) && !strings.Contains(name, "..") }

// cachedAs is the folder of a model in the hub's cache: models--ORG--NAME/snapshots/COMMIT.
var cachedAs = regexp.MustCompile(`models--([^/]+?)--([^/]+)/snapshots/[^/]+$`)

func (b *Base) readOrigin() error {
	var err error
	if b.IsGGUF() {
		err = b.readGGUFOrigin()
	} else {
		err = b.readFolderOrigin()
	}
	if b.Origin.Lineage != nil {
		b.Origin.Claims = nil // they are those of the model it was made from
	}
	return err
}

func (b *Base) readFolderOrigin() error {
	data, err := os.ReadFile(filepath.Join(b.Path, LineageFile))
	if err == nil {
		if b.Origin.Lineage, err = ParseLineage(data); err != nil {
			return fmt.Errorf("%s: %w", filepath.Join(b.Path, LineageFile), err)
		}
	} else if !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if m := cachedAs.FindStringSubmatch(filepath.ToSlash(b.Path)); m != nil {
		b.claim(m[1]+"/"+m[2], "its place in the download cache")
	}
	for _, f := range b.config {
		var name string
		if f.key == "_name_or_path" && json.Unmarshal(f.value, &name) == nil {
			b.claim(name, "config.json: _name_or_path")
		}
	}
	return nil
}

// sourceKeys are the GGUF metadata that say what a file is a conversion of. general.base_model.* is not among them: it
// names what the model itself was trained from.
var sourceKeys = []string{"general.source.huggingface.repository", "general.source.repo_url", "general.source.url",
	"general.repo_url", "general.url"}

func (b *Base) readGGUFOrigin() error {
	if text, ok := b.gguf.Meta.Text(LineageKey); ok {
		var err error
		if b.Origin.Lineage, err = ParseLineage([]byte(text)); err != nil {
			return fmt.Errorf("%s: %w", b.Path, err)
		}
	}
	for _, key := range sourceKeys {
		if text, ok := b.gguf.Meta.Text(key); ok {
			b.claim(lastTwo(text), key)
		}
	}
	return nil
}

// lastTwo returns the end of an address, ORG/NAME; a plain id is its own end.
func lastTwo(address string) string {
	parts := strings.Split(strings.Trim(address, "/"), "/")
	return strings.Join(parts[max(0, len(parts)-2):], "/")
}

func (b *Base) claim(id, where string) {
	if isHubID(id) {
		b.Origin.Claims = append(b.Origin.Claims, HubClaim{id, where})
	}
}
