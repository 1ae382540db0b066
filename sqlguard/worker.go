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
	number  uint64        // of the request at hand
	running *database     // what cancel is for
	thread  thread        // the one that serves
	started time.Duration // its CPU time when the request began
	lowered bool
}

// watch reads the control pipe until the parent closes it, be it by dying.
func (s *server) watch(control io.Reader) {
	var message [9]byte
	for {
		if _, err := io.ReadFull(control, message[:]); err != nil {
			return
		}
		s.mu.Lock()
		if s.running != nil && s.number == binary.LittleEndian.Uint64(message[1:]) {
			switch message[0] {
			case ctlCancel:
				s.running.cancel()
			case ctlLower:
				go s.lowerWhenSlow(s.number)
			}
		}
		s.mu.Unlock()
	}
}

// A statement is slow after so much time on a CPU: one that only had to wait keeps its priority.
const (
	slowCPU      = 8 * time.Millisecond
	slowCPUCheck = 2 * time.Millisecond
)

// lowerWhenSlow lowers the priority of the serving thread once the request with that number proves slow.
func (s *server) lowerWhenSlow(number uint64) {
	for ; ; time.Sleep(slowCPUCheck) {
		s.mu.Lock()
		over := s.running == nil || s.number != number
		if !over && s.thread.cpuTime()-s.started >= slowCPU {
			s.thread.lowerPriority()
			s.lowered, over = true, true
		}
		s.mu.Unlock()
		if over {
			return
		}
	}
}

// serveOnThread serves requests on a thread of its own. A thread whose priority was lowered cannot take it back: it ends with the
// request, and another goes on.
func (s *server) serveOnThread() {
	runtime.LockOSThread()
	s.mu.Lock()
	s.thread, s.lowered = currentThread(), false
	s.mu.Unlock()
	for {
		if err := s.serveOne(); err != nil {
			os.Exit(0) // the parent closed the pipe
		}
		s.mu.Lock()
		lowered := s.lowered
		s.mu.Unlock()
		if lowered {
			go s.serveOnThread()
			return // locked: the thread ends with the goroutine
		}
	}
}

// serveOne answers one request. The error is of the pipes, and final.
func (s *server) serveOne() error {
	kind, payload, err := readFrame(s.in, maxFrame)
	if err != nil {
		return err
	}
	id, payload, err := cutUint32(payload)
	if err != nil {
		return err
	}
	if kind == reqClose {
		s.close(id)
		return nil
	}
	s.mu.Lock()
	s.number++
	s.mu.Unlock()
	if kind == reqOpen {
		err = s.open(id, payload)
	} else {
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
	s.running, s.started = db, s.thread.cpuTime()
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
