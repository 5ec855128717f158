package lockquake

import (
	"encoding/binary"
	"encoding/json"
	"hash/crc32"
	"io"
	"os"
	"sync"
	"time"
)

const (
	beat    = 10 * time.Millisecond // how often a process checks that it runs
	stalled = int64(20 * time.Millisecond)
	room    = 128 << 10 // number of events that may wait to be written
	crowded = 4 << 10   // above this number of waiting events, users without a lock pause
	head    = 5         // bytes of the head of a batch
)

// Kinds, phases and codes of events (docs/history.md).
const (
	kindAcquire, kindRelease, kindRenew, kindCheck, kindRead, kindWrite  byte = 1, 2, 3, 4, 5, 6
	kindRenewed, kindLost, kindStall, kindDropped, kindCancel, kindClose byte = 7, 8, 12, 13, 18, 19
	kindReenter, kindLeave, kindReleaseUnheld                            byte = 20, 21, 22
	invoke, done, failed, info                                           byte = 1, 2, 3, 4
)

type event struct {
	op, user, grant   uint32
	lock              uint16
	kind, phase, code byte
	token             uint64
	valid, value      int64
}

// stream is the standard output. An event gets its number and its time under one lock, and events are written in that
// order.
type stream struct {
	out  sync.Mutex // held during a write
	to   io.Writer
	wake chan struct{}

	mu              sync.Mutex
	recording       bool
	batch, spare    []byte // waiting records, after the head
	waiting         int
	seq             uint32
	last, stood     int64
	dropped, silent int64
}

func newStream(to io.Writer) *stream {
	return &stream{to: to, wake: make(chan struct{}, 1), batch: make([]byte, head), spare: make([]byte, head)}
}

// send writes a frame after all events so far. When it returns, the operating system has the frame.
func (s *stream) send(kind string, content interface{}) {
	line, err := json.Marshal(map[string]interface{}{"type": kind, kind: content})
	if err != nil {
		panic(err) // the frames of this package are its own
	}
	s.flush(append(line, '\n'))
}

func (s *stream) flush(behind []byte) {
	s.out.Lock()
	defer s.out.Unlock()
	s.mu.Lock()
	batch, n := s.batch, s.waiting
	s.batch, s.waiting = s.spare[:head], 0
	s.mu.Unlock()
	s.spare = batch
	if n == 0 {
		batch = nil
	} else {
		batch[0] = 1
		binary.LittleEndian.PutUint32(batch[1:], uint32(n))
	}
	for _, data := range [][]byte{batch, behind} {
		if len(data) > 0 {
			_, err := s.to.Write(data)
			mustReach(err)
		}
	}
}

// mustReach ends the process if the supervisor no longer reads.
func mustReach(err error) {
	if err != nil {
		os.Exit(1)
	}
}

// event records e and returns its number and time. The number is 0 if there was no room for it.
func (s *stream) event(e event) (seq uint32, at int64) {
	s.mu.Lock()
	seq, at = s.add(e)
	s.mu.Unlock()
	if seq != 0 {
		s.kick()
	}
	return seq, at
}

// flushed records an event as event does, and returns once it is written.
func (s *stream) flushed(e event) (seq uint32, at int64) {
	s.mu.Lock()
	seq, at = s.add(e)
	s.mu.Unlock()
	if seq != 0 {
		s.flush(nil)
		s.still(e.user, at, Now())
	}
	return seq, at
}

func (s *stream) kick() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// keepFlushing writes events within a millisecond, for callers that do not wait.
func (s *stream) keepFlushing() {
	for range s.wake {
		s.flush(nil)
		time.Sleep(500 * time.Microsecond)
	}
}

// add is event for callers that hold mu.
func (s *stream) add(e event) (uint32, int64) {
	at := Now()
	if at < s.last {
		at = s.last
	}
	if !s.recording {
		return 0, at
	}
	if s.waiting >= room {
		s.dropped++
		s.silent++
		return 0, at
	}
	if s.silent > 0 {
		s.put(event{user: e.user, kind: kindDropped, phase: info, value: s.silent}, at)
		s.silent = 0
	}
	s.put(e, at)
	return s.seq, at
}

func (s *stream) put(e event, at int64) {
	s.seq++
	s.last = at
	if e.op == 0 {
		e.op = s.seq
	}
	var b [64]byte
	le := binary.LittleEndian
	le.PutUint64(b[0:], uint64(at))
	le.PutUint32(b[8:], s.seq)
	le.PutUint32(b[12:], e.op)
	le.PutUint32(b[16:], e.user)
	le.PutUint32(b[20:], e.grant)
	le.PutUint16(b[24:], e.lock)
	b[26], b[27], b[29] = e.kind, e.phase, e.code
	le.PutUint64(b[32:], e.token)
	le.PutUint64(b[40:], uint64(e.valid))
	le.PutUint64(b[48:], uint64(e.value))
	le.PutUint32(b[60:], crc32.Checksum(b[:60], castagnoli))
	s.batch = append(s.batch, b[:]...)
	s.waiting++
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// still records that the user or the process did not run, without the part that is on record already.
func (s *stream) still(user uint32, since, until int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if since < s.stood {
		since = s.stood
	}
	if until-since > stalled {
		_, s.stood = s.add(event{user: user, kind: kindStall, phase: info, value: until - since})
		s.kick()
	}
}

// end stops recording. It returns how many events there were and how many were dropped for lack of room.
func (s *stream) end() (recorded uint32, dropped int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.recording = false
	return s.seq, s.dropped
}

// isCrowded reports whether too many events wait.
func (s *stream) isCrowded() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.waiting > crowded
}
