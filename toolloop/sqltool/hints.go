package sqltool

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"quern/sqlguard"
)

// hint says what may help the model to get on after this result: "" when there is nothing to say.
func (t *Tool) hint(ctx context.Context, sql string, result sqlguard.Result, repeats int) (string, error) {
	var hints []string
	add := func(hint string, err error) error {
		if hint != "" {
			hints = append(hints, hint)
		}
		return err
	}
	var err error
	switch {
	case result.Failure != nil && result.Failure.Kind == sqlguard.SQLError:
		err = add(t.nearestNames(ctx, sql, result.Failure.Message))
	case result.Failure == nil && len(result.Rows) == 0:
		err = add(t.storedOtherwise(ctx, sql))
	case result.Failure == nil:
		err = add(limitReached(sql, len(result.Rows)), nil)
	}
	if repeats >= 2 {
		add(fmt.Sprintf("this very query has now been run %d times and its result does not change; try something else, or answer.", repeats+1), nil)
	}
	return strings.Join(hints, " "), err
}

// limitReached warns that a LIMIT may have cut the rows: they are not all there are.
func limitReached(sql string, rows int) string {
	tokens := words(sql)
	if n := len(tokens); n > 0 && tokens[n-1].text == ";" {
		tokens = tokens[:n-1]
	}
	if len(tokens) < 2 {
		return ""
	}
	last, before := tokens[len(tokens)-1], tokens[len(tokens)-2]
	limit, err := strconv.Atoi(last.text)
	if err != nil || !strings.EqualFold(before.text, "LIMIT") || limit != rows || rows < 2 {
		return ""
	}
	return fmt.Sprintf("the query's own LIMIT %d may have left rows out.", limit)
}

// nearestNames answers "no such column" and "no such table" with the names that there are.
func (t *Tool) nearestNames(ctx context.Context, sql, message string) (string, error) {
	missing, isColumn := strings.CutPrefix(message, "no such column: ")
	if !isColumn {
		var isTable bool
		if missing, isTable = strings.CutPrefix(message, "no such table: "); !isTable {
			return "", nil
		}
	}
	schema, err := t.tables(ctx)
	if err != nil {
		return "", err
	}
	if !isColumn {
		names := make([]string, len(schema))
		for i, table := range schema {
			names[i] = table.Name
		}
		return "the tables nearest in name are " + strings.Join(nearest(bareName(missing), names, names), ", ") + ".", nil
	}
	missing, _, _ = strings.Cut(missing, " - should this be")
	return nearestColumns(bareName(missing), sql, schema), nil
}

// nearestColumns looks in the tables that the query names first.
func nearestColumns(missing, sql string, schema []sqlguard.Table) string {
	var names, columns, elsewhere []string
	used := tablesNamed(sql, schema)
	for _, table := range schema {
		for _, c := range table.Columns {
			full := table.Name + "." + c.Name
			switch {
			case slices.Contains(used, table.Name):
				names, columns = append(names, full), append(columns, c.Name)
			case strings.EqualFold(c.Name, missing):
				elsewhere = append(elsewhere, full)
			}
		}
	}
	var parts []string
	if len(elsewhere) > 0 {
		parts = append(parts, "that column is in another table: "+strings.Join(elsewhere[:min(3, len(elsewhere))], ", ")+".")
	}
	if near := nearest(missing, columns, names); len(near) > 0 {
		parts = append(parts, "the columns nearest in name are "+strings.Join(near, ", ")+".")
	}
	if slices.ContainsFunc(words(sql), func(w token) bool {
		return w.kind == tokenName && sql[w.start] == '"' && strings.EqualFold(w.text, missing)
	}) {
		parts = append(parts, "A text value goes in single quotes: "+quoteText(missing)+".")
	}
	return strings.Join(parts, " ")
}

// bareName drops quotes and a table or schema in front.
func bareName(name string) string {
	name = strings.Trim(name, `"`)
	return name[strings.LastIndexByte(name, '.')+1:]
}

// tablesNamed lists the tables of the schema that occur in the query.
func tablesNamed(sql string, schema []sqlguard.Table) (names []string) {
	inQuery := map[string]bool{}
	for _, w := range words(sql) {
		if w.kind == tokenName {
			inQuery[strings.ToLower(w.text)] = true
		}
	}
	for _, table := range schema {
		if inQuery[strings.ToLower(table.Name)] {
			names = append(names, table.Name)
		}
	}
	return names
}

// nearest returns the labels of the up to three names most like the wanted one, best first.
func nearest(wanted string, names, labels []string) []string {
	order := make([]int, len(names))
	distance := make([]int, len(names))
	for i, name := range names {
		order[i] = i
		distance[i] = nameDistance(strings.ToLower(wanted), strings.ToLower(name))
	}
	slices.SortStableFunc(order, func(a, b int) int { return distance[a] - distance[b] })
	var near []string
	for _, i := range order[:min(3, len(order))] {
		near = append(near, labels[i])
	}
	return near
}

// nameDistance is the Levenshtein distance, much less where one name holds the other.
func nameDistance(a, b string) int {
	d := levenshtein([]rune(a), []rune(b))
	if len(a) > 2 && len(b) > 2 && (strings.Contains(a, b) || strings.Contains(b, a)) {
		d /= 4
	}
	return d
}

func levenshtein(a, b []rune) int {
	const longest = 64 // of a name that is worth the work
	a, b = a[:min(len(a), longest)], b[:min(len(b), longest)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range a {
		diagonal := row[0]
		row[0] = i + 1
		for j := range b {
			substitute := diagonal
			if a[i] != b[j] {
				substitute++
			}
			diagonal = row[j+1]
			row[j+1] = min(substitute, row[j]+1, diagonal+1)
		}
	}
	return row[len(b)]
}

// equality is a comparison of a column with a text in a query.
type equality struct{ column, text string }

// equalities finds column = 'text', also with ==, IS and IN ('text', …).
func equalities(sql string) (list []equality) {
	tokens := words(sql)
	for i, w := range tokens {
		if w.kind != tokenName || i+2 >= len(tokens) {
			continue
		}
		rest := tokens[i+1:]
		switch op := strings.ToUpper(rest[0].text); {
		case rest[0].kind == tokenString || rest[0].kind == tokenNumber:
		case (op == "=" || op == "==" || op == "IS") && rest[1].kind == tokenString:
			list = append(list, equality{w.text, rest[1].text})
		case op == "IN" && rest[1].text == "(":
			for _, item := range rest[2:] {
				if item.kind == tokenString {
					list = append(list, equality{w.text, item.text})
				} else if item.text != "," {
					break
				}
			}
		}
	}
	return list
}

// storedOtherwise looks up, for a query without rows, whether the texts it compares with are stored in another case or
// with blanks around them.
func (t *Tool) storedOtherwise(ctx context.Context, sql string) (string, error) {
	const mostLookUps = 6
	schema, err := t.tables(ctx)
	if err != nil {
		return "", err
	}
	used := tablesNamed(sql, schema)
	var hints []string
	lookUps := 0
	for _, eq := range equalities(sql) {
		for _, table := range schema {
			column := columnNamed(table, eq.column)
			if column == "" || !slices.Contains(used, table.Name) || lookUps == mostLookUps {
				continue
			}
			lookUps++
			stored, err := t.spellings(ctx, table.Name, column, eq.text)
			if err != nil {
				return "", err
			}
			if len(stored) > 0 {
				hints = append(hints, fmt.Sprintf("%s.%s does not hold %s but %s.", table.Name, column, quoteText(eq.text), strings.Join(stored, ", ")))
			}
		}
	}
	return strings.Join(hints, " "), nil
}

func columnNamed(table sqlguard.Table, name string) string {
	for _, c := range table.Columns {
		if strings.EqualFold(c.Name, name) {
			return c.Name
		}
	}
	return ""
}

// spellings lists up to three stored texts that differ from text in case or in blanks only; none where text itself is
// stored.
func (t *Tool) spellings(ctx context.Context, table, column, text string) ([]string, error) {
	const most = 3
	name := quoteName(column)
	result, err := t.db.Query(ctx, fmt.Sprintf("SELECT DISTINCT %s FROM %s WHERE typeof(%s) = 'text' AND lower(trim(%s)) = lower(trim(%s)) LIMIT %d",
		name, quoteName(table), name, name, quoteText(text), most+1))
	if err != nil || result.Failure != nil { // a slow or broken table is no reason to fail
		return nil, err
	}
	var stored []string
	for _, row := range result.Rows {
		if row[0].Data == text {
			return nil, nil
		}
		stored = append(stored, quoteText(oneLine(escapeInvalid(row[0].Data))))
	}
	return stored[:min(most, len(stored))], nil
}

// tables is the schema, read once.
func (t *Tool) tables(ctx context.Context) ([]sqlguard.Table, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.schema == nil {
		schema, err := t.db.Schema(ctx, sqlguard.SchemaOptions{})
		if err != nil {
			return nil, err
		}
		t.schema = &schema
	}
	return t.schema.Tables, nil
}
