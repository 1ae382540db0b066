package sqlguard

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"sync"
	"time"
)

// process is a worker process seen from its parent.
type process struct {
	cmd      *exec.Cmd
	requests *os.File // its stdin
	replies  *os.File // its stdout
	control  *os.File // closing it, also by dying, ends the worker
	complain *lastWords
	exited   chan struct{} // closed when the process has ended
}

var errNestedWorker = errors.New("sqlguard: this process is a worker itself: main, or TestMain, must call sqlguard.RunWorker first")

// startProcess starts this program as a worker.
func startProcess() (*process, error) {
	if os.Getenv(workerEnv) != "" {
		return nil, errNestedWorker
	}
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("sqlguard: start worker: %w", err)
	}
	var files [6]*os.File
	defer func() {
		if err != nil {
			closeFiles(files[:])
		}
	}()
	for i := 0; i < len(files); i += 2 {
		if files[i], files[i+1], err = os.Pipe(); err != nil {
			return nil, fmt.Errorf("sqlguard: start worker: %w", err)
		}
	}
	p := &process{requests: files[1], replies: files[2], control: files[5], complain: &lastWords{}, exited: make(chan struct{})}
	p.cmd = exec.Command(program, workerVerb)
	p.cmd.Env = append(os.Environ(), workerEnv+"=1")
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr = files[0], files[3], p.complain
	p.cmd.ExtraFiles = []*os.File{files[4]} // controlFD
	p.cmd.WaitDelay = time.Second
	if err = startTied(p.cmd); err != nil {
		return nil, fmt.Errorf("sqlguard: start worker: %w", err)
	}
	closeFiles([]*os.File{files[0], files[3], files[4]})
	go func() {
		p.cmd.Wait()
		close(p.exited)
	}()
	return p, nil
}

func closeFiles(files []*os.File) {
	for _, f := range files {
		if f != nil {
			f.Close()
		}
	}
}

// stop ends the process, whatever it does, and waits until it is gone.
func (p *process) stop() {
	p.cmd.Process.Kill()
	<-p.exited
	closeFiles([]*os.File{p.requests, p.replies, p.control})
}

// end says how the process ended, after it has.
func (p *process) end() string {
	<-p.exited
	text := p.cmd.ProcessState.String()
	if last := p.complain.first(); last != "" {
		text += ": " + last
	}
	return text
}

// lastWords keeps the beginning of what a worker writes to stderr: where a crash says what it was.
type lastWords struct {
	mu   sync.Mutex
	text []byte
}

func (w *lastWords) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if room := 2000 - len(w.text); room > 0 {
		w.text = append(w.text, p[:min(room, len(p))]...)
	}
	return len(p), nil
}

// first is the first line.
func (w *lastWords) first() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	line, _, _ := bytes.Cut(bytes.TrimSpace(w.text), []byte("\n"))
	return string(line)
}

// onStarterThread runs f on the one thread that starts workers. Linux ends a child with the thread that started it, not with the
// process, so that thread must never end.
func onStarterThread(f func()) {
	done := make(chan struct{})
	starter() <- func() { defer close(done); f() }
	<-done
}

var starter = sync.OnceValue(func() chan<- func() {
	work := make(chan func())
	go func() {
		runtime.LockOSThread()
		for f := range work {
			f()
		}
	}()
	return work
})
