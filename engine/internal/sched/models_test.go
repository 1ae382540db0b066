package sched

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// The radix tree against a plain list of keys, under random insertions and removals.
func TestRadixAgainstList(t *testing.T) {
	type entry struct {
		key []Token
		v   int
	}
	r := rand.New(rand.NewPCG(3, 3))
	randomKey := func() []Token {
		key := make([]Token, r.IntN(12))
		for i := range key {
			key[i] = Token(r.IntN(2)) // few tokens: many shared prefixes
		}
		return key
	}
	var tree radix[int]
	var list []entry
	for op := range 20_000 {
		if len(list) > 0 && r.IntN(2) == 0 {
			i := r.IntN(len(list))
			tree.remove(list[i].key, list[i].v)
			list = slices.Delete(list, i, i+1)
		} else {
			list = append(list, entry{randomKey(), op})
			tree.insert(list[len(list)-1].key, op)
		}
		key := randomKey()
		wantShared, wantLengths := 0, map[int]int{}
		for _, e := range list {
			wantShared = max(wantShared, commonPrefix(e.key, key))
			if n := len(e.key); n > 0 && commonPrefix(e.key, key) == n {
				wantLengths[n]++
			}
		}
		gotLengths := map[int]int{}
		shared, end := tree.walk(key, func(n *radixNode[int]) {
			if len(n.values) > 0 {
				gotLengths[n.depth] = len(n.values)
			} else if len(n.children) < 2 {
				t.Fatalf("a node at %d where nothing ends or parts", n.depth)
			}
		})
		if shared != wantShared || fmt.Sprint(gotLengths) != fmt.Sprint(wantLengths) {
			t.Fatalf("operation %d: %d shared tokens and ends %v, want %d and %v", op, shared, gotLengths, wantShared, wantLengths)
		}
		v, ok := end.any()
		if ok != (len(list) > 0) {
			t.Fatalf("operation %d: %d keys, any says %v", op, len(list), ok)
		}
		if i := slices.IndexFunc(list, func(e entry) bool { return e.v == v }); ok && commonPrefix(list[i].key, key) != shared {
			t.Fatalf("operation %d: any gave a key that shares less", op)
		}
	}
}

// The count of cells against sets of numbered cells, under random growth, forks and cuts.
func TestCellsAgainstSets(t *testing.T) {
	for _, shared := range []bool{true, false} {
		t.Run(fmt.Sprint("shared ", shared), func(t *testing.T) {
			r := rand.New(rand.NewPCG(4, 4))
			c := cells{total: 1 << 30, shared: shared}
			var last [8]*run
			var sets [8][]int
			next := 0
			for op := range 30_000 {
				i, j := r.IntN(8), r.IntN(8)
				switch r.IntN(5) {
				case 0, 1:
					n := 1 + r.IntN(5)
					last[i] = c.grow(last[i], n)
					for range n {
						sets[i] = append(sets[i], next)
						next++
					}
				case 2:
					if i == j || sets[i] != nil || sets[j] == nil {
						continue
					}
					last[i] = c.fork(last[j], len(sets[j]))
					sets[i] = slices.Clone(sets[j])
					for k := range sets[i] {
						if !shared {
							sets[i][k] = next
							next++
						}
					}
				case 3:
					if len(sets[i]) == 0 {
						continue
					}
					n := r.IntN(len(sets[i]))
					last[i] = c.trim(last[i], n)
					sets[i] = sets[i][:len(sets[i])-n]
				case 4:
					c.release(last[i])
					last[i], sets[i] = nil, nil
				}
				compareCells(t, op, &c, last[:], sets[:])
			}
		})
	}
}

func compareCells(t *testing.T, op int, c *cells, last []*run, sets [][]int) {
	owners := map[int]int{}
	for _, set := range sets {
		for _, cell := range set {
			owners[cell]++
		}
	}
	if c.used != len(owners) {
		t.Fatalf("operation %d: %d cells counted, %d in use", op, c.used, len(owners))
	}
	reached := map[int]bool{}
	c.newCount()
	n := 0
	for i := range sets[:3] {
		n += c.reach(last[i])
		for _, cell := range sets[i] {
			reached[cell] = true
		}
	}
	if n != len(reached) {
		t.Fatalf("operation %d: first three sequences reach %d cells, counted %d", op, len(reached), n)
	}
	for i, set := range sets {
		own := 0
		for _, cell := range set {
			if owners[cell] == 1 {
				own++
			}
		}
		if exclusive(last[i]) != own {
			t.Fatalf("operation %d: sequence %d has %d cells of its own, counted %d", op, i, own, exclusive(last[i]))
		}
	}
}
