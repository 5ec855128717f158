package wire

import (
	"os"
	"sync/atomic"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// What lockquake's own nodes call themselves in Hello.Process.
const (
	ProcessOwn    = "lockquake "          // all of them begin so
	ProcessClient = ProcessOwn + "client" // the client
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
	// stallFrom is the gap from which a stall becomes an event, where the TTL of the run's grants asks for no less.
	stallFrom = 100 * time.Millisecond
	// stallFloor is the least such gap: below two beats, every late tick would be a stall.
	stallFloor = 2 * beat
)

// StallFrom returns the gap from which a stall is to be recorded: 100 ms, or half the TTL where that is less, so that no
// stall that matters to a grant goes unrecorded; but never less than 20 ms, which is what a process can tell of itself. A
// TTL of 0 is one that is not known.
func StallFrom(ttl time.Duration) time.Duration {
	if ttl <= 0 {
		return stallFrom
	}
	return max(stallFloor, min(stallFrom, ttl/2))
}

// Pulse notices when its process does not run: stopped, or without a core.
type Pulse struct {
	from    time.Duration
	longest atomic.Int64
	stop    chan struct{}
	ended   chan struct{}
}

// StartPulse begins to watch. Gaps of more than from are recorded in r under the name of user. Where r cannot send any
// more, broken is called once, unless it is nil.
func StartPulse(r *Recorder, user history.User, from time.Duration, broken func(error)) *Pulse {
	return Watch(from, stallsInto(r, user), func() {
		if err := r.Err(); err != nil && broken != nil {
			broken(err)
			broken = nil
		}
	})
}

func stallsInto(r *Recorder, user history.User) func(gap int64) {
	return func(gap int64) {
		r.Append(&history.Event{Kind: history.Stall, Phase: history.Info, User: user, Value: gap})
	}
}

// Watch begins to watch for a process that records by itself: stalled is told of every gap of more than from, in ns,
// and each, unless it is nil, is called at every look.
func Watch(from time.Duration, stalled func(gap int64), each func()) *Pulse {
	p := &Pulse{from: from, stop: make(chan struct{}), ended: make(chan struct{})}
	go p.run(now(), stalled, each) // from here on, whenever the goroutine gets to run
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
		n := now()
		gap := n - last
		last = n
		if gap > p.longest.Load() {
			p.longest.Store(gap)
		}
		if gap > int64(p.from) {
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
