package cli

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/internal/atomicfile"
	"quern/prompts"
)

func promptCommand(env Env) *cli.Command {
	jsonFlag := &cli.BoolFlag{Name: "json", Usage: "as JSON"}
	return &cli.Command{
		Name:  "prompt",
		Usage: "the texts that models are given: list, show, export",
		Description: `A prompt pack is a folder of plain-text files with a manifest, pack.json. Export a built-in one, change it, and use it
with --prompt DIR:

   quern prompt export qwen-xml mine
   quern prompt show mine
   quern ask --prompt mine …`,
		Subcommands: []*cli.Command{
			{
				Name: "list", Usage: "the built-in packs", Flags: []cli.Flag{jsonFlag},
				Action: func(c *cli.Context) error { return listPacks(env.Stdout, c.Bool("json")) },
			},
			{
				Name: "show", Usage: "the texts of a pack, checked", ArgsUsage: "NAME|DIR", Flags: []cli.Flag{jsonFlag},
				Action: func(c *cli.Context) error {
					if c.Args().Len() != 1 {
						return usagef("show takes a built-in pack or a folder: quern prompt show %s", prompts.Names()[0])
					}
					return showPack(env.Stdout, c.Args().First(), c.Bool("json"))
				},
			},
			{
				Name: "export", Usage: "write a built-in pack into a new folder", ArgsUsage: "NAME DIR",
				Action: func(c *cli.Context) error {
					if c.Args().Len() != 2 {
						return usagef("export takes a built-in pack and a new folder: quern prompt export %s mine", prompts.Names()[0])
					}
					return exportPack(c.Args().Get(0), c.Args().Get(1))
				},
			},
		},
	}
}

// packDocument is a pack in the JSON of `quern prompt list` and `show`.
type packDocument struct {
	Name          string            `json:"name"`
	Profile       string            `json:"profile"`
	Description   string            `json:"description"`
	Policies      []string          `json:"column_policies"`
	DefaultPolicy string            `json:"default_column_policy"`
	Hash          string            `json:"sha256"`
	Files         map[string]string `json:"files,omitempty"` // show only
}

func documentOf(p *prompts.Pack) packDocument {
	return packDocument{
		Name: p.Name, Profile: p.Profile, Description: p.Description,
		Policies: append([]string{}, p.Policies...), DefaultPolicy: p.DefaultPolicy, Hash: p.Hash,
	}
}

func listPacks(w io.Writer, asJSON bool) error {
	list := []packDocument{}
	for _, name := range prompts.Names() {
		p, err := prompts.Builtin(name)
		if err != nil {
			return err
		}
		list = append(list, documentOf(p))
	}
	if asJSON {
		return json.NewEncoder(w).Encode(list)
	}
	for _, p := range list {
		fmt.Fprintf(w, "%-10s profile %-9s %s  %s\n", p.Name, p.Profile, p.Hash[:12], p.Description)
	}
	return nil
}

// findPack is a built-in pack by its name, or the pack in a folder.
func findPack(nameOrFolder string) (*prompts.Pack, error) {
	if slices.Contains(prompts.Names(), nameOrFolder) {
		return prompts.Builtin(nameOrFolder)
	}
	if info, err := os.Stat(nameOrFolder); err != nil || !info.IsDir() {
		return nil, fmt.Errorf("%q is neither a built-in prompt pack (%s) nor a folder", nameOrFolder, strings.Join(prompts.Names(), ", "))
	}
	p, err := prompts.Load(os.DirFS(nameOrFolder))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", nameOrFolder, err)
	}
	return p, nil
}

func showPack(w io.Writer, nameOrFolder string, asJSON bool) error {
	p, err := findPack(nameOrFolder)
	if err != nil {
		return err
	}
	doc := documentOf(p)
	files := p.Files()
	if asJSON {
		doc.Files = map[string]string{}
		for name, data := range files {
			doc.Files[name] = string(data)
		}
		return json.NewEncoder(w).Encode(doc)
	}
	fmt.Fprintf(w, "%s: %s\nprofile %s, SHA-256 %s\n", p.Name, p.Description, p.Profile, p.Hash)
	for _, name := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(w, "\n── %s\n%s\n", name, strings.TrimRight(string(files[name]), "\r\n"))
	}
	return nil
}

func exportPack(name, folder string) error {
	p, err := prompts.Builtin(name)
	if err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(folder, prompts.ManifestName)); err == nil {
		return fmt.Errorf("%s holds a prompt pack already: choose a new folder", folder)
	}
	for name, data := range p.Files() {
		path := filepath.Join(folder, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := writeWhole(path, data); err != nil {
			return err
		}
	}
	return nil
}

// writeWhole writes a file that is there whole or not at all.
func writeWhole(path string, data []byte) error {
	f, err := atomicfile.Create(path)
	if err != nil {
		return err
	}
	defer f.Discard()
	if _, err := f.Write(data); err != nil {
		return f.Explain(err)
	}
	return f.Commit()
}
