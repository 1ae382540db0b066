package sqlguard

import (
	"fmt"
	"slices"
	"strings"

	"quern/sqlguard/internal/sqlite"
)

// deniedFunctions reach outside the database or change how it works. Those of the command line shell and of extensions are not
// linked; naming them costs nothing.
var deniedFunctions = []string{
	"load_extension", "fts3_tokenizer", "optimize", "sqlite_log", "readfile", "writefile", "edit", "lsdir", "fileio_ls", "zipfile",
	"auth_user_add", "auth_user_change", "auth_user_delete", "auth_enabled", "authenticate",
}

// Pragmas that only read. Those of the second list take the name of a table or an index.
var (
	readPragmas = []string{
		"page_size", "page_count", "freelist_count", "encoding", "user_version", "application_id", "schema_version", "data_version",
		"table_list", "database_list", "collation_list", "function_list", "module_list", "pragma_list", "compile_options",
	}
	tablePragmas = []string{
		"table_info", "table_xinfo", "table_list", "index_list", "index_info", "index_xinfo", "foreign_key_list",
	}
)

// Pragmas that a private copy allows beside reading: they act on it alone.
var scratchPragmas = []string{
	"user_version", "application_id", "foreign_keys", "defer_foreign_keys", "recursive_triggers", "case_sensitive_like",
	"reverse_unordered_selects", "automatic_index", "count_changes", "full_column_names", "short_column_names", "legacy_alter_table",
	"foreign_key_check", "integrity_check", "quick_check", "ignore_check_constraints", "auto_vacuum", "incremental_vacuum", "optimize",
}

var readActions = []int{sqlite.ActionSelect, sqlite.ActionRead, sqlite.ActionRecursive, sqlite.ActionFunction, sqlite.ActionPragma}

func readRules() *sqlite.Rules {
	return &sqlite.Rules{
		Actions:         readActions,
		DeniedFunctions: deniedFunctions,
		Pragmas:         readPragmas,
		PragmasWithArg:  tablePragmas,
	}
}

// tablesRules reads the given tables and nothing else: no catalogue, no pragma that names what is hidden.
func tablesRules(tables []string) *sqlite.Rules {
	r := readRules()
	r.Tables = tables
	r.Pragmas = []string{"page_size", "encoding", "user_version", "application_id", "compile_options", "function_list", "collation_list"}
	r.PragmasWithArg = []string{"table_info", "table_xinfo", "index_list"}
	return r
}

// scratchRules allows everything that stays inside the copy. ATTACH is for memory only: VACUUM needs it.
func scratchRules() *sqlite.Rules {
	r := readRules()
	r.Actions = nil
	for action := sqlite.ActionCreateIndex; action <= sqlite.ActionRecursive; action++ {
		r.Actions = append(r.Actions, action)
	}
	r.Pragmas = slices.Concat(readPragmas, scratchPragmas)
	r.PragmasWithArg = slices.Concat(tablePragmas, scratchPragmas)
	return r
}

// pragmaFunctions names the table-valued functions of the pragmas that rules do not allow: SQLite refuses these pragmas anyway, but
// only when the statement runs, and in words about something else.
func pragmaFunctions(conn *sqlite.Conn, r *sqlite.Rules) ([]string, error) {
	rows, err := query(conn, maxNames, "SELECT name FROM pragma_pragma_list")
	if err != nil {
		return nil, err
	}
	var denied []string
	for _, name := range firsts(rows) {
		if !slices.Contains(r.Pragmas, name) && !slices.Contains(r.PragmasWithArg, name) {
			denied = append(denied, pragmaPrefix+name)
		}
	}
	return denied, nil
}

const pragmaPrefix = "pragma_"

// action words an authorizer action: the rule's name, what the statement would do, and which argument is the object.
type action struct {
	rule, would string
	object      func(sqlite.Use) string
}

func first(u sqlite.Use) string  { return u.A }
func second(u sqlite.Use) string { return u.B }
func none(sqlite.Use) string     { return "" }

func column(u sqlite.Use) string {
	if u.B == "" {
		return u.A
	}
	return u.A + "." + u.B
}

// actions has one entry per code of https://www.sqlite.org/c3ref/c_alter_table.html.
var actions = map[int]action{
	sqlite.ActionCreateIndex:       {"create_index", "create index", first},
	sqlite.ActionCreateTable:       {"create_table", "create table", first},
	sqlite.ActionCreateTempIndex:   {"create_temp_index", "create temporary index", first},
	sqlite.ActionCreateTempTable:   {"create_temp_table", "create temporary table", first},
	sqlite.ActionCreateTempTrigger: {"create_temp_trigger", "create temporary trigger", first},
	sqlite.ActionCreateTempView:    {"create_temp_view", "create temporary view", first},
	sqlite.ActionCreateTrigger:     {"create_trigger", "create trigger", first},
	sqlite.ActionCreateView:        {"create_view", "create view", first},
	sqlite.ActionDelete:            {"delete", "delete from", first},
	sqlite.ActionDropIndex:         {"drop_index", "drop index", first},
	sqlite.ActionDropTable:         {"drop_table", "drop table", first},
	sqlite.ActionDropTempIndex:     {"drop_temp_index", "drop temporary index", first},
	sqlite.ActionDropTempTable:     {"drop_temp_table", "drop temporary table", first},
	sqlite.ActionDropTempTrigger:   {"drop_temp_trigger", "drop temporary trigger", first},
	sqlite.ActionDropTempView:      {"drop_temp_view", "drop temporary view", first},
	sqlite.ActionDropTrigger:       {"drop_trigger", "drop trigger", first},
	sqlite.ActionDropView:          {"drop_view", "drop view", first},
	sqlite.ActionInsert:            {"insert", "insert into", first},
	sqlite.ActionPragma:            {"pragma", "use PRAGMA", first},
	sqlite.ActionRead:              {"read", "read", column},
	sqlite.ActionSelect:            {"select", "select", none},
	sqlite.ActionTransaction:       {"transaction", "begin or end a transaction:", first},
	sqlite.ActionUpdate:            {"update", "update", first},
	sqlite.ActionAttach:            {"attach", "open or write another file:", first},
	sqlite.ActionDetach:            {"detach", "detach database", first},
	sqlite.ActionAlterTable:        {"alter_table", "alter table", second},
	sqlite.ActionReindex:           {"reindex", "rebuild index", first},
	sqlite.ActionAnalyze:           {"analyze", "write statistics for", first},
	sqlite.ActionCreateVTable:      {"create_virtual_table", "create virtual table", first},
	sqlite.ActionDropVTable:        {"drop_virtual_table", "drop virtual table", first},
	sqlite.ActionFunction:          {"function", "call function", second},
	sqlite.ActionSavepoint:         {"savepoint", "use a savepoint:", second},
	sqlite.ActionRecursive:         {"recursive", "recurse", none},
}

// reachingActions are refused for what they reach; the others for what they write.
var reachingActions = append([]int{
	sqlite.ActionTransaction, sqlite.ActionSavepoint, sqlite.ActionAttach, sqlite.ActionDetach,
}, readActions...)

// refusal words what the authorizer denied.
func refusal(u sqlite.Use, scratch bool) *Failure {
	a, known := actions[u.Action]
	if !known {
		a = action{fmt.Sprintf("action_%d", u.Action), "do something unknown to this guard", none}
	}
	object := a.object(u)
	if name, ok := strings.CutPrefix(u.A, pragmaPrefix); ok && u.Action == sqlite.ActionRead {
		u, a, object = sqlite.Use{Action: sqlite.ActionPragma, A: name}, actions[sqlite.ActionPragma], name
	}
	if u.Action == sqlite.ActionRead {
		// The column would tell what a hidden table holds.
		return &Failure{Kind: Refused, Rule: "tables", Object: u.A, Code: sqlite.CodeAuth,
			Message: fmt.Sprintf("not authorized: table %q is not among the tables that may be read", u.A)}
	}
	code := sqlite.CodeReadOnly
	if slices.Contains(reachingActions, u.Action) {
		code = sqlite.CodeAuth
	}
	f := &Failure{Kind: Refused, Rule: a.rule, Object: object, Code: code,
		Message: strings.TrimRight(fmt.Sprintf("not authorized: the statement would %s %s", a.would, object), " :"),
		Hint:    "only statements that read are run: write one SELECT"}
	if scratch {
		f.Hint = "statements may change the private copy, and reach nothing outside it"
	}
	return f
}
