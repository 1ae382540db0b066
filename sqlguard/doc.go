// Package sqlguard runs SQL that nobody has read, such as a model's, against a SQLite database that must not change.
//
// A statement passes three doors. Admission: the text is exactly one statement without parameters, and SQLite's own
// parser, asked through its authorizer, needs nothing beyond reading (https://www.sqlite.org/c3ref/set_authorizer.html).
// Limits: rows, bytes, memory and time are bounded by SQLite's own knobs, following its advice for hostile input
// (https://www.sqlite.org/security.html). Isolation: it runs in a worker process, because a single LIKE can keep SQLite's C code busy
// for a minute without looking at any deadline; a worker that overruns is killed, and the caller gets an observation.
//
//	guard, err := sqlguard.Open(ctx, "shop.sqlite", sqlguard.AskPolicy())
//	defer guard.Close()
//	result, err := guard.Query(ctx, "SELECT name, price FROM product ORDER BY price LIMIT 3")
//
// err is for our side: no worker can be started, ctx ended. What is wrong with the statement, refusals and deadlines included, is
// result.Failure: it is for whoever wrote the statement to read.
//
// A program that opens a Guard calls [RunWorker] as the first thing in main, and in TestMain for its tests: the workers are
// the same binary started with a hidden verb.
//
// A Guard, a Pool and a Session may be used from several goroutines; a Session runs one statement at a time.
package sqlguard
