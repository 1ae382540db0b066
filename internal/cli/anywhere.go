package cli

import (
	"flag"
	"io"

	"github.com/urfave/cli/v2"
)

// flagsAnywhere lets a command's flags stand behind its arguments too ("quern inspect FILE --json"), where the library
// alone would take them for arguments. It is not for commands with required flags.
func flagsAnywhere(cmd *cli.Command) *cli.Command {
	action := cmd.Action
	cmd.SkipFlagParsing = true
	cmd.Action = func(c *cli.Context) error {
		set := flag.NewFlagSet(cmd.Name, flag.ContinueOnError)
		set.SetOutput(io.Discard)
		for _, f := range cmd.Flags {
			if err := f.Apply(set); err != nil {
				return err
			}
		}
		if err := parseAnywhere(set, c.Args().Slice()); err != nil {
			return usageError{err.Error()}
		}
		inner := cli.NewContext(c.App, set, c)
		inner.Command = c.Command
		if inner.Bool("help") {
			cli.HelpPrinter(c.App.Writer, cli.CommandHelpTemplate, cmd)
			return nil
		}
		return action(inner)
	}
	return cmd
}

// parseAnywhere sets flags wherever they stand, up to "--", and leaves the other arguments in set.
func parseAnywhere(set *flag.FlagSet, args []string) error {
	var positional []string
	for len(args) > 0 {
		before := len(args)
		if err := set.Parse(args); err != nil {
			return err
		}
		rest := set.Args()
		if len(rest) == 0 || before > len(rest) && args[before-len(rest)-1] == "--" {
			positional = append(positional, rest...)
			break
		}
		positional = append(positional, rest[0])
		args = rest[1:]
	}
	return set.Parse(append([]string{"--"}, positional...))
}
