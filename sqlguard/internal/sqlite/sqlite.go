// Package sqlite is a thin layer over the SQLite that github.com/mattn/go-sqlite3 compiles into the binary, for what that
// driver keeps to itself: storage classes, db_config, the progress handler, the heap limit, one statement at a time.
//
// It has no opinions: each method is one C function, or a loop around one, and package sqlguard decides.
// A Conn and its Stmts belong to one goroutine at a time; only Cancel may come from another.
package sqlite

/*
#cgo CFLAGS: -std=gnu11
#cgo darwin LDFLAGS: -Wl,-undefined,dynamic_lookup
#include <stdlib.h>
#include "conn.h"
*/
import "C"

import (
	"errors"
	"fmt"
	"time"
	"unsafe"

	_ "github.com/mattn/go-sqlite3" // brings the library
)

// Flags of Open (SQLITE_OPEN_…).
const (
	OpenReadOnly  = 0x00000001
	OpenReadWrite = 0x00000002
	OpenCreate    = 0x00000004
	OpenURI       = 0x00000040
	OpenMemory    = 0x00000080
	OpenNoMutex   = 0x00008000
)

// Options of Config (SQLITE_DBCONFIG_…).
const (
	EnableTrigger       = 1003
	EnableFTS3Tokenizer = 1004
	EnableLoadExtension = 1005
	Defensive           = 1010
	DQSDML              = 1013
	DQSDDL              = 1014
	TrustedSchema       = 1017
	ReverseScanOrder    = 1019
	EnableAttachCreate  = 1020
	EnableAttachWrite   = 1021
)

// Limits of Limit (SQLITE_LIMIT_…).
const (
	LimitLength            = 0
	LimitSQLLength         = 1
	LimitColumn            = 2
	LimitExprDepth         = 3
	LimitCompoundSelect    = 4
	LimitVDBEOp            = 5
	LimitFunctionArg       = 6
	LimitAttached          = 7
	LimitLikePatternLength = 8
	LimitVariableNumber    = 9
	LimitTriggerDepth      = 10
	LimitWorkerThreads     = 11
)

// Action codes of the authorizer (https://www.sqlite.org/c3ref/c_alter_table.html).
const (
	ActionCreateIndex       = 1
	ActionCreateTable       = 2
	ActionCreateTempIndex   = 3
	ActionCreateTempTable   = 4
	ActionCreateTempTrigger = 5
	ActionCreateTempView    = 6
	ActionCreateTrigger     = 7
	ActionCreateView        = 8
	ActionDelete            = 9
	ActionDropIndex         = 10
	ActionDropTable         = 11
	ActionDropTempIndex     = 12
	ActionDropTempTable     = 13
	ActionDropTempTrigger   = 14
	ActionDropTempView      = 15
	ActionDropTrigger       = 16
	ActionDropView          = 17
	ActionInsert            = 18
	ActionPragma            = 19
	ActionRead              = 20
	ActionSelect            = 21
	ActionTransaction       = 22
	ActionUpdate            = 23
	ActionAttach            = 24
	ActionDetach            = 25
	ActionAlterTable        = 26
	ActionReindex           = 27
	ActionAnalyze           = 28
	ActionCreateVTable      = 29
	ActionDropVTable        = 30
	ActionFunction          = 31
	ActionSavepoint         = 32
	ActionRecursive         = 33
)

// Primary result codes (https://www.sqlite.org/rescode.html).
const (
	CodeError     = 1
	CodeInternal  = 2
	CodePerm      = 3
	CodeBusy      = 5
	CodeLocked    = 6
	CodeNoMem     = 7
	CodeReadOnly  = 8
	CodeInterrupt = 9
	CodeIOErr     = 10
	CodeCorrupt   = 11
	CodeFull      = 13
	CodeCantOpen  = 14
	CodeProtocol  = 15
	CodeSchema    = 17
	CodeTooBig    = 18
	CodeAuth      = 23
	CodeNotADB    = 26

	CodeReadOnlyRollback = CodeReadOnly | 3<<8 // a hot journal that a read-only connection cannot roll back
)

// Storage classes as Stmt.Fetch packs them (SQLITE_INTEGER …).
const (
	TypeInteger = 1
	TypeReal    = 2
	TypeText    = 3
	TypeBlob    = 4
	TypeNull    = 5
)

// Error is SQLite's own report.
type Error struct {
	Code    int // extended result code
	Message string
}

func (e *Error) Error() string { return e.Message }

// Primary is the code without its extension.
func (e *Error) Primary() int { return e.Code & 0xff }

func init() {
	if C.sqlite3_libversion == nil {
		panic("sqlite: linked without SQLite")
	}
}

// Version is SQLite's version and the id of its source.
func Version() (version, sourceID string) {
	return C.GoString(C.sqlite3_libversion()), C.GoString(C.sqlite3_sourceid())
}

// CompileOptions lists how SQLite was compiled, as PRAGMA compile_options does.
func CompileOptions() []string {
	var options []string
	for i := C.int(0); ; i++ {
		option := C.sqlite3_compileoption_get(i)
		if option == nil {
			return options
		}
		options = append(options, C.GoString(option))
	}
}

// MemoryUsed is what SQLite has allocated in this process, in bytes.
func MemoryUsed() int64 { return int64(C.sqlite3_memory_used()) }

// HardHeapLimit makes SQLite's allocations fail beyond so many bytes in this process; 0 lifts the limit.
func HardHeapLimit(bytes int64) { C.sqlite3_hard_heap_limit64(C.int64_t(bytes)) }

// Conn is a database connection.
type Conn struct {
	c     *C.conn // in C memory, since SQLite keeps its address
	rules *C.rules
}

// Open opens a database (sqlite3_open_v2). With OpenURI, name is a file: URI.
func Open(name string, flags int) (*Conn, error) {
	c := &Conn{c: (*C.conn)(C.calloc(1, C.sizeof_conn))}
	cname := C.CString(name)
	defer C.free(unsafe.Pointer(cname))
	if rc := C.conn_open(c.c, cname, C.int(flags)); rc != 0 {
		err := c.err(rc)
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection, whose statements must be closed before. It may be called twice.
func (c *Conn) Close() {
	if c.c == nil {
		return
	}
	C.sqlite3_close_v2(c.c.db)
	C.free(unsafe.Pointer(c.c.log))
	C.free(unsafe.Pointer(c.c))
	freeRules(c.rules)
	c.c, c.rules = nil, nil
}

func (c *Conn) err(rc C.int) error {
	if rc == 0 {
		return nil
	}
	if c.c.db == nil {
		return &Error{int(rc), C.GoString(C.sqlite3_errstr(rc))}
	}
	return &Error{int(C.sqlite3_extended_errcode(c.c.db)), C.GoString(C.sqlite3_errmsg(c.c.db))}
}

// Exec runs trusted statements and drops their rows (sqlite3_exec).
func (c *Conn) Exec(sql string) error {
	csql := C.CString(sql)
	defer C.free(unsafe.Pointer(csql))
	return c.err(C.sqlite3_exec(c.c.db, csql, nil, nil, nil))
}

// Config switches an option (sqlite3_db_config) and checks that it took.
func (c *Conn) Config(option int, on bool) error {
	v := C.int(0)
	if on {
		v = 1
	}
	if rc := C.conn_config(c.c, C.int(option), v); rc != 0 {
		return fmt.Errorf("sqlite: db_config %d: code %d", option, int(rc))
	}
	return nil
}

// Limit sets a run-time limit (sqlite3_limit), at most to what was compiled in.
func (c *Conn) Limit(id int, value int) { C.sqlite3_limit(c.c.db, C.int(id), C.int(value)) }

// BusyTimeout bounds the wait for another program's lock (sqlite3_busy_timeout).
func (c *Conn) BusyTimeout(d time.Duration) {
	C.sqlite3_busy_timeout(c.c.db, C.int(d.Milliseconds()))
}

// InTransaction says whether a transaction is open (sqlite3_get_autocommit).
func (c *Conn) InTransaction() bool { return C.sqlite3_get_autocommit(c.c.db) == 0 }

// ReleaseMemory drops cached pages (sqlite3_db_release_memory).
func (c *Conn) ReleaseMemory() { C.sqlite3_db_release_memory(c.c.db) }

// CopyTo fills the memory connection to with the main database's content as this connection sees it, to be written there
// (sqlite3_serialize, sqlite3_deserialize). It may grow by so many bytes. The size of the image is returned.
func (c *Conn) CopyTo(to *Conn, growth int64) (size int64, err error) {
	var n C.int64_t
	if rc := C.conn_copy(c.c, to.c, C.int64_t(growth), &n); rc != 0 {
		return 0, &Error{int(rc), C.GoString(C.sqlite3_errstr(rc))}
	}
	return int64(n), nil
}

// Arm prepares for the next statement: it stops after timeout and after about so many VM instructions (0: no bound), looked at
// every 1000 instructions, and what Denied, Log and Stopped say starts anew.
func (c *Conn) Arm(timeout time.Duration, ops int64) {
	C.conn_arm(c.c, C.int64_t(timeout.Nanoseconds()), C.int64_t(ops))
}

// Cancel stops the running statement at its next look. It may be called from any goroutine, but not during Close.
func (c *Conn) Cancel() {
	if c.c != nil {
		C.conn_cancel(c.c)
	}
}

// Stop says why a statement was stopped by the progress handler.
type Stop int

// The reasons.
const (
	NotStopped        Stop = C.RUNNING
	StoppedByDeadline Stop = C.STOPPED_BY_DEADLINE
	StoppedByOps      Stop = C.STOPPED_BY_OPS
	StoppedByCancel   Stop = C.STOPPED_BY_CANCEL
)

// Stopped is why the last statement was stopped.
func (c *Conn) Stopped() Stop { return Stop(c.c.stopped) }

// Stmt is a prepared statement.
type Stmt struct {
	conn  *Conn
	s     *C.sqlite3_stmt
	fetch C.fetch
}

// Prepare compiles the first statement of sql and returns the text after it (sqlite3_prepare_v3).
// The statement is nil where there is none: white space, comments.
func (c *Conn) Prepare(sql string) (stmt *Stmt, tail string, err error) {
	if sql == "" {
		return nil, "", nil
	}
	text := (*C.char)(unsafe.Pointer(unsafe.StringData(sql)))
	var s *C.sqlite3_stmt
	var used C.int
	if rc := C.conn_prepare(c.c, text, C.int(len(sql)), &s, &used); rc != 0 {
		return nil, "", c.err(rc)
	}
	tail = sql[used:]
	if s == nil {
		return nil, tail, nil
	}
	return &Stmt{conn: c, s: s}, tail, nil
}

// Close frees the statement. It may be called twice, and on nil.
func (s *Stmt) Close() {
	if s == nil || s.s == nil {
		return
	}
	C.sqlite3_finalize(s.s)
	C.free(unsafe.Pointer(s.fetch.data))
	s.s, s.fetch.data = nil, nil
}

// ReadOnly says that the statement writes no database directly (sqlite3_stmt_readonly); it is true for ATTACH and BEGIN.
func (s *Stmt) ReadOnly() bool { return C.sqlite3_stmt_readonly(s.s) != 0 }

// Parameters counts the parameters (sqlite3_bind_parameter_count).
func (s *Stmt) Parameters() int { return int(C.sqlite3_bind_parameter_count(s.s)) }

// BindText binds text to parameter i, from 1 (sqlite3_bind_text), after a reset.
func (s *Stmt) BindText(i int, text string) error {
	C.sqlite3_reset(s.s)
	ctext := C.CString(text)
	defer C.free(unsafe.Pointer(ctext))
	return s.conn.err(C.stmt_bind_text(s.s, C.int(i), ctext, C.int(len(text))))
}

// Columns counts the result columns, 0 for a statement without a result.
func (s *Stmt) Columns() int { return int(C.sqlite3_column_count(s.s)) }

// Column is the name and declared type of result column i, from 0.
func (s *Stmt) Column(i int) (name, declType string) {
	return C.GoString(C.sqlite3_column_name(s.s, C.int(i))), C.GoString(C.sqlite3_column_decltype(s.s, C.int(i)))
}

// End is how a Fetch ended.
type End int

// The ways to end.
const (
	More       End = C.FETCH_MORE
	Done       End = C.FETCH_DONE
	CutByRows  End = C.FETCH_CUT_BY_ROWS  // a row more than the limit exists
	CutByBytes End = C.FETCH_CUT_BY_BYTES // the next row would pass the limit
)

// ErrNoMemory: a row could not be copied.
var ErrNoMemory = errors.New("sqlite: out of memory while copying a row")

// LimitRows bounds all further rows of the statement together: their number, and the bytes of their packed values.
func (s *Stmt) LimitRows(rows int, bytes int64) {
	s.fetch.rows_left, s.fetch.bytes_left = C.int64_t(rows), C.int64_t(bytes)
}

// Fetch runs the statement until about chunk bytes of rows are there, or to its end. The rows are packed as conn.h says,
// in C memory that the next Fetch or Close takes back.
func (s *Stmt) Fetch(chunk int) (rows int, packed []byte, end End, err error) {
	switch rc := C.fetch_rows(s.s, &s.fetch, C.size_t(chunk)); rc {
	case C.FETCH_FAILED:
		return 0, nil, Done, s.conn.err(C.sqlite3_extended_errcode(s.conn.c.db))
	case C.FETCH_NO_MEMORY:
		return 0, nil, Done, ErrNoMemory
	default:
		return int(s.fetch.rows), unsafe.Slice((*byte)(s.fetch.data), int(s.fetch.len)), End(rc), nil
	}
}
