#include "conn.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OPS_PER_CHECK = 1000 };

static int64_t now_ns(void) {
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static int listed(char **names, const char *name) {
	for (; *names; names++)
		if (sqlite3_stricmp(*names, name) == 0) return 1;
	return 0;
}

static void copy_name(char *to, const char *from) {
	size_t n = from ? strlen(from) : 0;
	if (n > NAME_MAX_BYTES - 1) n = NAME_MAX_BYTES - 1;
	if (n) memcpy(to, from, n);
	to[n] = 0;
}

static void record(use *u, int action, const char *a, const char *b) {
	u->action = action;
	copy_name(u->a, a);
	copy_name(u->b, b);
}

static void log_use(conn *c, int action, const char *a, const char *b) {
	use u;
	record(&u, action, a, b);
	for (int i = 0; i < c->log_len; i++)
		if (c->log[i].action == action && !strcmp(c->log[i].a, u.a) && !strcmp(c->log[i].b, u.b)) return;
	if (c->log_len < c->log_max) c->log[c->log_len++] = u;
}

static int allowed(const rules *r, int action, const char *a, const char *b) {
	if (action < 0 || action > 63 || !(r->actions >> action & 1)) return 0;
	switch (action) {
	case SQLITE_READ:
		return a && (!r->tables || listed(r->tables, a)) && !listed(r->denied_tables, a);
	case SQLITE_FUNCTION: // the name is the second argument
		return b && !listed(r->denied_functions, b);
	case SQLITE_PRAGMA:
		if (!a) return 0;
		if (!b) return listed(r->pragmas, a);
		return listed(r->pragmas_with_arg, a) && (!r->tables || listed(r->tables, b));
	case SQLITE_ATTACH: // memory only; a name that is not a literal arrives as NULL
		return a && (!*a || !strcmp(a, ":memory:"));
	}
	return 1;
}

static int authorize(void *arg, int action, const char *a, const char *b, const char *schema, const char *inner) {
	conn *c = arg;
	(void)schema;
	(void)inner; // set to any name the query gives a subquery, so nothing may rest on it
	if (c->trusted) return SQLITE_OK;
	if (c->log_max) log_use(c, action, a, b);
	if (!c->rules || allowed(c->rules, action, a, b)) return SQLITE_OK;
	if (!c->denied.action) record(&c->denied, action, a, b);
	return SQLITE_DENY;
}

static int stop(void *arg) {
	conn *c = arg;
	if (atomic_load_explicit(&c->cancelled, memory_order_relaxed)) {
		c->stopped = STOPPED_BY_CANCEL;
	} else if (c->ops_left >= 0 && (c->ops_left -= OPS_PER_CHECK) < 0) {
		c->ops_left = 0;
		c->stopped = STOPPED_BY_OPS;
	} else if (c->deadline && now_ns() >= c->deadline) {
		c->stopped = STOPPED_BY_DEADLINE;
	}
	return c->stopped != RUNNING;
}

int conn_open(conn *c, const char *uri, int flags) {
	int rc = sqlite3_open_v2(uri, &c->db, flags, NULL);
	if (rc != SQLITE_OK) return rc;
	sqlite3_extended_result_codes(c->db, 1);
	sqlite3_set_authorizer(c->db, authorize, c);
	sqlite3_progress_handler(c->db, OPS_PER_CHECK, stop, c);
	c->ops_left = -1;
	return SQLITE_OK;
}

void conn_arm(conn *c, int64_t timeout_ns, int64_t ops) {
	c->deadline = timeout_ns > 0 ? now_ns() + timeout_ns : 0;
	c->ops_left = ops > 0 ? ops : -1;
	c->stopped = RUNNING;
	c->denied.action = 0;
	c->log_len = 0;
	atomic_store_explicit(&c->cancelled, 0, memory_order_relaxed);
}

void conn_cancel(conn *c) { atomic_store_explicit(&c->cancelled, 1, memory_order_relaxed); }

int conn_prepare(conn *c, const char *sql, int bytes, sqlite3_stmt **stmt, int *used) {
	const char *tail = sql;
	int rc = sqlite3_prepare_v3(c->db, sql, bytes, 0, stmt, &tail);
	*used = (int)(tail - sql);
	return rc;
}

int conn_config(conn *c, int op, int on) {
	int now = -1;
	int rc = sqlite3_db_config(c->db, op, on, &now);
	return rc == SQLITE_OK && now != on ? 1 : rc;
}

int conn_copy(conn *from, conn *to, int64_t growth, int64_t *size) {
	enum { FREE_ON_CLOSE = 1, RESIZEABLE = 2, FORMAT_WRITE = 18, FORMAT_READ = 19 };
	unsigned char *image = sqlite3_serialize(from->db, "main", size, 0);
	if (!image) return SQLITE_NOMEM;
	if (*size > FORMAT_READ) image[FORMAT_WRITE] = image[FORMAT_READ] = 1; // a memory database has no WAL
	int rc = sqlite3_deserialize(to->db, "main", image, *size, *size, FREE_ON_CLOSE | RESIZEABLE); // frees image when it fails
	if (rc != SQLITE_OK) return rc;
	int64_t most = *size + growth;
	return sqlite3_file_control(to->db, "main", SQLITE_FCNTL_SIZE_LIMIT, &most);
}

int stmt_bind_text(sqlite3_stmt *stmt, int i, const char *text, int bytes) {
	return sqlite3_bind_text(stmt, i, text, bytes, (void (*)(void *))-1); // SQLITE_TRANSIENT: SQLite copies
}

// value_bytes is the packed size of column i, or -1 when SQLite ran out of memory converting it to UTF-8.
static int64_t value_bytes(sqlite3_stmt *stmt, int i) {
	switch (sqlite3_column_type(stmt, i)) {
	case SQLITE_INTEGER:
	case SQLITE_FLOAT:
		return 9;
	case SQLITE_TEXT:
		if (!sqlite3_column_text(stmt, i)) return -1;
		return 5 + (int64_t)sqlite3_column_bytes(stmt, i);
	case SQLITE_BLOB: // bytes alone: asking for the data would write out a zeroblob that may be over the limit
		return 5 + (int64_t)sqlite3_column_bytes(stmt, i);
	}
	return 1;
}

static void put(fetch *f, const void *p, size_t n) {
	if (n) memcpy(f->data + f->len, p, n);
	f->len += n;
}

static void put_uint(fetch *f, uint64_t v, int bytes) {
	for (int i = 0; i < bytes; i++) f->data[f->len++] = (unsigned char)(v >> 8 * i);
}

static int pack_value(sqlite3_stmt *stmt, int i, fetch *f) {
	int type = sqlite3_column_type(stmt, i);
	const void *bytes;
	double d;
	uint64_t bits;
	f->data[f->len++] = (unsigned char)type;
	switch (type) {
	case SQLITE_INTEGER:
		put_uint(f, (uint64_t)sqlite3_column_int64(stmt, i), 8);
		break;
	case SQLITE_FLOAT:
		d = sqlite3_column_double(stmt, i);
		memcpy(&bits, &d, 8);
		put_uint(f, bits, 8);
		break;
	case SQLITE_TEXT:
	case SQLITE_BLOB:
		bytes = type == SQLITE_TEXT ? (const void *)sqlite3_column_text(stmt, i) : sqlite3_column_blob(stmt, i);
		int n = sqlite3_column_bytes(stmt, i);
		if (!bytes && n) return SQLITE_NOMEM;
		put_uint(f, (uint64_t)n, 4);
		put(f, bytes, (size_t)n);
		break;
	}
	return SQLITE_OK;
}

static int reserve(fetch *f, size_t more) {
	if (f->cap - f->len >= more) return 1;
	size_t cap = f->cap ? f->cap : 4096;
	while (cap - f->len < more) cap *= 2;
	unsigned char *data = realloc(f->data, cap);
	if (!data) return 0;
	f->data = data;
	f->cap = cap;
	return 1;
}

int fetch_rows(sqlite3_stmt *stmt, fetch *f, size_t chunk_bytes) {
	f->len = 0;
	f->rows = 0;
	while (f->len < chunk_bytes) {
		int rc = sqlite3_step(stmt);
		if (rc == SQLITE_DONE) return FETCH_DONE;
		if (rc != SQLITE_ROW) return FETCH_FAILED;
		if (f->rows_left == 0) return FETCH_CUT_BY_ROWS;

		int columns = sqlite3_column_count(stmt);
		int64_t need = 0;
		for (int i = 0; i < columns; i++) {
			int64_t n = value_bytes(stmt, i);
			if (n < 0) return FETCH_NO_MEMORY;
			need += n;
			if (need > f->bytes_left) return FETCH_CUT_BY_BYTES;
		}
		if (!reserve(f, (size_t)need)) return FETCH_NO_MEMORY;
		for (int i = 0; i < columns; i++)
			if (pack_value(stmt, i, f) != SQLITE_OK) return FETCH_NO_MEMORY;
		f->rows++;
		f->rows_left--;
		f->bytes_left -= need;
	}
	return FETCH_MORE;
}
