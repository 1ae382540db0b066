// Package history keeps questions, their SQL and what came of them, in a SQLite file in the user's data folder.
//
// Answers are not stored: the file holds what was asked and what was run, not what the database said. The exception is
// a chat, which can be taken up again only with all that the model has seen (Question.Tokens).
package history

import (
	"context"
	"database/sql"
	"encoding/binary"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	_ "github.com/mattn/go-sqlite3" // the driver "sqlite3"
)

// schemaVersion is stored in user_version; a file of a later version is not touched.
const schemaVersion = 1

const schema = `
CREATE TABLE IF NOT EXISTS question (
  id           INTEGER PRIMARY KEY,
  asked_at     TEXT NOT NULL,
  database     TEXT NOT NULL,
  model        TEXT NOT NULL,
  question     TEXT NOT NULL,
  final_sql    TEXT NOT NULL,
  outcome      TEXT NOT NULL,
  row_count    INTEGER NOT NULL,
  seconds      REAL NOT NULL,
  conversation TEXT NOT NULL,
  tokens       BLOB
);
CREATE INDEX IF NOT EXISTS question_conversation ON question (conversation, id);
CREATE TABLE IF NOT EXISTS saved (
  name     TEXT PRIMARY KEY,
  database TEXT NOT NULL,
  question TEXT NOT NULL,
  sql      TEXT NOT NULL,
  saved_at TEXT NOT NULL
);`

// Question is one question that was asked.
type Question struct {
	ID           int64     `json:"id"`
	AskedAt      time.Time `json:"asked_at"`
	Database     string    `json:"database"` // absolute path
	Model        string    `json:"model"`
	Question     string    `json:"question"`
	FinalSQL     string    `json:"final_sql"` // "" when there was none
	Outcome      string    `json:"outcome"`   // the loop's stop reason, or "sql_error: …"
	RowCount     int       `json:"row_count"`
	Seconds      float64   `json:"seconds"`
	Conversation string    `json:"conversation"` // "" for a single question; the same for all turns of a chat
	Tokens       []int32   `json:"-"`            // of a chat: its token ids up to here
}

// Saved is a query kept under a name.
type Saved struct {
	Name     string    `json:"name"`
	Database string    `json:"database"`
	Question string    `json:"question"`
	SQL      string    `json:"sql"`
	SavedAt  time.Time `json:"saved_at"`
}

// Store is an open history file. It may be used from several goroutines and several processes.
type Store struct{ db *sql.DB }

// DefaultPath is QUERN_HISTORY, or quern/history.sqlite in the user's data folder.
func DefaultPath() (string, error) {
	if file := os.Getenv("QUERN_HISTORY"); file != "" {
		return file, nil
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "quern", "history.sqlite"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("no home folder for the history: %w; set QUERN_HISTORY to a file", err)
	}
	return filepath.Join(home, ".local", "share", "quern", "history.sqlite"), nil
}

// Open opens a history file, making it and its folder (readable by the user alone) where there is none.
func Open(file string) (*Store, error) {
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	absolute, err := filepath.Abs(file)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	source := url.URL{Scheme: "file", Path: filepath.ToSlash(absolute), RawQuery: "_busy_timeout=5000&_journal_mode=WAL"}
	db, err := sql.Open("sqlite3", source.String())
	if err != nil {
		return nil, fmt.Errorf("history %s: %w", file, err)
	}
	s := &Store{db}
	if err := s.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("history %s: %w; move it away to start a new one", file, err), db.Close())
	}
	return s, os.Chmod(absolute, 0o600)
}

func (s *Store) prepare() error {
	var version int
	if err := s.db.QueryRow("PRAGMA user_version").Scan(&version); err != nil {
		return err
	}
	if version > schemaVersion {
		return fmt.Errorf("it was written by a later version of quern (format %d, known is %d)", version, schemaVersion)
	}
	_, err := s.db.Exec(schema + fmt.Sprintf("PRAGMA user_version = %d", schemaVersion))
	return err
}

// Close closes the file.
func (s *Store) Close() error { return s.db.Close() }

// Add stores a question and returns its id.
func (s *Store) Add(ctx context.Context, q Question) (int64, error) {
	result, err := s.db.ExecContext(ctx, `INSERT INTO question
		(asked_at, database, model, question, final_sql, outcome, row_count, seconds, conversation, tokens)
		VALUES (?,?,?,?,?,?,?,?,?,?)`,
		q.AskedAt.UTC().Format(time.RFC3339Nano), q.Database, q.Model, q.Question, q.FinalSQL, q.Outcome, q.RowCount, q.Seconds, q.Conversation, packTokens(q.Tokens))
	if err != nil {
		return 0, fmt.Errorf("history: %w", err)
	}
	return result.LastInsertId()
}

// Filter chooses questions. Empty fields choose all.
type Filter struct {
	Text         string // somewhere in the question or its SQL, in any case
	Database     string
	Conversation string
	Limit        int // newest first; 0 is 50
}

// Questions lists what was asked, newest first.
func (s *Store) Questions(ctx context.Context, f Filter) ([]Question, error) {
	if f.Limit <= 0 {
		f.Limit = 50
	}
	like := "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(f.Text) + "%"
	rows, err := s.db.QueryContext(ctx, `SELECT id, asked_at, database, model, question, final_sql, outcome, row_count, seconds, conversation, tokens
		FROM question
		WHERE (question LIKE ?1 ESCAPE '\' OR final_sql LIKE ?1 ESCAPE '\')
		  AND (?2 = '' OR database = ?2) AND (?3 = '' OR conversation = ?3)
		ORDER BY id DESC LIMIT ?4`, like, f.Database, f.Conversation, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	defer rows.Close()
	var found []Question
	for rows.Next() {
		var q Question
		var at string
		var tokens []byte
		if err := rows.Scan(&q.ID, &at, &q.Database, &q.Model, &q.Question, &q.FinalSQL, &q.Outcome, &q.RowCount, &q.Seconds, &q.Conversation, &tokens); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
		q.AskedAt, _ = time.Parse(time.RFC3339Nano, at) // written by Add
		q.Tokens = unpackTokens(tokens)
		found = append(found, q)
	}
	return found, rows.Err()
}

// packTokens writes ids as four bytes each, little-endian.
func packTokens(ids []int32) []byte {
	if len(ids) == 0 {
		return nil
	}
	packed := make([]byte, 0, 4*len(ids))
	for _, id := range ids {
		packed = binary.LittleEndian.AppendUint32(packed, uint32(id))
	}
	return packed
}

func unpackTokens(packed []byte) []int32 {
	ids := make([]int32, len(packed)/4)
	for i := range ids {
		ids[i] = int32(binary.LittleEndian.Uint32(packed[4*i:]))
	}
	return ids
}

// Clear forgets all questions; saved queries stay.
func (s *Store) Clear(ctx context.Context) (int64, error) {
	result, err := s.db.ExecContext(ctx, "DELETE FROM question")
	if err != nil {
		return 0, fmt.Errorf("history: %w", err)
	}
	return result.RowsAffected()
}

// Save keeps a query under a name, replacing one of the same name.
func (s *Store) Save(ctx context.Context, q Saved) error {
	if strings.TrimSpace(q.Name) == "" {
		return errors.New("a saved query needs a name")
	}
	_, err := s.db.ExecContext(ctx, `INSERT INTO saved (name, database, question, sql, saved_at) VALUES (?,?,?,?,?)
		ON CONFLICT (name) DO UPDATE SET database = excluded.database, question = excluded.question, sql = excluded.sql, saved_at = excluded.saved_at`,
		q.Name, q.Database, q.Question, q.SQL, q.SavedAt.UTC().Format(time.RFC3339Nano))
	if err != nil {
		return fmt.Errorf("saved query %q: %w", q.Name, err)
	}
	return nil
}

// SavedQueries lists the saved queries by name; with a name only that one.
func (s *Store) SavedQueries(ctx context.Context, name string) ([]Saved, error) {
	rows, err := s.db.QueryContext(ctx, `SELECT name, database, question, sql, saved_at FROM saved WHERE ?1 = '' OR name = ?1 ORDER BY name`, name)
	if err != nil {
		return nil, fmt.Errorf("saved queries: %w", err)
	}
	defer rows.Close()
	var found []Saved
	for rows.Next() {
		var q Saved
		var at string
		if err := rows.Scan(&q.Name, &q.Database, &q.Question, &q.SQL, &at); err != nil {
			return nil, fmt.Errorf("saved queries: %w", err)
		}
		q.SavedAt, _ = time.Parse(time.RFC3339Nano, at)
		found = append(found, q)
	}
	return found, rows.Err()
}

// Remove drops a saved query and says whether there was one.
func (s *Store) Remove(ctx context.Context, name string) (bool, error) {
	result, err := s.db.ExecContext(ctx, "DELETE FROM saved WHERE name = ?", name)
	if err != nil {
		return false, fmt.Errorf("saved query %q: %w", name, err)
	}
	n, err := result.RowsAffected()
	return n > 0, err
}
