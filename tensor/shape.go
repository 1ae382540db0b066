package tensor

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Shape is a tensor's dimensions, slowest-varying first. An empty shape is a scalar.
type Shape []int64

// Elements returns the number of elements: the product, checked.
func (s Shape) Elements() (int64, error) {
	n := int64(1)
	for _, d := range s {
		if d < 0 {
			return 0, fmt.Errorf("negative dimension in shape %v", s)
		}
		var err error
		if n, err = mul(n, d); err != nil {
			return 0, fmt.Errorf("shape %v: %w", s, err)
		}
	}
	return n, nil
}

// RowLen returns the elements of one row: the last dimension, 1 for a scalar.
func (s Shape) RowLen() int64 {
	if len(s) == 0 {
		return 1
	}
	return s[len(s)-1]
}

// Equal tells whether both have the same dimensions in the same order.
func (s Shape) Equal(o Shape) bool { return slices.Equal(s, o) }

// String writes the shape as "[896, 64]".
func (s Shape) String() string {
	parts := make([]string, len(s))
	for i, d := range s {
		parts[i] = strconv.FormatInt(d, 10)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
