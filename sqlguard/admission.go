package sqlguard

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"quern/sqlguard/internal/sqlite"
)

const maxSQLBytes = 100_000

// checkText refuses text that SQLite would misread: it stops at a NUL byte, and takes broken UTF-8 as it comes.
func checkText(sql string) *Failure {
	switch {
	case len(sql) > maxSQLBytes:
		return &Failure{Kind: BadText, Rule: "length", Message: fmt.Sprintf("the statement is %d bytes long; at most %d are run", len(sql), maxSQLBytes)}
	case strings.IndexByte(sql, 0) >= 0:
		return &Failure{Kind: BadText, Rule: "nul", Message: "the statement contains a NUL byte, which would hide what follows it"}
	case !utf8.ValidString(sql):
		return &Failure{Kind: BadText, Rule: "utf8", Message: "the statement is not valid UTF-8"}
	}
	return nil
}

func noStatement() *Failure {
	return &Failure{Kind: NoStatement, Rule: "one_statement", Message: "no SQL statement: the text is empty or only comments", Hint: "write one SELECT"}
}

func moreThanOne() *Failure {
	return &Failure{Kind: MultipleStatements, Rule: "one_statement", Message: "more than one statement: only one is run at a time", Hint: "send the statements one by one"}
}

// prepare compiles the one statement of sql. With a failure there is no statement; without a statement and a failure the text
// holds none, which only Policy.Python lets pass.
func (d *database) prepare(conn *sqlite.Conn, sql string) (*sqlite.Stmt, *Failure) {
	stmt, tail, err := firstStatement(conn, sql, d.spec.Python)
	if err != nil {
		return nil, d.failure(conn, err)
	}
	more := false
	if d.spec.Python {
		more = skipBlank(tail) != ""
	} else {
		more = holdsStatement(conn, tail)
	}
	switch {
	case more:
		stmt.Close()
		return nil, moreThanOne()
	case stmt == nil && !d.spec.Python:
		return nil, noStatement()
	}
	return stmt, nil
}

// firstStatement compiles the first statement, skipping empty ones unless Python does not.
func firstStatement(conn *sqlite.Conn, sql string, python bool) (stmt *sqlite.Stmt, tail string, err error) {
	for tail = sql; ; {
		stmt, tail, err = conn.Prepare(tail)
		if stmt != nil || err != nil || tail == "" || python {
			return stmt, tail, err
		}
	}
}

// holdsStatement says whether text is more than white space, comments and semicolons. What does not compile is more.
func holdsStatement(conn *sqlite.Conn, text string) bool {
	stmt, _, err := firstStatement(conn, text, false)
	stmt.Close()
	return stmt != nil || err != nil
}

// checkStatement refuses a compiled statement that the guard cannot or must not run. The authorizer has already allowed it.
func checkStatement(stmt *sqlite.Stmt, write bool) *Failure {
	switch {
	case stmt.Parameters() > 0:
		return &Failure{Kind: Parameters, Rule: "parameters", Object: fmt.Sprint(stmt.Parameters()),
			Message: fmt.Sprintf("the statement has %d parameters, for which there are no values", stmt.Parameters()),
			Hint:    "write the values into the statement"}
	case !write && !stmt.ReadOnly():
		return &Failure{Kind: Refused, Rule: "read_only", Code: sqlite.CodeReadOnly, Message: "not authorized: the statement would write", Hint: "write one SELECT"}
	case !write && stmt.Columns() == 0:
		return &Failure{Kind: Refused, Rule: "no_result", Message: "not authorized: the statement returns no rows", Hint: "write one SELECT"}
	}
	return nil
}

// skipBlank drops leading white space and comments as lstrip_sql in Python 3.11's Modules/_sqlite/statement.c does.
func skipBlank(sql string) string {
	for {
		sql = strings.TrimLeft(sql, " \t\f\n\r")
		var ok bool
		switch {
		case strings.HasPrefix(sql, "--"):
			_, sql, _ = strings.Cut(sql, "\n")
		case strings.HasPrefix(sql, "/*"):
			if _, sql, ok = strings.Cut(sql[2:], "*/"); !ok {
				return ""
			}
		default:
			return sql
		}
	}
}

// isDML says whether Python's sqlite3 would open a transaction before the statement (pysqlite_statement_create).
func isDML(sql string) bool {
	sql = skipBlank(sql)
	for _, verb := range []string{"insert", "update", "delete", "replace"} {
		if len(sql) >= len(verb) && strings.EqualFold(sql[:len(verb)], verb) {
			return true
		}
	}
	return false
}

// PythonMessage is the text of the exception that Python's sqlite3 module raises for the same failure.
func PythonMessage(f *Failure) string {
	switch f.Kind {
	case MultipleStatements:
		return "You can only execute one statement at a time."
	case Parameters:
		return fmt.Sprintf("Incorrect number of bindings supplied. The current statement uses %s, and there are 0 supplied.", f.Object)
	case BadText:
		if f.Rule == "nul" {
			return "the query contains a null character"
		}
	case TimedOut:
		return "interrupted"
	case OutOfMemory:
		return "out of memory"
	case Refused:
		if f.Code == sqlite.CodeReadOnly {
			return "attempt to write a readonly database"
		}
		return "not authorized"
	}
	return f.Message
}
