package checkers

import (
	"slices"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// rivals counts the grants that could have become a double grant: another user asked for the lock or held it
// meanwhile, in a conflicting mode. An uncontested grant proves nothing about the lock.
type rivals struct {
	asks      *asks
	alone     [][]*hold // by lock: the open holds that had no rival so far
	contested int64
	entitled  int64 // grants among them that were entitled when they began
}

func newRivals(run results.Run) rivals {
	return rivals{asks: newAsks(run, unwatched{}, false), alone: make([][]*hold, len(run.Locks))}
}

// unwatched is the watcher for asks that are only queried.
type unwatched struct{}

func (unwatched) touch(uint16, int64) {}

// observe takes the next event, before it begins or ends a hold. It only checks for rivals at grants.
func (r *rivals) observe(e *history.Event) {
	if e.Kind != history.Acquire && e.Kind != history.Dead {
		return
	}
	r.asks.observe(e)
	for int(e.Lock) >= len(r.alone) {
		r.alone = append(r.alone, nil)
	}
	if e.Kind == history.Acquire && e.Phase == history.Invoke && len(r.alone[e.Lock]) > 0 {
		r.contest(e.Lock, e.User, e.Mode)
	}
}

// contest removes the uncontested holds that conflict with a user that asks for the lock or holds it.
func (r *rivals) contest(lock uint16, by history.User, mode uint8) {
	r.alone[lock] = slices.DeleteFunc(r.alone[lock], func(h *hold) bool {
		return h.user != by && conflict(h.mode, mode)
	})
}

// began checks for rivals when h begins; open are the open holds of its lock, including h.
func (r *rivals) began(h *hold, open []*hold) {
	contested := r.asks.against(h.lock, h.mode) > 0
	for i := 0; i < len(open) && !contested; i++ {
		contested = open[i].user != h.user && conflict(open[i].mode, h.mode)
	}
	r.contest(h.lock, h.user, h.mode)
	if !contested {
		r.alone[h.lock] = append(r.alone[h.lock], h)
	}
}

func (r *rivals) ended(h *hold) {
	if i := slices.Index(r.alone[h.lock], h); i >= 0 {
		r.alone[h.lock] = slices.Delete(r.alone[h.lock], i, i+1)
		return
	}
	r.contested++
	if h.fresh {
		r.entitled++
	}
}
