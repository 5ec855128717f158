package wire

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// The values of Hello.Process of lockquake's own nodes.
const (
	ProcessOwn    = "lockquake "          // the prefix of all of them
	ProcessClient = ProcessOwn + "client" // the client
)

// NewHello returns a hello for the calling process.
func NewHello(process, software string) *Hello {
	return &Hello{
		Version: Version, Process: process, BootID: clock.BootID(), TimeNS: clock.TimeNamespace(), Now: clock.Now(),
		Formats: []string{FormatRecords, FormatJSONL}, PID: os.Getpid(), Software: software,
	}
}

const (
	// beat is how often a process checks that it runs.
	beat = 10 * time.Millisecond
	// stallFrom is the shortest stall that becomes an event; with less than two beats, every late tick would. It does
	// not depend on the TTL: a hold that is nearly over outlives its validity by any stall. A process that is late at
	// every beat records 50 such events a second, of 64 bytes each.
	stallFrom = 2 * beat
)

// Pulse detects when its process does not run: stopped, or without a core.
type Pulse struct {
	longest atomic.Int64
	stop    chan struct{}
	ended   chan struct{}
}

// StartPulse begins to watch. It records stalls in r under the name of user. If r cannot send any more, broken is
// called once, unless it is nil.
func StartPulse(r *Recorder, user history.User, broken func(error)) *Pulse {
	return Watch(func(gap int64) { r.Stood(user, gap) }, func() {
		if err := r.Err(); err != nil && broken != nil {
			broken(err)
			broken = nil
		}
	})
}

// Watch begins to watch for a process that records by itself. stalled gets the length of every stall, in ns. each is
// called at every beat, unless it is nil.
func Watch(stalled func(gap int64), each func()) *Pulse {
	p := &Pulse{stop: make(chan struct{}), ended: make(chan struct{})}
	go p.run(clock.Stamp(), stalled, each) // counted from here, however late the goroutine starts
	return p
}

func (p *Pulse) run(last int64, stalled func(gap int64), each func()) {
	defer close(p.ended)
	t := time.NewTicker(beat)
	defer t.Stop()
	for stopped := false; !stopped; {
		select {
		case <-p.stop:
			stopped = true
		case <-t.C:
		}
		n := clock.Stamp()
		gap := n - last
		last = n
		if gap > p.longest.Load() {
			p.longest.Store(gap)
		}
		if gap > int64(stallFrom) {
			stalled(gap)
		}
		if each != nil {
			each()
		}
	}
}

// Stop ends the watch and returns the longest gap in ns.
func (p *Pulse) Stop() int64 {
	close(p.stop)
	<-p.ended
	return p.longest.Load()
}
