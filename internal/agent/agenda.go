package agent

import (
	"container/heap"
	"time"
)

// waiter is a packet that waits for its time.
type waiter struct {
	due   int64  // ns of CLOCK_MONOTONIC
	order uint64 // of its arrival
	id    uint32 // as the kernel numbers it
}

// agenda keeps waiters by their time, and those of one time by their arrival.
type agenda struct{ list waiters }

// waiters is a heap.
type waiters []waiter

func (w waiters) Len() int { return len(w) }

func (w waiters) Less(i, j int) bool {
	return w[i].due < w[j].due || w[i].due == w[j].due && w[i].order < w[j].order
}
func (w waiters) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiters) Push(x any)   { *w = append(*w, x.(waiter)) }

func (w *waiters) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// add puts a waiter in and tells whether it is the first now.
func (a *agenda) add(w waiter) bool {
	heap.Push(&a.list, w)
	return a.list[0] == w
}

// first returns the time of the first waiter; 0 when there is none.
func (a *agenda) first() int64 {
	if len(a.list) == 0 {
		return 0
	}
	return a.list[0].due
}

// due takes out those whose time has come, in their order.
func (a *agenda) due(into []waiter, now int64) []waiter {
	for len(a.list) > 0 && a.list[0].due <= now {
		into = append(into, heap.Pop(&a.list).(waiter))
	}
	return into
}

// all takes out everybody, in no order.
func (a *agenda) all() []waiter {
	out := a.list
	a.list = nil
	return out
}

// lateness counts durations in steps of 1/16 of their size, so that quantiles of any number of them fit in little room.
type lateness struct {
	steps [40 * 16]uint64
	n     uint64
	max   time.Duration
}

func (l *lateness) add(d time.Duration) {
	l.steps[lateStep(d)]++
	l.n++
	l.max = max(l.max, d)
}

// lateStep numbers the steps: 16 to each doubling.
func lateStep(d time.Duration) int {
	v, shift := uint64(max(d, 0)), 0
	for v >= 32 {
		v, shift = v>>1, shift+1
	}
	return min(16*shift+int(v), 40*16-1)
}

// lateAbove is the end of a step.
func lateAbove(step int) time.Duration {
	if step < 32 {
		return time.Duration(step)
	}
	shift := step/16 - 1
	return time.Duration(uint64(step%16+17) << shift)
}

// at returns a quantile, to 1/16 of it.
func (l *lateness) at(q float64) time.Duration {
	rank, seen := uint64(q*float64(l.n)), uint64(0)
	for i, n := range l.steps {
		if seen += n; n > 0 && seen > rank {
			return min(lateAbove(i), l.max)
		}
	}
	return l.max
}
