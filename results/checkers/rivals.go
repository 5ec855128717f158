package checkers

import (
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// rivals counts the grants that could have become a double grant: those of a lock that another user asked for or
// held meanwhile. A grant that nobody else wanted proves nothing about the lock.
type rivals struct {
	asks      *asks
	alone     []*hold // by lock: the open hold that had no rival so far; nil where there is none
	contested int64
	entitled  int64 // those of them that were entitled when they began
}

func newRivals(run results.Run) rivals {
	return rivals{asks: newAsks(run, unwatched{}, false), alone: make([]*hold, len(run.Locks))}
}

// unwatched is for asks whose number is only looked up.
type unwatched struct{}

func (unwatched) touch(uint16, int64) {}

// observe takes the next event, before it begins or ends a hold.
func (r *rivals) observe(e *history.Event) {
	r.asks.observe(e)
	for int(e.Lock) >= len(r.alone) {
		r.alone = append(r.alone, nil)
	}
	if h := r.alone[e.Lock]; h != nil && h.user != e.User && e.Kind == history.Acquire && e.Phase == history.Invoke {
		h.contested, r.alone[e.Lock] = true, nil
	}
}

// began looks who else is there when h begins; open are the open holds of its lock, h among them.
func (r *rivals) began(h *hold, open []*hold) {
	h.contested = int(h.lock) < len(r.asks.asking) && r.asks.asking[h.lock] > 0
	for i := 0; i < len(open) && !h.contested; i++ {
		h.contested = open[i].user != h.user
	}
	if rival := r.alone[h.lock]; rival != nil && rival.user != h.user {
		rival.contested, r.alone[h.lock] = true, nil
	}
	if !h.contested {
		r.alone[h.lock] = h
	}
}

func (r *rivals) ended(h *hold) {
	if r.alone[h.lock] == h {
		r.alone[h.lock] = nil
	}
	if h.contested {
		r.contested++
		if h.fresh {
			r.entitled++
		}
	}
}
