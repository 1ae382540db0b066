// Package spider reads Spider's files and scores predictions as its official scripts do: execution over every database file
// of a test suite, exact set match with its partial scores, hardness, and the older execution of parsed columns.
//
// "Official" is bug for bug: taoyds/test-suite-sql-eval (commit e97acc5) and, for the legacy figures, taoyds/spider
// (b7b5b8c). Where such a script hangs, or ends with a Python exception, that is said as an outcome ([Crash], a note about
// hanging); nothing here hangs, and no database file is ever written.
package spider
