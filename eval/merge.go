package eval

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"sort"
	"strings"
)

// ShardSelection is the manifest's Selection of part i of n of a selection.
func ShardSelection(selection string, i, n int) string {
	return fmt.Sprintf("%s, shard %d/%d", selection, i, n)
}

// Merge joins the results files of all shards of one run into one file, as if it had not been split. Shards of different
// runs, missing ones and questions that occur twice are errors.
func Merge(out string, paths []string) error {
	type shardLine struct {
		index int
		line  []byte
	}
	var manifest Manifest
	var lines []shardLine
	shards, count := map[int]string{}, 0
	from := map[string]string{}
	for n, path := range paths {
		file, err := ReadResults(path)
		if err != nil {
			return err
		}
		selection, i, of, err := splitShard(file.Manifest.Selection)
		if err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
		if other, twice := shards[i]; twice {
			return fmt.Errorf("%s and %s are both shard %d", other, path, i)
		}
		if n > 0 && of != count {
			return fmt.Errorf("%s is one of %d shards, %s one of %d", paths[0], count, path, of)
		}
		shards[i], count = path, of
		file.Manifest.Selection = selection
		if n == 0 {
			manifest = file.Manifest
		}
		file.Manifest.Engine = joinServers(&manifest, file.Manifest.Engine)
		if diff := manifest.Diff(file.Manifest); len(diff) > 0 {
			return fmt.Errorf("%s and %s are shards of different runs:\n  %s", paths[0], path, strings.Join(diff, "\n  "))
		}
		raw, err := rawLines(path)
		if err != nil {
			return err
		}
		for k, result := range file.Results {
			if other, twice := from[result.ID]; twice {
				return fmt.Errorf("question %s is in %s and in %s", result.ID, other, path)
			}
			from[result.ID] = path
			lines = append(lines, shardLine{result.Index, raw[k]})
		}
	}
	for i := 1; i <= count; i++ {
		if shards[i] == "" {
			return fmt.Errorf("shard %d/%d is missing", i, count)
		}
	}
	sort.SliceStable(lines, func(a, b int) bool { return lines[a].index < lines[b].index })
	whole := make([][]byte, len(lines))
	for i, l := range lines {
		whole[i] = l.line
	}
	return WriteResults(out, manifest, whole)
}

// joinServers notes in a merged run's manifest that a shard was generated on another server, which makes it no other run;
// other engines are left to be compared. It returns what the shard's engine is to be compared as.
func joinServers(merged *Manifest, engine string) string {
	if !strings.Contains(merged.Engine, "://") || !strings.Contains(engine, "://") {
		return engine
	}
	if servers := strings.Split(merged.Engine, ", "); !slices.Contains(servers, engine) {
		merged.Engine = strings.Join(append(servers, engine), ", ")
	}
	return merged.Engine
}

// splitShard takes a Selection apart.
func splitShard(selection string) (base string, i, n int, err error) {
	base, shard, found := strings.Cut(selection, ", shard ")
	if !found {
		return "", 0, 0, fmt.Errorf("this is a whole run (%s), not a shard", selection)
	}
	if _, err := fmt.Sscanf(shard, "%d/%d", &i, &n); err != nil || i < 1 || i > n {
		return "", 0, 0, fmt.Errorf("%q is no shard", shard)
	}
	return base, i, n, nil
}

// rawLines are the lines of a results file after its manifest, line feeds included.
func rawLines(path string) ([][]byte, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	lines := bytes.SplitAfter(data, []byte("\n"))
	if last := len(lines) - 1; len(lines[last]) == 0 {
		lines = lines[:last]
	}
	return lines[1:], nil
}
