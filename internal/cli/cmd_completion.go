package cli

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"
)

// completeFlag at the end of a command line asks what its last word may become.
const completeFlag = "--complete-last-word"

const (
	bashCompletion = `_quern() {
  local IFS=$'\n'
  COMPREPLY=($("${COMP_WORDS[@]:0:COMP_CWORD+1}" ` + completeFlag + ` 2>/dev/null))
}
complete -o bashdefault -o default -F _quern quern
`
	zshCompletion = `#compdef quern
_quern() {
  local -a found
  found=("${(@f)$("${words[@]:0:$CURRENT}" ` + completeFlag + ` 2>/dev/null)}")
  [[ -n "${found[1]}" ]] && compadd -a found || _files
}
compdef _quern quern
`
)

// candidates are the commands, or after a dash the flags, that begin with the last word of a command line. None means
// that a file or a text of one's own stands there.
func candidates(app *cli.App, args []string) (found []string) {
	before, last := args[:len(args)-1], args[len(args)-1]
	commands, flags := app.Commands, app.Flags
	for _, word := range before[min(1, len(before)):] {
		if command := findCommand(commands, word); command != nil {
			commands, flags = command.Subcommands, command.Flags
		}
	}
	for _, c := range commands {
		if strings.HasPrefix(c.Name, last) {
			found = append(found, c.Name)
		}
	}
	if !strings.HasPrefix(last, "-") {
		return found
	}
	for _, f := range flags {
		if name := "--" + f.Names()[0]; strings.HasPrefix(name, last) {
			found = append(found, name)
		}
	}
	return found
}

func completionCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:      "completion",
		Usage:     "print a completion script for a shell",
		ArgsUsage: "bash|zsh|fish",
		Description: `   bash:  source <(quern completion bash)
   zsh:   quern completion zsh > "${fpath[1]}/_quern"
   fish:  quern completion fish > ~/.config/fish/completions/quern.fish`,
		Action: func(c *cli.Context) error {
			script, err := completionScript(c.App, c.Args().First())
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, script)
			return err
		},
	}
}

func completionScript(app *cli.App, shell string) (string, error) {
	switch shell {
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	}
	return "", usagef("completion takes the name of a shell: bash, zsh or fish")
}

// manCommand prints the manual page; packagers write it to quern.1.
func manCommand(env Env) *cli.Command {
	return &cli.Command{
		Name:  "man",
		Usage: "print the manual page: quern man | man -l -",
		Action: func(c *cli.Context) error {
			page, err := c.App.ToManWithSection(1)
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, page)
			return err
		},
	}
}
