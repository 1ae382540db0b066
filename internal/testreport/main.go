// Command testreport reads `go test -json` on standard input and prints what a person wants of it: a line per package,
// the whole output of failing tests, and at the end every skipped test with its reason. All output goes to the file
// named as its argument as well, where the worst differences that parity tests log can be read.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"
)

// event is one line of `go test -json` (cmd/test2json).
type event struct {
	Action  string
	Package string
	Test    string
	Output  string
	Elapsed float64
}

// report gathers events until the end.
type report struct {
	log            *bufio.Writer
	output         map[string][]string // by package and test
	skipped        map[string][]string // reason -> tests
	passed, failed int
}

func main() {
	file, err := os.Create(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "testreport:", err)
		os.Exit(2)
	}
	r := report{log: bufio.NewWriter(file), output: map[string][]string{}, skipped: map[string][]string{}}
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	for lines.Scan() {
		var e event
		if json.Unmarshal(lines.Bytes(), &e) != nil { // a build error, as plain text
			fmt.Println(lines.Text())
			continue
		}
		r.add(e)
	}
	r.log.Flush()
	r.print(os.Args[1])
}

func (r *report) add(e event) {
	key := e.Package + " " + e.Test
	switch e.Action {
	case "output", "build-output":
		r.log.WriteString(e.Output)
		if e.Test != "" {
			r.output[key] = append(r.output[key], e.Output)
		} else if packageLine(e.Output) {
			fmt.Print(e.Output)
		}
	case "pass", "fail", "skip":
		r.finish(e, key)
	}
}

// packageLine says whether a line outside any test is worth showing: results, build errors and panics are, noise is not.
func packageLine(s string) bool {
	return !strings.HasPrefix(s, "PASS") && !strings.HasPrefix(s, "?") && !strings.HasPrefix(s, "coverage:")
}

func (r *report) finish(e event, key string) {
	if e.Test == "" {
		if e.Action == "fail" {
			r.failed++ // a package that failed to build, or its failing tests
		}
		return
	}
	switch e.Action {
	case "pass":
		r.passed++
	case "fail":
		r.failed++
		fmt.Print(strings.Join(r.output[key], ""))
	case "skip":
		reason := skipReason(r.output[key])
		r.skipped[reason] = append(r.skipped[reason], strings.TrimPrefix(e.Package, "quern/")+"."+e.Test)
	}
	delete(r.output, key)
}

// skipReason takes the message out of a skipped test's lines: "    file_test.go:12: message".
func skipReason(lines []string) string {
	for _, line := range lines {
		if _, message, ok := strings.Cut(line, "_test.go:"); ok {
			_, message, _ = strings.Cut(message, ": ")
			return strings.TrimSpace(message)
		}
		if _, message, ok := strings.Cut(line, "testenv.go:"); ok {
			_, message, _ = strings.Cut(message, ": ")
			return strings.TrimSpace(message)
		}
	}
	return "no reason given"
}

func (r *report) print(logFile string) {
	skipped := 0
	reasons := make([]string, 0, len(r.skipped))
	for reason, tests := range r.skipped {
		reasons = append(reasons, reason)
		skipped += len(tests)
	}
	sort.Strings(reasons)
	if skipped > 0 {
		fmt.Println("\nSkipped:")
	}
	for _, reason := range reasons {
		fmt.Printf("  %s\n    %s\n", reason, strings.Join(r.skipped[reason], ", "))
	}
	fmt.Printf("\nEvery test's output: %s\n%d passed, %d failed, %d skipped\n", logFile, r.passed, r.failed, skipped)
}
