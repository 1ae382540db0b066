// A connection with what must be in C: the authorizer and the progress handler, which SQLite calls too often for a
// crossing into Go, and the loop that packs rows.
#ifndef QUERN_CONN_H
#define QUERN_CONN_H

#include "sqlite3.h"
#include <stdatomic.h>

// rules is what the authorizer checks. The lists end with NULL; names are compared without case.
typedef struct {
	uint64_t actions;          // bit n: action code n is allowed
	char **denied_functions;
	char **pragmas;            // allowed without an argument
	char **pragmas_with_arg;   // allowed with one
	char **tables;             // the only ones that may be read; NULL: all
	char **denied_tables;      // that may not be read in any case
} rules;

enum { NAME_MAX_BYTES = 256 };

// use is one question SQLite asked the authorizer: action code and its first two arguments, cut at NAME_MAX_BYTES.
typedef struct {
	int action;
	char a[NAME_MAX_BYTES], b[NAME_MAX_BYTES];
} use;

// Why the progress handler stopped the statement.
enum { RUNNING = 0, STOPPED_BY_DEADLINE, STOPPED_BY_OPS, STOPPED_BY_CANCEL };

typedef struct {
	sqlite3 *db;

	rules *rules;              // NULL: everything is allowed
	int trusted;               // the rules rest: the statement is our own
	use denied;                // first denial since conn_arm; action 0: none
	use *log;                  // every question since conn_arm, when log_max > 0
	int log_len, log_max;

	int64_t deadline;          // CLOCK_MONOTONIC, nanoseconds; 0: none
	int64_t ops_left;          // VM instructions; negative: no bound
	int stopped;
	atomic_int cancelled;      // the only field another thread writes
} conn;

// fetch is the state of reading a result: what is still allowed, and a chunk of packed rows.
typedef struct {
	int64_t rows_left, bytes_left;
	int64_t rows;              // rows in the chunk
	unsigned char *data;       // packed values, row after row
	size_t len, cap;
} fetch;

enum { FETCH_MORE, FETCH_DONE, FETCH_CUT_BY_ROWS, FETCH_CUT_BY_BYTES, FETCH_FAILED, FETCH_NO_MEMORY };

int conn_open(conn *c, const char *uri, int flags);
void conn_arm(conn *c, int64_t timeout_ns, int64_t ops);
void conn_cancel(conn *c);
int conn_config(conn *c, int op, int on);
int conn_prepare(conn *c, const char *sql, int bytes, sqlite3_stmt **stmt, int *used);
int conn_copy(conn *from, conn *to, int64_t growth, int64_t *size);
int stmt_bind_text(sqlite3_stmt *stmt, int i, const char *text, int bytes);

// fetch_rows steps until the chunk holds chunk_bytes, or there is nothing more to read.
// A packed value is its storage class (one byte, SQLITE_INTEGER …) and, little-endian: 8 bytes of an integer or
// double; 4 bytes of length and the bytes of text or blob; nothing for NULL.
int fetch_rows(sqlite3_stmt *stmt, fetch *f, size_t chunk_bytes);

#endif
