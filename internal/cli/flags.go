package cli

import (
	"strings"

	"github.com/urfave/cli/v2"
)

// flagsFirst moves the flags of a command line before its other arguments, since the flag library stops at the first
// argument that is none and people write them in any order: quern eval report run.jsonl --html run.html. What follows
// "--" stays as it is. args[0] is the program's name.
func flagsFirst(app *cli.App, args []string) []string {
	path, flags, rest := args[:min(1, len(args))], app.Flags, args[min(1, len(args)):]
	for commands := app.Commands; len(rest) > 0; rest = rest[1:] {
		command := findCommand(commands, rest[0])
		if command == nil {
			break
		}
		path = append(path[:len(path):len(path)], rest[0])
		commands, flags = command.Subcommands, command.Flags
	}
	var moved, others []string
	for len(rest) > 0 {
		n := flagLength(flags, rest)
		switch {
		case rest[0] == "--":
			n = len(rest)
			others = append(others, rest[1:]...)
		case n > 0:
			moved = append(moved, rest[:n]...)
		default:
			n = 1
			others = append(others, rest[0])
		}
		rest = rest[n:]
	}
	if len(others) > 0 {
		moved = append(moved, "--")
	}
	return append(append(path[:len(path):len(path)], moved...), others...)
}

// commandPath is the program's name and the commands at the front of a command line: quern lora merge.
func commandPath(app *cli.App, args []string) []string {
	path := []string{app.Name}
	commands := app.Commands
	for _, word := range args[min(1, len(args)):] {
		command := findCommand(commands, word)
		if command == nil {
			break
		}
		path, commands = append(path, command.Name), command.Subcommands
	}
	return path
}

func findCommand(commands []*cli.Command, name string) *cli.Command {
	for _, c := range commands {
		if c.HasName(name) {
			return c
		}
	}
	return nil
}

// flagLength is how many arguments the flag at the front of args takes, itself included; 0 where there is none. A flag
// that is not known counts as one, so that the library can complain about it.
func flagLength(flags []cli.Flag, args []string) int {
	name, _, hasValue := strings.Cut(strings.TrimLeft(args[0], "-"), "=")
	if args[0] == "-" || args[0] == "--" || !strings.HasPrefix(args[0], "-") {
		return 0
	}
	for _, f := range flags {
		for _, known := range f.Names() {
			if known == name {
				if _, boolean := f.(*cli.BoolFlag); boolean || hasValue || len(args) == 1 {
					return 1
				}
				return 2
			}
		}
	}
	return 1
}
