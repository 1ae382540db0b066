package web

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"quern/sqlguard"
)

// pageRows is how many rows the page shows; a download holds them all.
const pageRows = 1000

// cell is a value as the page reads it: its storage class and its text. Integers travel as text, since JavaScript's
// numbers lose their last digits.
type cell struct {
	Type string `json:"t"`
	Text string `json:"v"`
}

type wireAnswer struct {
	SQL          string   `json:"sql,omitempty"`
	Columns      []string `json:"columns,omitempty"`
	Rows         [][]cell `json:"rows"`
	Notes        []string `json:"notes,omitempty"`
	Failed       bool     `json:"failed"`
	Foot         string   `json:"foot,omitempty"`
	Conversation string   `json:"conversation,omitempty"`
}

func encode(a Answer) wireAnswer {
	w := wireAnswer{SQL: a.SQL, Rows: [][]cell{}, Notes: a.Notes, Failed: a.Failed, Foot: a.Foot, Conversation: a.Conversation}
	for _, c := range a.Result.Columns {
		w.Columns = append(w.Columns, c.Name)
	}
	rows := a.Result.Rows
	if len(rows) > pageRows {
		w.Notes = append(w.Notes, fmt.Sprintf("Shown are the first %d of %d rows; a download holds them all.", pageRows, len(rows)))
		rows = rows[:pageRows]
	}
	for _, row := range rows {
		cells := make([]cell, len(row))
		for i, v := range row {
			cells[i] = encodeCell(v)
		}
		w.Rows = append(w.Rows, cells)
	}
	return w
}

func encodeCell(v sqlguard.Value) cell {
	switch v.Kind {
	case sqlguard.Integer:
		return cell{"integer", strconv.FormatInt(v.Int, 10)}
	case sqlguard.Real:
		if math.IsInf(v.Real, 0) {
			return cell{"real", strings.Replace(fmt.Sprint(v.Real), "Inf", "Infinity", 1)}
		}
		return cell{"real", strconv.FormatFloat(v.Real, 'g', -1, 64)}
	case sqlguard.Text:
		return cell{"text", strings.ToValidUTF8(v.Data, "\uFFFD")}
	case sqlguard.Blob:
		const shown = 16
		return cell{"blob", fmt.Sprintf("x'%x'%s (%d bytes)", v.Data[:min(shown, len(v.Data))], map[bool]string{true: "…"}[len(v.Data) > shown], len(v.Data))}
	default:
		return cell{"null", ""}
	}
}

type wireTable struct {
	Name    string       `json:"name"`
	View    bool         `json:"view,omitempty"`
	Rows    string       `json:"rows,omitempty"` // counted, "1000+" when counting stopped
	Columns []wireColumn `json:"columns"`
}

type wireColumn struct {
	Name       string `json:"name"`
	Type       string `json:"type,omitempty"`
	Key        string `json:"key,omitempty"`
	References string `json:"references,omitempty"`
}

func tables(schema sqlguard.Schema) []wireTable {
	list := []wireTable{}
	for _, t := range schema.Tables {
		w := wireTable{Name: t.Name, View: t.View, Columns: []wireColumn{}}
		if t.Rows >= 0 && !t.View {
			w.Rows = strconv.FormatInt(t.Rows, 10) + map[bool]string{true: "+"}[t.MoreRows]
		}
		keys := map[string]string{}
		for _, name := range t.PrimaryKey {
			keys[name] = "primary key"
		}
		references := map[string]string{}
		for _, key := range t.ForeignKeys {
			for i, name := range key.Columns {
				references[name] = key.Table
				if i < len(key.RefColumns) {
					references[name] += "." + key.RefColumns[i]
				}
			}
		}
		for _, c := range t.Columns {
			w.Columns = append(w.Columns, wireColumn{Name: c.Name, Type: c.Type, Key: keys[c.Name], References: references[c.Name]})
		}
		list = append(list, w)
	}
	return list
}
