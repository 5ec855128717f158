package report

import (
	"errors"
	"io"
	"path/filepath"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

// choice is the order in which witnesses are drawn: the worst first.
var choice = []string{"double_grant", "stale_write", "fence_save", "overlapping_hold"}

// Choose returns the witness that is drawn: a double grant before a stale write, before a fence save, before an
// overlapping hold. ok is false where the run has none of them.
func Choose(r results.Report) (w results.Witness, ok bool) {
	for _, kind := range choice {
		for _, f := range r.Findings {
			for _, w := range f.Witnesses {
				if w.Kind == kind && len(w.Holds) > 0 {
					return w, true
				}
			}
		}
	}
	return results.Witness{}, false
}

// scan reads the history of a run directory once and shows each event to all observers.
func scan(dir string, locks func(names []string), observers ...func(e *history.Event)) (err error) {
	m, err := history.OpenAll(filepath.Join(dir, results.DirHistory))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	locks(m.Locks())
	var e history.Event
	for {
		switch _, err := m.Next(&e); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		for _, o := range observers {
			o(&e)
		}
	}
}

// window collects the events that a witness's picture is made of: all of its holds, and the grants of its lock to
// others while they lasted.
type window struct {
	w      results.Witness
	holds  map[key]bool
	users  map[history.User]bool
	lock   uint16
	from   int64
	events []history.Event
}

func newWindow(w results.Witness) *window {
	win := &window{w: w, holds: map[key]bool{}, users: map[history.User]bool{}, from: w.From}
	for _, h := range w.Holds {
		win.holds[key{h.User, h.Grant}] = true
		win.users[h.User] = true
		win.from = min(win.from, h.Start)
	}
	return win
}

// names learns the number of the witness's lock.
func (win *window) names(locks []string) {
	for i, name := range locks {
		if name == win.w.Lock {
			win.lock = uint16(i)
		}
	}
}

func (win *window) observe(e *history.Event) {
	grant := e.Grant
	if e.Kind == history.Acquire {
		grant = e.Op
	}
	switch {
	case win.holds[key{e.User, grant}],
		e.Kind == history.Dead && win.users[e.User],
		e.Kind == history.Acquire && e.Phase == history.Ok && e.Lock == win.lock && e.Time >= win.from && e.Time <= win.to():
		win.events = append(win.events, *e)
	}
}

// to is the end of the last hold, or of the witness.
func (win *window) to() int64 {
	to := win.w.To
	for _, h := range win.w.Holds {
		to = max(to, h.End)
	}
	return to
}
