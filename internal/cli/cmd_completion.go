package cli

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// The shells ask the binary itself what may come next (urfave/cli's --generate-bash-completion).
const (
	bashCompletion = `_quern() {
  local words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null)" -- "${COMP_WORDS[COMP_CWORD]}"))
}
complete -o bashdefault -o default -F _quern quern
`
	zshCompletion = `#compdef quern
_quern() {
  local -a found
  found=("${(@f)$("${words[@]:0:$CURRENT-1}" --generate-bash-completion 2>/dev/null)}")
  [[ -n "${found[1]}" ]] && compadd -a found || _files
}
compdef _quern quern
`
)

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
			page, err := c.App.ToMan()
			if err != nil {
				return err
			}
			_, err = fmt.Fprint(env.Stdout, page)
			return err
		},
	}
}
