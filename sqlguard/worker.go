package sqlguard

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"sync"
	"time"

	"quern/sqlguard/internal/sqlite"
)

// workerVerb, as the only argument, makes a program that calls RunWorker a worker.
const workerVerb = "__sqlguard-worker"

// workerEnv is set in a worker, where no further worker may be started: a program that forgot RunWorker would start itself
// over and over.
const workerEnv = "QUERN_SQLGUARD_WORKER"

// File descriptors of a worker beside stdin (requests) and stdout (replies).
const controlFD = 3

// RunWorker turns the process into a worker, and does not return, when it was started as one; otherwise it returns at once.
func RunWorker() {
	if len(os.Args) != 2 || os.Args[1] != workerVerb || os.Getenv(workerEnv) == "" {
		return
	}
	signal.Ignore(os.Interrupt) // Ctrl-C is the parent's to handle; its end shows on the control pipe
	confineProcess()
	runtime.GOMAXPROCS(2) // one statement, one watcher

	s := &server{databases: map[uint32]*database{}, out: bufio.NewWriterSize(os.Stdout, 64<<10), in: bufio.NewReaderSize(os.Stdin, 64<<10)}
	if writeFrame(s.out, repReady, []byte{protocolVersion}) != nil || s.out.Flush() != nil {
		os.Exit(0)
	}
	go s.serveOnThread()
	s.watch(os.NewFile(controlFD, "control"))
	os.Exit(0)
}

// server is the worker's side of the exchange: one request at a time.
type server struct {
	in        *bufio.Reader
	out       *bufio.Writer
	databases map[uint32]*database
	memory    int64 // limit that the process's address space is set for

	mu      sync.Mutex
	running *database // what cancel is for
	number  uint64    // of the request at hand
}

// watch reads the control pipe until the parent closes it, be it by dying. A message is the number of a request to cancel.
func (s *server) watch(control io.Reader) {
	var number [8]byte
	for {
		if _, err := io.ReadFull(control, number[:]); err != nil {
			return
		}
		s.mu.Lock()
		if s.running != nil && s.number == binary.LittleEndian.Uint64(number[:]) {
			s.running.cancel()
		}
		s.mu.Unlock()
	}
}

// lowerPriorityAfter is when a statement counts as slow: from then on its thread yields to everyone else's.
const lowerPriorityAfter = 200 * time.Millisecond

// serveOnThread serves requests on a thread of its own. After a slow statement the thread is left with its low
// priority, which cannot be taken back, and another goes on.
func (s *server) serveOnThread() {
	runtime.LockOSThread()
	slow := time.AfterFunc(time.Hour, priorityLowerer())
	for {
		if err := s.serveOne(slow); err != nil {
			os.Exit(0) // the parent closed the pipe
		}
		if !slow.Stop() { // it has fired
			go s.serveOnThread()
			return // locked: the thread ends with the goroutine
		}
	}
}

// serveOne answers one request. The error is of the pipes, and final.
func (s *server) serveOne(slow *time.Timer) error {
	kind, payload, err := readFrame(s.in, maxFrame)
	if err != nil {
		return err
	}
	slow.Reset(lowerPriorityAfter)
	id, payload, err := cutUint32(payload)
	if err != nil {
		return err
	}
	switch kind {
	case reqOpen:
		err = s.open(id, payload)
	case reqClose:
		s.close(id)
		return nil
	default:
		err = s.work(kind, id, payload)
	}
	if err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *server) open(id uint32, payload []byte) error {
	var sp spec
	if err := decode(payload, &sp); err != nil {
		return s.fail(err)
	}
	db, err := openDatabase(sp)
	if err != nil {
		return s.fail(err)
	}
	s.databases[id] = db
	return s.end(outcome{})
}

func (s *server) close(id uint32) {
	if db := s.databases[id]; db != nil {
		delete(s.databases, id)
		db.close()
	}
}

func (s *server) work(kind byte, id uint32, payload []byte) error {
	s.mu.Lock()
	s.number++ // as the parent counts
	s.mu.Unlock()
	db := s.databases[id]
	limits, payload, err := cutLimits(payload)
	if err != nil || db == nil {
		return s.fail(errFrame)
	}
	s.begin(db, limits.Memory)
	defer s.finish()
	switch kind {
	case reqQuery:
		o, err := db.run(string(payload), limits, s)
		if err != nil {
			return err
		}
		return s.end(o)
	case reqExplain:
		decision, err := db.explain(string(payload), limits, s)
		if err != nil {
			return err
		}
		return s.result(decision)
	case reqSchema:
		var options SchemaOptions
		if err := decode(payload, &options); err != nil {
			return s.fail(err)
		}
		schema, err := db.schema(options, limits)
		if err != nil {
			return s.fail(err)
		}
		return s.result(schema)
	case reqBegin:
		return s.done(db.begin(s))
	case reqRollback:
		return s.done(db.rollback())
	case reqReset:
		db.reset()
		return s.done(nil)
	}
	return s.fail(fmt.Errorf("%w: request %q", errFrame, kind))
}

// begin notes what runs, so that it can be cancelled.
func (s *server) begin(db *database, memory int64) {
	if memory != s.memory {
		s.memory = memory
		limitAddressSpace(memory)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = db
}

func (s *server) finish() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = nil
}

// The emitter's side.

func (s *server) copying(on bool) error {
	flag := []byte{0}
	if on {
		flag[0] = 1
		limitAddressSpace(0)
	} else {
		limitAddressSpace(s.memory)
	}
	if err := writeFrame(s.out, repCopying, flag); err != nil {
		return err
	}
	return s.out.Flush()
}

func (s *server) columns(columns []Column) error {
	return writeFrame(s.out, repColumns, appendColumns(nil, columns))
}

func (s *server) rows(rows int, packed []byte) error {
	return writeFrame(s.out, repRows, appendUint32(nil, uint32(rows)), packed)
}

func (s *server) end(o outcome) error { return writeFrame(s.out, repEnd, appendOutcome(nil, o)) }

func (s *server) result(v any) error {
	if err := writeFrame(s.out, repGob, encode(v)); err != nil {
		return err
	}
	return s.end(outcome{})
}

func (s *server) done(err error) error {
	if err != nil {
		return s.fail(err)
	}
	return s.end(outcome{})
}

func (s *server) fail(err error) error {
	remote := remoteError{Message: err.Error()}
	var e *sqlite.Error
	if errors.As(err, &e) {
		remote.Code = e.Code
	}
	return writeFrame(s.out, repError, encode(remote))
}
