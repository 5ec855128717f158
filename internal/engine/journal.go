package engine

import (
	"sync"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// journal is the engine's own history file: what it saw of others, such as their deaths and the final read.
type journal struct {
	mu  sync.Mutex
	w   *history.Writer
	seq uint32
}

func openJournal(path string, locks []string) (*journal, error) {
	w, err := history.Create(path, history.Header{Process: "engine", Locks: locks})
	if err != nil {
		return nil, err
	}
	return &journal{w: w}, nil
}

// add stamps e with the time and the next sequence number, and writes it.
func (j *journal) add(e history.Event) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.seq++
	e.Time, e.Seq, e.Op = clock.Now(), j.seq, j.seq
	return j.w.Append(&e)
}

func (j *journal) close() error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.w.Close()
}
