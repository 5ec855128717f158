package rundir

import (
	"cmp"
	"errors"
	"slices"
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// Journal is the engine's own history file: the deaths of clients, the ends of their sessions, the final read. It is
// written at the end, because some events are known late and have an earlier time.
type Journal struct {
	mu     sync.Mutex
	w      *history.Writer
	events []history.Event
}

// Open creates the history file.
func (j *Journal) Open(path string, locks []string) (err error) {
	j.w, err = history.Create(path, history.Header{Process: "engine", Locks: locks})
	return err
}

// Add records an event that happens now.
func (j *Journal) Add(e history.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.Time = clock.Now()
	j.events = append(j.events, e)
}

// AddLate records events that already have their times.
func (j *Journal) AddLate(es []history.Event) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, es...)
}

// Change changes the recorded events.
func (j *Journal) Change(how func(*history.Event)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for i := range j.events {
		how(&j.events[i])
	}
}

// Close writes the events in the order of their times, and the end of the file.
func (j *Journal) Close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	slices.SortStableFunc(j.events, func(a, b history.Event) int { return cmp.Compare(a.Time, b.Time) })
	var errs []error
	for i := range j.events {
		e := &j.events[i]
		e.Seq, e.Op = uint32(i+1), uint32(i+1)
		errs = append(errs, j.w.Append(e))
	}
	return errors.Join(append(errs, j.w.Close())...)
}
