package wire

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// NewHello introduces the calling process.
func NewHello(process, software string) *Hello {
	return &Hello{
		Version: Version, Process: process, BootID: clock.BootID(), TimeNS: clock.TimeNamespace(), Now: clock.Now(),
		Formats: []string{FormatRecords, FormatJSONL}, PID: os.Getpid(), Software: software,
	}
}

const (
	// beat is how often a process looks whether it runs.
	beat = 10 * time.Millisecond
	// stallFrom is the gap from which a stall becomes an event.
	stallFrom = 100 * time.Millisecond
)

// Pulse notices when its process does not run: stopped, or without a core.
type Pulse struct {
	longest atomic.Int64
	stop    chan struct{}
	ended   chan struct{}
}

// StartPulse begins to watch. Gaps of more than 100 ms are recorded in r under the name of user. Where r cannot send any
// more, broken is called once, unless it is nil.
func StartPulse(r *Recorder, user history.User, broken func(error)) *Pulse {
	p := &Pulse{stop: make(chan struct{}), ended: make(chan struct{})}
	go p.run(now(), r, user, broken) // from here on, whenever the goroutine gets to run
	return p
}

func (p *Pulse) run(last int64, r *Recorder, user history.User, broken func(error)) {
	defer close(p.ended)
	t := time.NewTicker(beat)
	defer t.Stop()
	for stopped := false; !stopped; {
		select {
		case <-p.stop:
			stopped = true
		case <-t.C:
		}
		n := now()
		gap := n - last
		last = n
		if gap > p.longest.Load() {
			p.longest.Store(gap)
		}
		if gap > int64(stallFrom) {
			r.Append(&history.Event{Kind: history.Stall, Phase: history.Info, User: user, Value: gap})
		}
		if err := r.Err(); err != nil && broken != nil {
			broken(err)
			broken = nil
		}
	}
}

// Stop ends the watch and returns the longest gap in ns.
func (p *Pulse) Stop() int64 {
	close(p.stop)
	<-p.ended
	return p.longest.Load()
}
