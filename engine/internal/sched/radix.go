package sched

// radix is a prefix tree over lists of tokens: for a prompt it finds what begins alike, in one walk along the prompt.
//
// A node stands for the tokens on the edges from the root to it. An inner node is where keys part, or where one ends, so
// the nodes along a key are exactly the lengths at which it stops being shared by some other key. Edges are slices of the
// keys that were inserted, which therefore must not change.
type radix[V comparable] struct {
	root radixNode[V]
}

type radixNode[V comparable] struct {
	edge     []Token // from the parent to here
	depth    int     // tokens from the root to here
	values   []V     // of the keys that end here
	below    int     // values here and in all children
	children map[Token]*radixNode[V]
}

// insert adds v under key. A key may have several values.
func (t *radix[V]) insert(key []Token, v V) {
	n := &t.root
	n.below++
	for len(key) > 0 {
		child := n.children[key[0]]
		if child == nil {
			child = &radixNode[V]{edge: key, depth: n.depth + len(key)}
			n.adopt(child)
		} else if same := commonPrefix(child.edge, key); same < len(child.edge) {
			child = n.split(child, same)
		}
		child.below++
		key = key[len(child.edge):]
		n = child
	}
	n.values = append(n.values, v)
}

func (n *radixNode[V]) adopt(child *radixNode[V]) {
	if n.children == nil {
		n.children = make(map[Token]*radixNode[V])
	}
	n.children[child.edge[0]] = child
}

// split puts a new node after the first `same` tokens of the edge to child, and returns it.
func (n *radixNode[V]) split(child *radixNode[V], same int) *radixNode[V] {
	middle := &radixNode[V]{edge: child.edge[:same], depth: n.depth + same, below: child.below}
	n.adopt(middle)
	child.edge = child.edge[same:]
	middle.adopt(child)
	return middle
}

// remove takes v from key, where insert has put it.
func (t *radix[V]) remove(key []Token, v V) {
	t.root.remove(key, v)
}

func (n *radixNode[V]) remove(key []Token, v V) {
	n.below--
	if len(key) == 0 {
		n.values = without(n.values, v)
		return
	}
	child := n.children[key[0]]
	child.remove(key[len(child.edge):], v)
	switch {
	case child.below == 0:
		delete(n.children, key[0])
	case len(child.values) == 0 && len(child.children) == 1:
		n.adopt(child.onlyChild())
	}
}

// onlyChild joins n, where nothing parts or ends any more, with the one child it has.
func (n *radixNode[V]) onlyChild() *radixNode[V] {
	for _, child := range n.children {
		child.edge = append(n.edge[:len(n.edge):len(n.edge)], child.edge...)
		return child
	}
	return nil
}

// walk visits (where visit is not nil) the nodes whose tokens key begins with, from the shortest to the longest, without
// the root, and returns how far key is in the tree, which may be in the middle of an edge, and a node at or below that point.
func (t *radix[V]) walk(key []Token, visit func(*radixNode[V])) (shared int, end *radixNode[V]) {
	n := &t.root
	for {
		rest := key[n.depth:]
		if len(rest) == 0 {
			return n.depth, n
		}
		child := n.children[rest[0]]
		if child == nil {
			return n.depth, n
		}
		if same := commonPrefix(child.edge, rest); same < len(child.edge) {
			return n.depth + same, child
		}
		n = child
		if visit != nil {
			visit(n)
		}
	}
}

// any returns a value at or below n; which one is the same every time.
func (n *radixNode[V]) any() (v V, ok bool) {
	for n.below > 0 {
		if len(n.values) > 0 {
			return n.values[0], true
		}
		n = n.firstChild()
	}
	return v, false
}

func (n *radixNode[V]) firstChild() *radixNode[V] {
	var first *radixNode[V]
	for _, child := range n.children {
		if first == nil || child.edge[0] < first.edge[0] {
			first = child
		}
	}
	return first
}

// commonPrefix is the number of tokens with which both begin.
func commonPrefix(a, b []Token) int {
	n := min(len(a), len(b))
	for i := range n {
		if a[i] != b[i] {
			return i
		}
	}
	return n
}

// without removes the first v from list, in place and in order.
func without[V comparable](list []V, v V) []V {
	for i := range list {
		if list[i] == v {
			return append(list[:i], list[i+1:]...)
		}
	}
	return list
}
