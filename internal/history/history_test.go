package history

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"
)

func open(t *testing.T) *Store {
	t.Helper()
	s, err := Open(filepath.Join(t.TempDir(), "a b#c", "history ?.sqlite"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestQuestionsComeBackNewestFirst(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	at := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	for i, text := range []string{"How many cats?", "100% of dogs?", "and by year?"} {
		q := Question{AskedAt: at, Database: "/d", Model: "m", Question: text, FinalSQL: "SELECT 1", Outcome: "final_sql", RowCount: i, Seconds: 0.5, Conversation: "c", Tokens: []int32{1, 1 << 30, int32(i)}}
		if _, err := s.Add(ctx, q); err != nil {
			t.Fatal(err)
		}
	}
	all, err := s.Questions(ctx, Filter{})
	if err != nil || len(all) != 3 || all[0].Question != "and by year?" || !all[0].AskedAt.Equal(at) || !slices.Equal(all[0].Tokens, []int32{1, 1 << 30, 2}) {
		t.Fatalf("%v %+v", err, all)
	}
	for text, want := range map[string]int{"0%": 1, "CATS": 1, "_": 0, "select": 3} {
		if got, _ := s.Questions(ctx, Filter{Text: text}); len(got) != want {
			t.Errorf("search %q found %d, want %d", text, len(got), want)
		}
	}
	if n, err := s.Clear(ctx); n != 3 || err != nil {
		t.Errorf("Clear = %d, %v", n, err)
	}
}

func TestSavedQueries(t *testing.T) {
	ctx := context.Background()
	s := open(t)
	for _, sql := range []string{"SELECT 1", "SELECT 2"} {
		if err := s.Save(ctx, Saved{Name: "n", SQL: sql, SavedAt: time.Now()}); err != nil {
			t.Fatal(err)
		}
	}
	got, err := s.SavedQueries(ctx, "n")
	if err != nil || len(got) != 1 || got[0].SQL != "SELECT 2" {
		t.Fatalf("%v %+v", err, got)
	}
	if err := s.Save(ctx, Saved{Name: " "}); err == nil {
		t.Error("a query without a name was saved")
	}
	if ok, _ := s.Remove(ctx, "n"); !ok {
		t.Error("Remove found nothing")
	}
}

func TestSeveralWritersAtOnce(t *testing.T) {
	ctx := context.Background()
	file := filepath.Join(t.TempDir(), "h.sqlite")
	var wait sync.WaitGroup
	for range 4 {
		wait.Go(func() {
			s, err := Open(file)
			if err != nil {
				t.Error(err)
				return
			}
			defer s.Close()
			for range 20 {
				if _, err := s.Add(ctx, Question{AskedAt: time.Now()}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wait.Wait()
	s, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if all, _ := s.Questions(ctx, Filter{Limit: 1000}); len(all) != 80 {
		t.Errorf("%d of 80 questions", len(all))
	}
}

func TestForeignFilesAreLeftAlone(t *testing.T) {
	file := filepath.Join(t.TempDir(), "h.sqlite")
	os.WriteFile(file, []byte("this is text, not a database; long enough to have a header"), 0o600)
	if _, err := Open(file); err == nil {
		t.Error("a text file was opened as history")
	}
	later := open(t)
	if _, err := later.db.Exec("PRAGMA user_version = 99"); err != nil {
		t.Fatal(err)
	}
	if err := later.prepare(); err == nil {
		t.Error("a file of a later version was opened")
	}
}
