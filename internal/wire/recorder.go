package wire

import (
	"runtime"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

const (
	// room is the number of events that may wait to be written; one more finds no room and is dropped.
	room = 128 << 10
	// crowded is the number of waiting events from which users without a grant are made to wait.
	crowded = 4 << 10
	// gather is how long events that no user waits for may be kept while others are being written.
	gather = 750 * time.Microsecond
	// rounds is how often a user who writes for others lets others run first, as long as the group grows. It never
	// waits while no other user could run: users who wait for one write would fall into step, and leave the machine
	// idle.
	rounds = 8
)

// Recorder sends the events of one process. It sets the time and sequence number of each under one lock, so that a
// process's events are in the order of both. It writes events in groups: users who wait for their event share one
// write. All methods may be called by many goroutines. A nil Recorder records nothing.
type Recorder struct {
	conn  *Conn
	json  bool
	locks []string

	mu      sync.Mutex
	seq     uint32
	last    int64
	buf     []byte // encoded events that wait, after the head of a batch
	n       int    // how many
	spare   []byte
	turn    uint64        // groups taken from buf so far: buf will be group turn+1
	written uint64        // groups whose write returned
	waiting [2]*sync.Cond // of the users of odd and even groups
	writing bool
	busy    int64 // time of the end of the last write
	dropped int64
	silent  int64 // dropped events that no Dropped event has reported yet
	err     error
	waits   [2]wait // of the users of odd and even groups
	stood   int64   // stalls up to this time are recorded

	kick   chan struct{} // wakes the flusher; holds one
	kicked bool          // the flusher is awake
	done   chan struct{}
	ended  chan struct{}
}

// wait is a wait of users who cannot go on before their event is written.
type wait struct {
	user  history.User // the first of them
	since int64        // 0: no user waits
}

// NewRecorder returns a recorder that sends events over c in the given format; locks is the run's table of lock
// names.
func NewRecorder(c *Conn, format string, locks []string) *Recorder {
	r := &Recorder{
		conn: c, json: format == FormatJSONL, locks: locks,
		kick: make(chan struct{}, 1), done: make(chan struct{}), ended: make(chan struct{}),
	}
	r.waiting[0], r.waiting[1] = sync.NewCond(&r.mu), sync.NewCond(&r.mu)
	go r.flusher()
	return r
}

// Stamp is the sequence number and time that an event got.
type Stamp struct {
	Seq  uint32 // 0: there was no room for it
	Time int64  // ns of the run's clock; 0 if nothing is recorded
}

// Append records e, which is sent within a millisecond or so. It sets the time and the sequence number. If e begins
// an operation or stands alone (Op is 0), it also sets the operation.
func (r *Recorder) Append(e *history.Event) Stamp {
	if r == nil {
		return Stamp{}
	}
	r.mu.Lock()
	s := r.add(e)
	r.wake()
	r.mu.Unlock()
	return s
}

// AppendAt records e as having happened at ns of the run's clock, or at the time of the last event if that is later.
// It returns when there is room.
func (r *Recorder) AppendAt(e *history.Event, at int64) Stamp {
	if r == nil {
		return Stamp{}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.n >= crowded {
		r.flush()
	}
	r.encode(e, max(at, r.last))
	return Stamp{Seq: e.Seq, Time: e.Time}
}

// AppendFlushed is Append, but returns when the operating system has the event. If that takes long, as with a
// supervisor that does not read, the user could not go on although its process ran. That is recorded as a stall too.
func (r *Recorder) AppendFlushed(e *history.Event) Stamp {
	if r == nil {
		return Stamp{}
	}
	r.mu.Lock()
	s := r.add(e)
	if w := &r.waits[(r.turn+1)&1]; w.since == 0 && s.Seq != 0 {
		*w = wait{user: e.User, since: s.Time}
	}
	r.flush()
	r.mu.Unlock()
	return s
}

// Stood records that the process of user stood still for so many ns until now.
func (r *Recorder) Stood(user history.User, ns int64) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	until := clock.Stamp()
	from := until - ns
	// a user who has waited since before that did not run either; what is recorded is not reported again
	for _, w := range r.waits {
		if w.since != 0 {
			from = min(from, w.since)
		}
	}
	r.still(user, from, until)
	r.wake()
}

// still records a stall that ends about now, without the part that is recorded already. It records nothing if the
// rest is too short. The caller holds mu.
func (r *Recorder) still(user history.User, from, until int64) {
	from = max(from, r.stood)
	if gap := until - from; gap > int64(stallFrom) {
		r.stood = r.add(&history.Event{Kind: history.Stall, Phase: history.Info, User: user, Value: gap}).Time
	}
}

// wake has the flusher write what waits, unless a write is about to happen. The caller holds mu.
func (r *Recorder) wake() {
	if r.n > 0 && !r.kicked && !r.writing {
		r.kicked = true
		r.kick <- struct{}{} // never blocks: kicked is false, so the channel is empty
	}
}

// Flush returns when the operating system has every event recorded so far.
func (r *Recorder) Flush() {
	if r == nil {
		return
	}
	r.mu.Lock()
	r.flush()
	r.mu.Unlock()
}

// add stamps and encodes e. The caller holds mu.
func (r *Recorder) add(e *history.Event) Stamp {
	t := clock.Stamp()
	if t < r.last {
		t = r.last
	}
	if r.n >= room || r.err != nil {
		r.dropped++
		r.silent++
		return Stamp{Time: t}
	}
	if r.silent > 0 {
		lost := history.Event{Kind: history.Dropped, Phase: history.Info, User: e.User, Value: r.silent}
		r.silent = 0
		r.encode(&lost, t)
	}
	r.encode(e, t)
	return Stamp{Seq: e.Seq, Time: t}
}

func (r *Recorder) encode(e *history.Event, t int64) {
	r.seq++
	r.last = t
	e.Seq, e.Time = r.seq, t
	if e.Op == 0 {
		e.Op = e.Seq
	}
	if r.n == 0 && !r.json {
		r.buf = beginBatch(r.buf)
	}
	r.n++
	if !r.json {
		r.buf = history.AppendRecord(r.buf, e)
		return
	}
	r.buf = append(r.buf, `{"type":"`+TypeEvent+`","event":`...)
	r.buf = append(history.AppendJSON(r.buf, e, "", r.locks), '}', '\n')
}

// flush returns when the group that is being gathered now, and all before it, have been written. The caller holds mu.
// The first user that finds no write under way writes for all who came before it.
func (r *Recorder) flush() {
	group := r.turn
	if r.n > 0 {
		group++
	}
	for r.written < group && r.err == nil {
		if r.writing {
			r.waiting[group&1].Wait()
			continue
		}
		r.writing = true
		for before, round := 0, 0; before != r.n && round < rounds; round++ {
			before = r.n
			r.mu.Unlock()
			runtime.Gosched() // users that are ready to run get their events into this group
			r.mu.Lock()
		}
		r.write()
	}
}

// write writes the group that waits. The caller holds mu, which is released during the write, and has set writing.
func (r *Recorder) write() {
	b, n := r.buf, r.n
	r.buf, r.n, r.spare = r.spare[:0], 0, nil
	r.turn++
	group := r.turn
	r.mu.Unlock()
	if !r.json && n > 0 {
		endBatch(b, n)
	}
	err := r.conn.writeAll(b)
	r.mu.Lock()
	r.spare = b
	r.written = group
	r.writing = false
	r.busy = clock.Stamp()
	if err != nil {
		r.err = err
		r.waiting[(group+1)&1].Broadcast()
	}
	if w := r.waits[group&1]; w.since != 0 {
		r.waits[group&1] = wait{}
		r.still(w.user, w.since, r.busy)
	}
	r.waiting[group&1].Broadcast()
	r.waiting[(group+1)&1].Signal() // one of those who came since writes next
	r.wake()
}

// flusher writes the events that no user waits for: at once if nothing was written lately, else together with those
// that come within the time to gather.
func (r *Recorder) flusher() {
	defer close(r.ended)
	for {
		select {
		case <-r.done:
			return
		case <-r.kick:
		}
		r.mu.Lock()
		if rest := r.busy + int64(gather) - clock.Stamp(); rest > 0 {
			r.mu.Unlock()
			time.Sleep(time.Duration(rest))
			r.mu.Lock()
		}
		r.kicked = false
		if r.n > 0 {
			r.flush()
		}
		r.mu.Unlock()
	}
}

// Crowded reports whether so many events wait that a user without a grant should wait too.
func (r *Recorder) Crowded() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.n > crowded && r.err == nil
}

// Counts returns how many events were recorded, and how many found no room.
func (r *Recorder) Counts() (recorded, dropped int64) {
	if r == nil {
		return 0, 0
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return int64(r.seq), r.dropped
}

// Err returns why events can no longer be sent, or nil.
func (r *Recorder) Err() error {
	if r == nil {
		return nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.err
}

// Close sends what waits and ends the recorder. No events may follow.
func (r *Recorder) Close() error {
	if r == nil {
		return nil
	}
	r.Flush()
	close(r.done)
	<-r.ended
	return r.Err()
}
