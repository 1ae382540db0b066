// The part of SQLite's interface that this package calls, declared by hand: the library itself is the one compiled into
// github.com/mattn/go-sqlite3, whose header a second cgo package cannot include. On Linux the declarations are weak, so
// that cgo's trial link of this package alone succeeds; the final link resolves them (init checks that it did).
#ifndef QUERN_SQLITE3_H
#define QUERN_SQLITE3_H

#include <stddef.h>
#include <stdint.h>

#ifdef __linux__
#define API __attribute__((weak)) extern
#else
#define API extern
#endif

typedef struct sqlite3 sqlite3;
typedef struct sqlite3_stmt sqlite3_stmt;

API const char *sqlite3_libversion(void);
API const char *sqlite3_sourceid(void);
API const char *sqlite3_compileoption_get(int n);

API int sqlite3_open_v2(const char *filename, sqlite3 **db, int flags, const char *vfs);
API int sqlite3_close_v2(sqlite3 *db);
API int sqlite3_extended_result_codes(sqlite3 *db, int on);
API int sqlite3_extended_errcode(sqlite3 *db);
API const char *sqlite3_errmsg(sqlite3 *db);
API const char *sqlite3_errstr(int rc);
API int sqlite3_db_config(sqlite3 *db, int op, ...);
API int sqlite3_limit(sqlite3 *db, int id, int value);
API int sqlite3_busy_timeout(sqlite3 *db, int ms);
API int sqlite3_get_autocommit(sqlite3 *db);
API int sqlite3_db_release_memory(sqlite3 *db);
API int sqlite3_file_control(sqlite3 *db, const char *schema, int op, void *arg);
API int sqlite3_exec(sqlite3 *db, const char *sql, int (*row)(void *, int, char **, char **), void *arg, char **message);
API unsigned char *sqlite3_serialize(sqlite3 *db, const char *schema, int64_t *size, unsigned flags);
API int sqlite3_deserialize(sqlite3 *db, const char *schema, unsigned char *data, int64_t size, int64_t capacity, unsigned flags);

API int64_t sqlite3_hard_heap_limit64(int64_t bytes);
API int64_t sqlite3_memory_used(void);
API int sqlite3_stricmp(const char *a, const char *b);

API int sqlite3_set_authorizer(sqlite3 *db,
	int (*authorize)(void *, int, const char *, const char *, const char *, const char *), void *arg);
API void sqlite3_progress_handler(sqlite3 *db, int ops, int (*stop)(void *), void *arg);

API int sqlite3_prepare_v3(sqlite3 *db, const char *sql, int bytes, unsigned flags, sqlite3_stmt **stmt, const char **tail);
API int sqlite3_finalize(sqlite3_stmt *stmt);
API int sqlite3_reset(sqlite3_stmt *stmt);
API int sqlite3_step(sqlite3_stmt *stmt);
API int sqlite3_stmt_readonly(sqlite3_stmt *stmt);
API int sqlite3_bind_parameter_count(sqlite3_stmt *stmt);
API int sqlite3_bind_text(sqlite3_stmt *stmt, int i, const char *text, int bytes, void (*destroy)(void *));
API int sqlite3_column_count(sqlite3_stmt *stmt);
API const char *sqlite3_column_name(sqlite3_stmt *stmt, int i);
API const char *sqlite3_column_decltype(sqlite3_stmt *stmt, int i);
API int sqlite3_column_type(sqlite3_stmt *stmt, int i);
API int64_t sqlite3_column_int64(sqlite3_stmt *stmt, int i);
API double sqlite3_column_double(sqlite3_stmt *stmt, int i);
API const unsigned char *sqlite3_column_text(sqlite3_stmt *stmt, int i);
API const void *sqlite3_column_blob(sqlite3_stmt *stmt, int i);
API int sqlite3_column_bytes(sqlite3_stmt *stmt, int i);

enum {
	SQLITE_OK = 0,
	SQLITE_DENY = 1,
	SQLITE_NOMEM = 7,
	SQLITE_ROW = 100,
	SQLITE_DONE = 101,

	SQLITE_INTEGER = 1,
	SQLITE_FLOAT = 2,
	SQLITE_TEXT = 3,
	SQLITE_BLOB = 4,
	SQLITE_NULL = 5,

	// Actions whose arguments the authorizer looks at.
	SQLITE_PRAGMA = 19,
	SQLITE_READ = 20,
	SQLITE_ATTACH = 24,
	SQLITE_FUNCTION = 31,

	SQLITE_FCNTL_SIZE_LIMIT = 36,
};

#endif
