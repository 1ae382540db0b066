package spider2

// frame is a table with inferred column types, as pandas.read_csv returns it.
type frame struct {
	names   []string
	columns []column
}

// readFrame reads CSV text as pandas.read_csv does.
func readFrame(text string) (*frame, error) {
	t, err := readTable(text)
	if err != nil {
		return nil, err
	}
	f := &frame{names: t.header}
	for i := range t.header {
		cells := make([]string, len(t.rows))
		for r, row := range t.rows {
			cells[r] = row[i]
		}
		col := inferColumn(cells)
		if len(cells) == 0 {
			col.dtype = objectType
		}
		f.columns = append(f.columns, col)
	}
	return f, nil
}

// vectors returns the columns as the comparison sees them: pandas first puts a frame into one array, so that integers next
// to a column of floats become floats, unless a column of text or booleans keeps every value as it is.
func (f *frame) vectors() [][]any {
	floats := commonType(f.columns) == float64Type
	out := make([][]any, len(f.columns))
	for i, col := range f.columns {
		out[i] = append([]any(nil), col.values...)
		if !floats {
			continue
		}
		for r, v := range out[i] {
			switch n := v.(type) {
			case int64:
				out[i][r] = float64(n)
			case uint64:
				out[i][r] = float64(n)
			}
		}
	}
	return out
}

// commonType is the type of an array that holds all columns.
func commonType(columns []column) dtype {
	seen := map[dtype]bool{}
	for _, col := range columns {
		seen[col.dtype] = true
	}
	switch {
	case seen[objectType] || seen[boolType] && len(seen) > 1:
		return objectType
	case seen[float64Type] || seen[int64Type] && seen[uint64Type]:
		return float64Type
	}
	for d := range seen {
		return d
	}
	return objectType
}
