package sched

import (
	"cmp"
	"slices"
)

// job is the scheduler's side of a request, from Submit to its end.
type job struct {
	Request
	stream  *Stream
	unwatch func() bool // ends the watch over the caller's context
	arrived uint64      // rank of arrival
	seated  uint64      // rank of the last admission: the youngest lane has the highest

	// tokens is the prompt and what was generated after it. Those that the sequence holds have been read; a lane with one
	// unread token takes part in decode steps, one with more in prompt steps.
	tokens    []Token
	generated int
	bounds    []int // prompt lengths, ascending, at which a copy is to be kept for others
	quota     int   // tokens to read in the step that is being put together
	row       int   // batch row of its last token where logits are wanted, else -1
}

func (j *job) unread(q *sequence) int { return len(j.tokens) - len(q.tokens) }

// readable is how much of a prompt may come from memory: its last token must be read in any case, since the first
// generated token is sampled from what the model says there.
func (j *job) readable() []Token { return j.tokens[:len(j.tokens)-1] }

// queue holds the jobs that wait for a lane.
//
// Conversations that have begun go before new ones: they hold memory, and the sooner they end the sooner it is free.
// Within each of the two, who came first goes first.
type queue struct {
	begun, fresh []*job
	prefixes     radix[*job] // readable() of all: shows what they share
}

func (w *queue) len() int { return len(w.begun) + len(w.fresh) }

func (w *queue) push(j *job, begun bool) {
	if begun {
		w.begun = append(w.begun, j)
	} else {
		w.fresh = append(w.fresh, j)
	}
	w.prefixes.insert(j.readable(), j)
}

// pushSorted queues a job by Order, then by arrival.
func (w *queue) pushSorted(j *job) {
	at, _ := slices.BinarySearchFunc(w.fresh, j, func(a, b *job) int {
		return cmp.Or(cmp.Compare(a.Order, b.Order), cmp.Compare(a.arrived, b.arrived))
	})
	w.fresh = slices.Insert(w.fresh, at, j)
	w.prefixes.insert(j.readable(), j)
}

// pushFront puts a preempted job before all others.
func (w *queue) pushFront(j *job) {
	w.begun = append([]*job{j}, w.begun...)
	w.prefixes.insert(j.readable(), j)
}

func (w *queue) remove(j *job) {
	w.begun, w.fresh = without(w.begun, j), without(w.fresh, j)
	w.prefixes.remove(j.readable(), j)
}

// each calls f for the waiting jobs in their order until it returns false. f may remove the job it is called with.
func (w *queue) each(f func(*job) bool) {
	for _, list := range [2]*[]*job{&w.begun, &w.fresh} {
		for i := 0; i < len(*list); {
			j := (*list)[i]
			if !f(j) {
				return
			}
			if i < len(*list) && (*list)[i] == j {
				i++
			}
		}
	}
}
