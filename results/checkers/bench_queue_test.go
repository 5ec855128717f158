package checkers

import (
	"math/rand/v2"

	"github.com/lockquake/lockquake/history"
)

// benchQueue yields the events of the benchmark's run in the order of time.
type benchQueue struct {
	rng    *rand.Rand
	left   int
	heap   []history.Event
	queues [benchLocks][]history.User
	free   [benchLocks]bool
}

func newBenchQueue(n int) *benchQueue {
	q := &benchQueue{rng: rand.New(rand.NewPCG(1, 2)), left: n}
	for i := range q.free {
		q.free[i] = true
	}
	for c := range benchClients {
		for u := range benchUsers {
			if q.left > 0 {
				q.ask(history.MakeUser(c, u), 1000+int64(q.rng.IntN(100_000)))
			}
		}
	}
	return q
}

func (q *benchQueue) push(e history.Event) {
	q.heap = append(q.heap, e)
	for i := len(q.heap) - 1; i > 0 && q.heap[i].Time < q.heap[(i-1)/2].Time; i = (i - 1) / 2 {
		q.heap[i], q.heap[(i-1)/2] = q.heap[(i-1)/2], q.heap[i]
	}
}

func (q *benchQueue) pop() history.Event {
	e := q.heap[0]
	last := len(q.heap) - 1
	q.heap[0] = q.heap[last]
	q.heap = q.heap[:last]
	for i := 0; ; {
		c := 2*i + 1
		if c >= last {
			return e
		}
		if c+1 < last && q.heap[c+1].Time < q.heap[c].Time {
			c++
		}
		if q.heap[i].Time <= q.heap[c].Time {
			return e
		}
		q.heap[i], q.heap[c] = q.heap[c], q.heap[i]
		i = c
	}
}

func (q *benchQueue) ask(u history.User, t int64) {
	q.left--
	q.push(history.Event{Time: t, User: u, Lock: uint16(q.rng.IntN(benchLocks)), Kind: history.Acquire, Phase: history.Invoke})
}

func (q *benchQueue) grant(lock uint16, u history.User, t int64) {
	q.free[lock] = false
	q.push(history.Event{Time: t, User: u, Lock: lock, Kind: history.Acquire, Phase: history.Ok, Valid: t + 10e9, Value: t - 1000})
}

// planted is the user of the single hold that overlaps another.
var planted = history.MakeUser(benchClients-1, benchUsers)

// plant pushes the four events of that hold.
func (q *benchQueue) plant(lock uint16, t int64) {
	e := history.Event{User: planted, Lock: lock}
	for i, k := range []history.Kind{history.Acquire, history.Acquire, history.Release, history.Release} {
		e.Time, e.Kind, e.Phase = t+int64(i), k, history.Invoke+history.Phase(i%2)
		e.Valid, e.Value = 0, 0
		if i == 1 {
			e.Valid, e.Value = t+10e9, t
		}
		q.push(e)
	}
}

// next returns the next event and schedules the events that follow from it.
func (q *benchQueue) next() (history.Event, bool) {
	if len(q.heap) == 0 {
		return history.Event{}, false
	}
	e := q.pop()
	wait := func(ns int) int64 { return e.Time + int64(ns/2+q.rng.IntN(ns)) }
	step := e
	switch {
	case e.User == planted:
	case e.Kind == history.Acquire && e.Phase == history.Invoke:
		if q.free[e.Lock] {
			q.grant(e.Lock, e.User, wait(20_000))
		} else {
			q.queues[e.Lock] = append(q.queues[e.Lock], e.User)
		}
	case e.Kind == history.Acquire:
		step.Kind, step.Phase, step.Valid, step.Value = history.Release, history.Invoke, 0, 0
		step.Time = wait(10_000)
		q.push(step)
		if q.left == 1 { // another user briefly gets the lock while it is held
			q.left = 0
			q.plant(e.Lock, e.Time)
		}
	case e.Phase == history.Invoke:
		step.Phase, step.Time = history.Ok, wait(10_000)
		q.push(step)
		if w := q.queues[e.Lock]; len(w) > 0 {
			q.queues[e.Lock] = w[1:]
			q.grant(e.Lock, w[0], wait(20_000))
		} else {
			q.free[e.Lock] = true
		}
	default:
		if q.left > 1 {
			q.ask(e.User, wait(5_000))
		}
	}
	return e, true
}
