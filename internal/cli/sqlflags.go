package cli

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"quern/sqlguard"
)

// sqlFlags are the limits on statements and what they may read, the same for every command that runs SQL.
type sqlFlags struct {
	limits   sqlguard.Limits
	maxBytes byteSize
	memory   byteSize
	tables   cli.StringSlice
}

// newSQLFlags starts from the limits of a policy, which become the flags' defaults.
func newSQLFlags(base sqlguard.Policy) *sqlFlags {
	return &sqlFlags{limits: base.Limits, maxBytes: byteSize(base.Limits.MaxBytes), memory: byteSize(base.Limits.Memory)}
}

const sqlCategory = "Limits of a statement"

func (f *sqlFlags) flags() []cli.Flag {
	return []cli.Flag{
		&cli.DurationFlag{Name: "sql-timeout", Category: sqlCategory, Value: f.limits.Timeout, Usage: "stop a statement after so long", Destination: &f.limits.Timeout},
		&cli.IntFlag{Name: "sql-max-rows", Category: sqlCategory, Value: f.limits.MaxRows, Usage: "rows of a result; the rest is cut off", Destination: &f.limits.MaxRows},
		&cli.GenericFlag{Name: "sql-max-bytes", Category: sqlCategory, Value: &f.maxBytes, Usage: "bytes of a result, and of a single value"},
		&cli.GenericFlag{Name: "sql-memory", Category: sqlCategory, Value: &f.memory, Usage: "memory a statement may use"},
		&cli.StringSliceFlag{Name: "tables", Category: sqlCategory, Usage: "`NAMES` of the only tables and views to read, comma-separated; the rest is hidden", Destination: &f.tables},
	}
}

// policy applies the flags to the policy they started from.
func (f *sqlFlags) policy(base sqlguard.Policy) (sqlguard.Policy, error) {
	switch {
	case f.limits.Timeout <= 0:
		return base, usagef("--sql-timeout %v: must be above 0, such as 30s", f.limits.Timeout)
	case f.limits.MaxRows <= 0:
		return base, usagef("--sql-max-rows %d: must be above 0", f.limits.MaxRows)
	}
	if int64(f.maxBytes) != base.Limits.MaxBytes {
		f.limits.MaxCell = int64(f.maxBytes)
	}
	f.limits.MaxBytes, f.limits.Memory = int64(f.maxBytes), int64(f.memory)
	base.Limits = f.limits
	if tables := f.tables.Value(); len(tables) > 0 {
		base.Tables = tables
	}
	return base, nil
}

// byteSize is a flag value in bytes: 4096, 64MB, 1.5GB; units are powers of 1024.
type byteSize int64

var byteUnits = map[string]float64{"": 1, "B": 1, "K": 1 << 10, "KB": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MB": 1 << 20, "MIB": 1 << 20, "G": 1 << 30, "GB": 1 << 30, "GIB": 1 << 30}

// Set reads a size.
func (s *byteSize) Set(text string) error {
	digits := strings.TrimRight(text, "BKMGIbkmgi ")
	unit, known := byteUnits[strings.ToUpper(strings.TrimSpace(text[len(digits):]))]
	n, err := strconv.ParseFloat(digits, 64)
	if err != nil || !known || !(n*unit >= 1 && n*unit < 1<<62) {
		return fmt.Errorf("%q is no size: write for instance 64MB", text)
	}
	*s = byteSize(n * unit)
	return nil
}

// String writes a size as Set reads it.
func (s *byteSize) String() string {
	for _, unit := range []string{"GB", "MB", "KB"} {
		if n := int64(byteUnits[unit]); int64(*s) >= n && int64(*s)%n == 0 {
			return fmt.Sprintf("%d%s", int64(*s)/n, unit)
		}
	}
	return strconv.FormatInt(int64(*s), 10)
}
