package cli

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"time"

	"quern/toolloop"
)

// run calls a command line and returns what it wrote and its exit code.
func run(t *testing.T, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	return runInput(t, "", args...)
}

func runInput(t *testing.T, stdin string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Run(context.Background(), append([]string{"quern"}, args...), Env{Stdin: strings.NewReader(stdin), Stdout: &out, Stderr: &errs})
	return out.String(), errs.String(), code
}

func TestUsageErrorsExitWith2(t *testing.T) {
	for _, args := range [][]string{
		{"nonsense"},
		{"version", "--nonsense"},
		{"completion"},
		{"completion", "tcsh"},
		{"pull"},
		{"pull", "not a model"},
		{"doctor", "spider"},
		{"serve", "model.gguf"},
		{"version", ""},
		{"lora", "nonsense"},
		{"eval", "nonsense"},
	} {
		stdout, stderr, code := run(t, args...)
		if code != exitUsage || !strings.HasPrefix(stderr, "quern: ") || stdout != "" {
			t.Errorf("%v: code %d, stdout %q, stderr %q", args, code, stdout, stderr)
		}
	}
}

func TestStopped(t *testing.T) {
	files := demoFiles(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	var out, errs bytes.Buffer
	code := Run(ctx, []string{"quern", "ask", "--model", files.Model, "--db", files.Database, "Count the ports."}, Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	if code != exitFailed || out.Len() > 0 || errs.String() != "quern: stopped\n" {
		t.Errorf("code %d, stdout %q, stderr %q", code, &out, &errs)
	}
}

func TestUsageErrorsNameTheHelp(t *testing.T) {
	for line, want := range map[string]string{
		"nonsense": "Try: quern --help\n", "ask --votes 0 --db x q": "Try: quern ask --help\n", "lora merge --nonsense": "Try: quern lora merge --help\n",
	} {
		if _, stderr, code := run(t, strings.Fields(line)...); code != exitUsage || !strings.HasSuffix(stderr, want) {
			t.Errorf("%s: code %d, %q", line, code, stderr)
		}
	}
}

func TestHelpOfEveryCommand(t *testing.T) {
	var out, errs bytes.Buffer
	app := newApp(Env{Stdin: strings.NewReader(""), Stdout: &out, Stderr: &errs})
	for _, c := range app.Commands {
		if c.Usage == "" && !c.Hidden {
			t.Errorf("%s has no usage line", c.Name)
		}
		if stdout, _, code := run(t, c.Name, "--help"); code != exitOK || !strings.Contains(stdout, "USAGE") {
			t.Errorf("%s --help: code %d, %q", c.Name, code, stdout)
		}
	}
}

func TestCompletionAndManual(t *testing.T) {
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if script, _, code := run(t, "completion", shell); code != exitOK || !strings.Contains(script, "quern") {
			t.Errorf("completion %s: code %d", shell, code)
		}
	}
	for line, want := range map[string]string{
		"":                      "sql ask chat demo serve",
		"l":                     "lora",
		"lora ":                 "inspect merge verify convert",
		"lora merge --ba":       "--base --base-fingerprint",
		"ask --vo":              "--votes --vote-temperature",
		"ask --model x --db":    "--db",
		"ask -":                 "--verbose --format --output",
		"ask --model internal/": "",
		"nonsense --":           "",
	} {
		words, stderr, code := run(t, append(strings.Split(line, " "), completeFlag)...)
		if got := strings.Join(strings.Fields(words), " "); code != exitOK || stderr != "" || !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%q is completed by %q, want %q (code %d, %s)", line, got, want, code, stderr)
		}
	}
	if page, _, code := run(t, "man"); code != exitOK || !strings.Contains(page, ".TH quern 1") {
		t.Errorf("man: code %d, %q", code, page)
	}
}

func TestFlagsMayStandAnywhere(t *testing.T) {
	app := newApp(Env{})
	for line, want := range map[string]string{
		"quern":                                   "quern",
		"quern version --json":                    "quern version --json",
		"quern eval report a b --html x":          "quern eval report --html x -- a b",
		"quern sql SELECT --db f --explain":       "quern sql --db f --explain -- SELECT",
		"quern sql --db=f -- --json":              "quern sql --db=f -- --json",
		"quern sql - --db f":                      "quern sql --db f -- -",
		"quern inspect m.gguf --unknown --json":   "quern inspect --unknown --json -- m.gguf",
		"quern nonsense --json x":                 "quern --json -- nonsense x",
		"quern ask -v question --model m --votes": "quern ask -v --model m --votes -- question",
	} {
		if got := strings.Join(flagsFirst(app, strings.Fields(line)), " "); got != want {
			t.Errorf("%s\n got %s\nwant %s", line, got, want)
		}
	}
}

func TestEffort(t *testing.T) {
	turn := func(tokens int, decode time.Duration) toolloop.Turn {
		return toolloop.Turn{Tokens: tokens, Usage: toolloop.Usage{FirstToken: time.Second, Total: time.Second + decode}}
	}
	one := &toolloop.Transcript{Elapsed: 2 * time.Second, Turns: []toolloop.Turn{turn(1, time.Microsecond)}}
	if got := effort(one); strings.Contains(got, "tokens/s") {
		t.Errorf("a single token has no rate: %s", got)
	}
	two := &toolloop.Transcript{Elapsed: 2 * time.Second, Turns: []toolloop.Turn{turn(11, time.Second), turn(31, time.Second)}}
	if got := effort(two); !strings.Contains(got, "(20 tokens/s)") {
		t.Errorf("%s", got)
	}
}
