package assistant

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"quern/sqlguard"
	"quern/toolloop"
)

// stopNotes say what a person should know about the way a question ended.
func stopNotes(ctx context.Context, t *toolloop.Transcript) []string {
	switch t.Stop {
	case toolloop.StopFinalSQL:
		return nil
	case toolloop.StopForcedFinal:
		return []string{"The model used up its turns; this is its best answer so far."}
	case toolloop.StopNoSQL:
		return []string{"The model did not answer with a query." + said(t)}
	case toolloop.StopMaxTurns:
		return []string{fmt.Sprintf("The model used up its %d turns without an answer; --max-turns allows more.", t.Limits.MaxTurns)}
	case toolloop.StopMaxTokens:
		return []string{"The model's answer was cut at its token limit; --max-new-tokens allows more."}
	case toolloop.StopContextFull:
		return []string{"The conversation no longer fits the model's context; --max-input-tokens and --ctx allow more, --tables needs less."}
	case toolloop.StopCancelled:
		if errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return []string{"Stopped: the time for a question is over."}
		}
		return []string{"Stopped."}
	default:
		return []string{t.Error}
	}
}

// said quotes the model's last words, shortened.
func said(t *toolloop.Transcript) string {
	if len(t.Turns) == 0 {
		return ""
	}
	words := strings.Join(strings.Fields(t.Turns[len(t.Turns)-1].Content), " ")
	if words == "" {
		return ""
	}
	const most = 400
	if runes := []rune(words); len(runes) > most {
		words = string(runes[:most]) + "…"
	}
	return " It said: " + words
}

// resultNotes say what a person should know about the rows before trusting them.
func resultNotes(sql string, r sqlguard.Result) []string {
	switch {
	case r.Failure != nil && r.Failure.Hint != "":
		return []string{"The query failed: " + r.Failure.Message + " (" + r.Failure.Hint + ")"}
	case r.Failure != nil:
		return []string{"The query failed: " + r.Failure.Message}
	case len(r.Rows) == 0:
		return []string{"The query ran and found no rows."}
	case r.Truncated == sqlguard.CutByMaxRows:
		return []string{fmt.Sprintf("Only the first %d rows are here; --sql-max-rows allows more.", len(r.Rows))}
	case r.Truncated == sqlguard.CutByMaxBytes:
		return []string{fmt.Sprintf("Only the first %d rows are here, as they reach the size limit; --sql-max-bytes allows more.", len(r.Rows))}
	case len(r.Rows) > 1 && len(r.Rows) == finalLimit(sql):
		return []string{fmt.Sprintf("The query itself stops at LIMIT %d, and %d rows came back: there may be more.", len(r.Rows), len(r.Rows))}
	}
	return nil
}

var limitAtEnd = regexp.MustCompile(`(?i)\blimit\s+(?:\d+\s*,\s*)?(\d+)(?:\s+offset\s+\d+)?\s*;?\s*$`)

// finalLimit is the number in a LIMIT at the end of a statement, or -1.
func finalLimit(sql string) int {
	if m := limitAtEnd.FindStringSubmatch(sql); m != nil {
		if n, err := strconv.Atoi(m[1]); err == nil {
			return n
		}
	}
	return -1
}

// newID names a conversation so that ids sort by time and cannot be guessed.
func newID(now time.Time) string {
	return now.UTC().Format("20060102-150405-") + rand.Text()[:10]
}
