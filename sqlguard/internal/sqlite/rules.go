package sqlite

/*
#include <stdlib.h>
#include "conn.h"
*/
import "C"

import "unsafe"

// Rules is what the authorizer allows. Names are compared without case.
type Rules struct {
	Actions         []int    // allowed action codes
	DeniedFunctions []string // SQL functions that are not
	Pragmas         []string // allowed without an argument
	PragmasWithArg  []string // allowed with one, which must be a table of Tables where these are set
	Tables          []string // the only ones that may be read; nil: all
	DeniedTables    []string // that may not be read in any case
}

// Authorize sets the rules for statements prepared from now on, also inside SQLite while others run; nil allows all.
// ATTACH, where its action is allowed, is for memory databases only.
func (c *Conn) Authorize(r *Rules) {
	freeRules(c.rules)
	c.rules = newRules(r)
	c.c.rules = c.rules
}

// Trust lets the rules rest while statements of our own run.
func (c *Conn) Trust(on bool) {
	c.c.trusted = 0
	if on {
		c.c.trusted = 1
	}
}

func newRules(r *Rules) *C.rules {
	if r == nil {
		return nil
	}
	c := (*C.rules)(C.calloc(1, C.sizeof_rules))
	for _, action := range r.Actions {
		c.actions |= 1 << action
	}
	c.denied_functions = newNames(r.DeniedFunctions)
	c.pragmas = newNames(r.Pragmas)
	c.pragmas_with_arg = newNames(r.PragmasWithArg)
	c.denied_tables = newNames(r.DeniedTables)
	if r.Tables != nil {
		c.tables = newNames(r.Tables)
	}
	return c
}

func freeRules(c *C.rules) {
	if c == nil {
		return
	}
	for _, names := range []**C.char{c.denied_functions, c.pragmas, c.pragmas_with_arg, c.tables, c.denied_tables} {
		freeNames(names)
	}
	C.free(unsafe.Pointer(c))
}

// newNames makes a C array of C strings that ends with NULL.
func newNames(names []string) **C.char {
	array := (**C.char)(C.calloc(C.size_t(len(names)+1), C.size_t(unsafe.Sizeof((*C.char)(nil)))))
	for i, name := range names {
		unsafe.Slice(array, len(names))[i] = C.CString(name)
	}
	return array
}

func freeNames(array **C.char) {
	if array == nil {
		return
	}
	for p := array; *p != nil; p = (**C.char)(unsafe.Add(unsafe.Pointer(p), unsafe.Sizeof(*p))) {
		C.free(unsafe.Pointer(*p))
	}
	C.free(unsafe.Pointer(array))
}

// Use is one question SQLite asked the authorizer: an action code and its first two arguments, cut at 255 bytes.
type Use struct {
	Action int
	A, B   string
}

// Denied is the first thing denied since Arm.
func (c *Conn) Denied() (Use, bool) {
	return goUse(&c.c.denied), c.c.denied.action != 0
}

// Log switches the recording of everything asked since Arm, up to max different things (0: off).
func (c *Conn) Log(max int) {
	C.free(unsafe.Pointer(c.c.log))
	c.c.log, c.c.log_len, c.c.log_max = nil, 0, C.int(max)
	if max > 0 {
		c.c.log = (*C.use)(C.calloc(C.size_t(max), C.sizeof_use))
	}
}

// Uses is what was recorded since Arm, each thing once, in order.
func (c *Conn) Uses() []Use {
	var uses []Use
	for i := range unsafe.Slice(c.c.log, int(c.c.log_len)) {
		uses = append(uses, goUse((*C.use)(unsafe.Add(unsafe.Pointer(c.c.log), i*C.sizeof_use))))
	}
	return uses
}

func goUse(u *C.use) Use {
	return Use{int(u.action), C.GoString(&u.a[0]), C.GoString(&u.b[0])}
}
