package sqlguard

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"quern/sqlguard/internal/sqlite"
)

// spec is what a process needs to open a database: the file as the opening rules found it, and the rules for statements.
type spec struct {
	URI       string // file: URI, escaped
	Tables    []string
	Scratch   bool
	Python    bool
	DQS       bool
	Reverse   bool
	InProcess bool // the heap is shared with other connections
}

// database is an open connection under a policy. It runs one statement at a time, in a worker or in process.
type database struct {
	spec   spec
	limits Limits // of the statement at hand

	mu     sync.Mutex   // cancel comes from another goroutine; guards what the pointers are
	base   *sqlite.Conn // reads the file
	copied *sqlite.Conn // the private copy, from the first statement on that needs one
}

// busyTimeout bounds the wait for another program that holds the database.
const busyTimeout = 500 * time.Millisecond

// chunkBytes is about how many bytes of rows travel at once.
const chunkBytes = 128 << 10

func openDatabase(s spec) (*database, error) {
	base, err := sqlite.Open(s.URI, sqlite.OpenReadOnly|sqlite.OpenURI|sqlite.OpenNoMutex)
	if err != nil {
		return nil, err
	}
	d := &database{spec: s, base: base}
	if err := d.prepareBase(); err != nil {
		d.close()
		return nil, err
	}
	return d, nil
}

// prepareBase hardens the connection, looks whether the file can be read at all, and hands over to the rules.
func (d *database) prepareBase() error {
	d.base.BusyTimeout(busyTimeout)
	if err := harden(d.base, d.spec); err != nil {
		return err
	}
	d.base.Arm(time.Minute, 0)
	if err := d.base.Exec("PRAGMA query_only=ON; SELECT count(*) FROM sqlite_schema"); err != nil {
		return err
	}
	rules := readRules()
	if d.spec.Tables != nil {
		tables, err := visibleTables(d.base, d.spec.Tables)
		if err != nil {
			return err
		}
		rules = tablesRules(tables)
	}
	return authorize(d.base, rules)
}

func authorize(conn *sqlite.Conn, rules *sqlite.Rules) (err error) {
	rules.DeniedTables, err = pragmaFunctions(conn, rules)
	conn.Authorize(rules)
	return err
}

// harden applies what SQLite's page on hostile input (https://www.sqlite.org/security.html) asks for.
func harden(c *sqlite.Conn, s spec) error {
	// Before anything is read, since a hostile schema is parsed at the first statement.
	if err := c.Exec("PRAGMA trusted_schema=OFF; PRAGMA cell_size_check=ON; PRAGMA mmap_size=0; PRAGMA temp_store=MEMORY"); err != nil {
		return err
	}
	options := map[int]bool{
		sqlite.Defensive:           true,
		sqlite.TrustedSchema:       false,
		sqlite.EnableLoadExtension: false,
		sqlite.EnableFTS3Tokenizer: false,
		sqlite.EnableTrigger:       s.Scratch,
		sqlite.EnableAttachCreate:  s.Scratch, // VACUUM's, in memory
		sqlite.EnableAttachWrite:   s.Scratch,
		sqlite.DQSDML:              s.DQS,
		sqlite.DQSDDL:              s.DQS,
		sqlite.ReverseScanOrder:    s.Reverse,
	}
	for option, on := range options {
		if err := c.Config(option, on); err != nil {
			return err
		}
	}
	limits := map[int]int{
		sqlite.LimitSQLLength:      maxSQLBytes,
		sqlite.LimitColumn:         2000,
		sqlite.LimitExprDepth:      200,
		sqlite.LimitCompoundSelect: 100,
		sqlite.LimitVDBEOp:         1_000_000,
		sqlite.LimitFunctionArg:    127,
		sqlite.LimitAttached:       0,
		sqlite.LimitVariableNumber: 50,
		sqlite.LimitTriggerDepth:   1,
		sqlite.LimitWorkerThreads:  0,
	}
	if s.Python { // SQLite's defaults, so that what runs there runs here
		limits[sqlite.LimitExprDepth] = 1000
		limits[sqlite.LimitCompoundSelect] = 500
	}
	if s.Scratch {
		limits[sqlite.LimitAttached] = 1
		limits[sqlite.LimitTriggerDepth] = 100
	}
	for id, value := range limits {
		c.Limit(id, value)
	}
	return nil
}

func (d *database) close() {
	d.reset()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base.Close()
}

// emitter receives a result piece by piece: columns once, then packed rows, which are valid during the call only. copying tells
// that the private copy is being made, for which the statement's time stands still.
type emitter interface {
	copying(on bool) error
	columns([]Column) error
	rows(rows int, packed []byte) error
}

// outcome is how a statement ended.
type outcome struct {
	Truncated Truncation
	Elapsed   time.Duration
	Failure   *Failure
}

// run runs one statement. The error is the emitter's.
func (d *database) run(sql string, limits Limits, to emitter) (outcome, error) {
	start := time.Now()
	truncated, failure, err := d.admitAndRun(sql, limits, to)
	return outcome{truncated, time.Since(start), failure}, err
}

func (d *database) admitAndRun(sql string, limits Limits, to emitter) (Truncation, *Failure, error) {
	stmt, conn, failure, err := d.admit(sql, limits, to)
	if failure != nil || stmt == nil {
		return Whole, failure, err
	}
	defer stmt.Close()
	if conn == d.copied && d.spec.Python && isDML(sql) && !conn.InTransaction() {
		if err := conn.Exec("BEGIN"); err != nil {
			return Whole, d.failure(conn, err), nil
		}
	}
	return d.fetch(conn, stmt, limits, to)
}

// admit compiles and judges sql and says on which connection it runs: the file's, or the private copy where one exists or
// is needed. Neither statement nor failure means an empty text that Policy.Python lets pass.
func (d *database) admit(sql string, limits Limits, to emitter) (*sqlite.Stmt, *sqlite.Conn, *Failure, error) {
	if f := checkText(sql); f != nil {
		return nil, nil, f, nil
	}
	d.setLimits(limits)
	if d.copied == nil {
		stmt, f := d.admitOn(d.base, sql, false)
		if f == nil || !d.spec.Scratch || f.Kind != Refused {
			return stmt, d.base, f, nil
		}
		if f, err := d.makeCopy(to); f != nil || err != nil {
			return nil, nil, f, err
		}
	}
	stmt, f := d.admitOn(d.copied, sql, true)
	return stmt, d.copied, f, nil
}

func (d *database) admitOn(conn *sqlite.Conn, sql string, write bool) (*sqlite.Stmt, *Failure) {
	conn.Arm(d.limits.Timeout, d.limits.MaxOps)
	stmt, f := d.prepare(conn, sql)
	if f != nil || stmt == nil {
		return nil, f
	}
	if f := checkStatement(stmt, write); f != nil {
		stmt.Close()
		return nil, f
	}
	return stmt, nil
}

// setLimits applies the limits that SQLite itself keeps. The heap limit is what is in use now (pages cached for other
// databases, a private copy) and the statement's share.
func (d *database) setLimits(l Limits) {
	d.limits = l
	for _, c := range []*sqlite.Conn{d.base, d.copied} {
		if c != nil {
			c.Limit(sqlite.LimitLength, int(l.MaxCell))
			c.Limit(sqlite.LimitLikePatternLength, l.MaxLike)
		}
	}
	if !d.spec.InProcess {
		sqlite.HardHeapLimit(sqlite.MemoryUsed() + l.Memory)
	}
}

func (d *database) fetch(conn *sqlite.Conn, stmt *sqlite.Stmt, limits Limits, to emitter) (Truncation, *Failure, error) {
	stmt.LimitRows(limits.MaxRows, limits.MaxBytes)
	for first := true; ; first = false {
		rows, packed, end, err := stmt.Fetch(chunkBytes)
		if err != nil {
			return Whole, d.failure(conn, err), nil
		}
		if first { // after the first step, since a changed schema is noticed only there
			if err := to.columns(columnsOf(stmt)); err != nil {
				return Whole, nil, err
			}
		}
		if rows > 0 {
			if err := to.rows(rows, packed); err != nil {
				return Whole, nil, err
			}
		}
		switch end {
		case sqlite.Done:
			return Whole, nil, nil
		case sqlite.CutByRows:
			return CutByMaxRows, nil, nil
		case sqlite.CutByBytes:
			return CutByMaxBytes, nil, nil
		}
	}
}

func columnsOf(stmt *sqlite.Stmt) []Column {
	columns := make([]Column, stmt.Columns())
	for i := range columns {
		columns[i].Name, columns[i].DeclType = stmt.Column(i)
	}
	return columns
}

// explain judges sql and lists what it asked for, without running it.
func (d *database) explain(sql string, limits Limits, to emitter) (Decision, error) {
	conn := d.base
	if d.copied != nil {
		conn = d.copied
	}
	conn.Log(maxUses)
	defer conn.Log(0)
	stmt, chosen, failure, err := d.admit(sql, limits, to)
	decision := Decision{Failure: failure}
	for _, use := range conn.Uses() {
		decision.Uses = append(decision.Uses, Use{actions[use.Action].rule, objectOf(use)})
	}
	if stmt != nil {
		defer stmt.Close()
		decision.Writes = chosen == d.copied && !stmt.ReadOnly()
		decision.Columns = columnsOf(stmt)
	}
	return decision, err
}

// maxUses bounds what Explain lists.
const maxUses = 200

func objectOf(u sqlite.Use) string {
	if a, ok := actions[u.Action]; ok {
		return a.object(u)
	}
	return ""
}

// makeCopy puts the database, as it is now, into memory, where statements may write.
func (d *database) makeCopy(to emitter) (*Failure, error) {
	if err := to.copying(true); err != nil {
		return nil, err
	}
	if !d.spec.InProcess {
		sqlite.HardHeapLimit(0) // the image comes on top of the statement's share
	}
	conn, err := d.copyBase()
	if err != nil {
		f := d.failure(d.base, err)
		f.Message = "the private copy that writing needs could not be made: " + f.Message
		return f, to.copying(false)
	}
	d.mu.Lock()
	d.copied = conn
	d.mu.Unlock()
	d.setLimits(d.limits)
	return nil, to.copying(false)
}

func (d *database) copyBase() (*sqlite.Conn, error) {
	conn, err := sqlite.Open(":memory:", sqlite.OpenReadWrite|sqlite.OpenCreate|sqlite.OpenMemory|sqlite.OpenNoMutex)
	if err != nil {
		return nil, err
	}
	d.base.Arm(0, 0)
	d.base.Trust(true)
	defer d.base.Trust(false)
	if _, err = d.base.CopyTo(conn, d.limits.Memory); err == nil {
		err = harden(conn, d.spec)
	}
	if err == nil {
		err = authorize(conn, scratchRules())
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return conn, nil
}

// reset forgets the private copy: the database is the file again.
func (d *database) reset() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.copied != nil {
		d.copied.Close()
		d.copied = nil
	}
}

// begin opens a transaction on the private copy.
func (d *database) begin(to emitter) error {
	if d.copied == nil {
		f, err := d.makeCopy(to)
		if err == nil && f != nil {
			err = errors.New(f.Message)
		}
		if err != nil {
			return err
		}
	}
	return d.copied.Exec("BEGIN")
}

// rollback undoes the open transaction; none is no error.
func (d *database) rollback() error {
	if d.copied == nil || !d.copied.InTransaction() {
		return nil
	}
	return d.copied.Exec("ROLLBACK")
}

// cancel stops the running statement. It may be called from any goroutine.
func (d *database) cancel() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.base.Cancel()
	if d.copied != nil {
		d.copied.Cancel()
	}
}

// failure words what SQLite reported on conn.
func (d *database) failure(conn *sqlite.Conn, err error) *Failure {
	var e *sqlite.Error
	if errors.Is(err, sqlite.ErrNoMemory) {
		e = &sqlite.Error{Code: sqlite.CodeNoMem}
	} else if !errors.As(err, &e) {
		return &Failure{Kind: SQLError, Message: err.Error()}
	}
	if use, denied := conn.Denied(); denied && (e.Primary() == sqlite.CodeAuth || e.Primary() == sqlite.CodeError) {
		return refusal(use, d.spec.Scratch)
	}
	f := &Failure{Kind: SQLError, Message: e.Message, Code: e.Code}
	switch e.Primary() {
	case sqlite.CodeInterrupt:
		return d.stopped(conn, f)
	case sqlite.CodeNoMem:
		*f = *outOfMemory(d.limits)
	case sqlite.CodeTooBig:
		f.Kind, f.Rule = TooBig, "max_cell"
		f.Hint = fmt.Sprintf("no value may be longer than %s; --sql-max-bytes raises it", bytesText(d.limits.MaxCell))
	case sqlite.CodeBusy, sqlite.CodeLocked:
		f.Kind, f.Hint = Locked, "another program holds the database; try again when it is done"
	case sqlite.CodeReadOnly:
		f.Kind, f.Rule = Refused, "read_only"
		if e.Code == sqlite.CodeReadOnlyRollback {
			f.Kind, f.Rule, f.Hint = BadDatabase, "", hotJournalHint
		}
	case sqlite.CodeCorrupt, sqlite.CodeNotADB, sqlite.CodeIOErr, sqlite.CodeCantOpen, sqlite.CodeProtocol:
		f.Kind = BadDatabase
	case sqlite.CodeError:
		if strings.HasPrefix(e.Message, "unsafe use of ") { // a view or generated column calls what only a query may
			f.Kind, f.Rule = Refused, "trusted_schema"
		} else {
			f.Hint = d.hint(conn, e.Message)
		}
	}
	return f
}

const hotJournalHint = "a program stopped in the middle of a transaction: let a program that may write open the file once, so that SQLite rolls it back"

func (d *database) stopped(conn *sqlite.Conn, f *Failure) *Failure {
	if conn.Stopped() == sqlite.StoppedByOps {
		return &Failure{Kind: TimedOut, Rule: "max_ops", Code: f.Code,
			Message: fmt.Sprintf("query exceeded %d steps of SQLite's machine and was stopped", d.limits.MaxOps)}
	}
	return timedOut(d.limits)
}

// timedOut, outOfMemory: the same words whether SQLite stopped the statement or the worker had to be killed.
func timedOut(l Limits) *Failure {
	return &Failure{Kind: TimedOut, Rule: "timeout", Code: sqlite.CodeInterrupt,
		Message: fmt.Sprintf("query exceeded %v and was stopped", l.Timeout),
		Hint:    "make it cheaper, or raise --sql-timeout"}
}

func outOfMemory(l Limits) *Failure {
	return &Failure{Kind: OutOfMemory, Rule: "memory", Code: sqlite.CodeNoMem,
		Message: fmt.Sprintf("query needed more than %s of memory and was stopped", bytesText(l.Memory)),
		Hint:    "make it cheaper, or raise --sql-memory"}
}

// bytesText writes a size as a person says it: 256 MB, 1.5 GB.
func bytesText(n int64) string {
	units := []string{"bytes", "kB", "MB", "GB"}
	size, unit := float64(n), 0
	for size >= 1024 && unit < len(units)-1 {
		size, unit = size/1024, unit+1
	}
	return fmt.Sprintf("%.4g %s", size, units[unit])
}
