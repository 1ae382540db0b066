// Package cli holds the commands of the quern binary and is the only place where the concrete parts are joined.
//
// Each command stands in a file of its own: flags fill an options struct, a plain function does the work.
package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"quern/internal/buildinfo"
	"quern/sqlguard"
)

// Exit codes of the binary.
const (
	exitOK     = 0
	exitFailed = 1 // the work could not be done, or a check found something
	exitUsage  = 2 // the command line makes no sense
)

// Env is what a command sees of the world outside.
type Env struct {
	Stdin          io.Reader
	Stdout, Stderr io.Writer // results, logs
}

// usageError is a mistake on the command line: exit code 2.
type usageError struct{ msg string }

func (e usageError) Error() string { return e.msg }

func usagef(format string, args ...any) error { return usageError{fmt.Sprintf(format, args...)} }

// exitError carries an exit code without a further message: the command has said what there was to say.
type exitError int

func (e exitError) Error() string { return fmt.Sprintf("exit status %d", int(e)) }

// Main runs the command line of this process and returns its exit code.
func Main() int {
	sqlguard.RunWorker()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return Run(ctx, os.Args, Env{Stdin: os.Stdin, Stdout: os.Stdout, Stderr: os.Stderr})
}

// Run runs one command line and returns its exit code. args[0] is the program's name.
func Run(ctx context.Context, args []string, env Env) int {
	app := newApp(env)
	if n := len(args) - 1; n > 0 && args[n] == completeFlag {
		for _, word := range candidates(app, args[:n]) {
			fmt.Fprintln(env.Stdout, word)
		}
		return exitOK
	}
	err := app.RunContext(ctx, flagsFirst(app, args))
	var exit exitError
	var usage usageError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &exit):
		return int(exit)
	case errors.As(err, &usage):
		fmt.Fprintf(env.Stderr, "quern: %v\nTry: %s --help\n", err, strings.Join(commandPath(app, args), " "))
		return exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		fmt.Fprintln(env.Stderr, "quern: stopped")
		return exitFailed
	default:
		fmt.Fprintf(env.Stderr, "quern: %v\n", err)
		return exitFailed
	}
}

func newApp(env Env) *cli.App {
	app := &cli.App{
		Name:      "quern",
		Usage:     "ask a SQLite database with a local model; merge, run and score text-to-SQL agents",
		Version:   buildinfo.Version,
		Reader:    env.Stdin,
		Writer:    env.Stdout,
		ErrWriter: env.Stderr,
		Commands: []*cli.Command{
			sqlCommand(env),
			askCommand(env),
			chatCommand(env),
			demoCommand(env),
			serveCommand(env),
			mcpCommand(env),
			historyCommand(env),
			savedCommand(env),
			promptCommand(env),
			transcriptCommand(env),
			evalCommand(env),
			inspectCommand(env),
			convertCommand(env),
			loraCommand(env),
			quantizeCommand(env),
			benchCommand(env),
			pullCommand(env),
			doctorCommand(env),
			completionCommand(env),
			manCommand(env),
			versionCommand(env),
		},
		HideVersion:            true,
		UseShortOptionHandling: true,
		ExitErrHandler:         func(*cli.Context, error) {}, // Run decides
		OnUsageError:           asUsageError,
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				return usagef("no command named %q", c.Args().First())
			}
			return cli.ShowAppHelp(c)
		},
	}
	forUsageErrors(app.Commands)
	return app
}

// forUsageErrors makes bad flags of every command, and words where none belong, a usageError, in place of the library's
// own printing or its silence.
func forUsageErrors(commands []*cli.Command) {
	for _, c := range commands {
		c.OnUsageError = asUsageError
		if strings.TrimSpace(c.ArgsUsage) == "" {
			c.Action = withoutWords(c.Action)
		}
		forUsageErrors(c.Subcommands)
	}
}

// withoutWords is an action that refuses arguments; nil is that of a group, which shows its commands.
func withoutWords(action cli.ActionFunc) cli.ActionFunc {
	return func(c *cli.Context) error {
		switch word := c.Args().First(); {
		case word != "" && len(c.Command.Subcommands) > 0:
			return usagef("%s has no command named %q", c.Command.Name, word)
		case c.Args().Present():
			return usagef("%s takes flags only; what is %q?", c.Command.Name, word)
		case action == nil:
			return cli.ShowSubcommandHelp(c)
		}
		return action(c)
	}
}

func asUsageError(_ *cli.Context, err error, _ bool) error { return usageError{err.Error()} }
