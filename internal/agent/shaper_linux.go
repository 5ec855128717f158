package agent

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/florianl/go-nfqueue/v2"

	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/seed"
)

// shaper shapes packets in the agent: the kernel hands them over by a queue in the namespace where they arrive, and they go
// on when their time has come. They wait in the receiver's kernel and not in the sender's, where those of one connection would
// count against what TCP lets it have in its own queues, and two in flight would be all.
type shaper struct {
	queue *queue
	what  Shaping
	alarm *alarm
	ended chan struct{} // closed when the thread that sends packets on has ended

	mu      sync.Mutex
	random  *rand.Rand
	last    [drawings]float64 // the numbers drawn last, for correlation
	waiting agenda
	order   uint64
	open    bool // let whatever arrives go at once
	closing bool
	count   Shaped
	late    lateness
}

// What numbers are drawn for. Each has a sequence of its own, so that one does not correlate with another.
const (
	forLoss = iota
	forCorruption
	forReordering
	forDelay
	drawings
)

func newShaper(space *namespace, key string, what Shaping) (*shaper, error) {
	s := &shaper{what: what, ended: make(chan struct{}), random: seed.Rand(what.Seed, key), count: Shaped{Engine: EngineQueue}}
	for i := range s.last {
		s.last[i] = s.random.Float64()
	}
	var err error
	if s.alarm, err = newAlarm(); err != nil {
		return nil, err
	}
	if s.queue, err = openQueue(space, queueOptions{payload: what.Corrupt > 0, arrived: s.arrived}); err != nil {
		_ = s.alarm.close()
		return nil, err
	}
	go s.sendOn()
	return s, nil
}

// draw returns a number from 0 to 1. Correlated ones are, in that share of draws, the number of the draw before: unlike a
// weighted mean of the two, this leaves all numbers equally likely, so that a loss of 30 % is one.
func (s *shaper) draw(what int) float64 {
	if s.what.Correlation == 0 || s.random.Float64() >= s.what.Correlation {
		s.last[what] = s.random.Float64()
	}
	return s.last[what]
}

// arrived decides what becomes of a packet.
func (s *shaper) arrived(q *queue, a nfqueue.Attribute) {
	now, id := clock.Now(), *a.PacketID
	s.mu.Lock()
	defer s.mu.Unlock()
	w := &s.what
	switch {
	case s.open:
		s.count.Passed++
		_ = q.pass(id) // the socket is ours: it fails only when it is closed
		return
	case w.Loss > 0 && s.draw(forLoss) < w.Loss:
		s.count.Lost++
		_ = q.drop(id)
		return
	case w.Corrupt > 0 && s.draw(forCorruption) < w.Corrupt && a.Payload != nil && s.damage(*a.Payload):
		s.count.Corrupted++
		_ = q.passAltered(id, *a.Payload)
		return
	case w.Delay == 0 || w.Reorder > 0 && s.draw(forReordering) < w.Reorder:
		s.count.Passed++
		_ = q.passOne(id)
		return
	}
	wait := w.Delay
	if w.Jitter > 0 {
		wait += time.Duration((2*s.draw(forDelay) - 1) * float64(w.Jitter))
	}
	s.order++
	if s.waiting.add(waiter{due: now + int64(wait), order: s.order, id: id}) {
		s.alarm.ring()
	}
}

// damage turns one bit of a packet beyond its IP header: a checksum of TCP or UDP covers all of that. It tells whether there
// was anything to turn.
func (s *shaper) damage(packet []byte) bool {
	if len(packet) == 0 {
		return false
	}
	header := int(packet[0]&0x0f) * 4
	if header >= len(packet) {
		return false
	}
	bit := s.random.IntN((len(packet) - header) * 8)
	packet[header+bit/8] ^= 1 << (bit % 8)
	return true
}

// inOrder tells whether no packet overtakes another, so that one verdict can stand for all up to it.
func (s *shaper) inOrder() bool { return s.what.Jitter == 0 && s.what.Reorder == 0 }

// sendOn sends packets on when they are due.
func (s *shaper) sendOn() {
	s.alarm.own()
	defer close(s.ended)
	var due []waiter
	for {
		s.mu.Lock()
		if s.closing {
			s.mu.Unlock()
			return
		}
		next := s.waiting.first()
		now := clock.Now()
		due = s.waiting.due(due[:0], now)
		for _, w := range due {
			s.late.add(time.Duration(now - w.due))
		}
		s.count.Passed += uint64(len(due))
		s.mu.Unlock()
		switch {
		case len(due) == 0:
			s.alarm.wait(next)
		case s.inOrder():
			_ = s.queue.pass(due[len(due)-1].id) // as above
		default:
			for _, w := range due {
				_ = s.queue.passOne(w.id)
			}
		}
	}
}

// release lets everything go in the order in which it arrived, and from now on what arrives, and returns how many packets
// had been waiting.
func (s *shaper) release() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open = true
	left := s.waiting.all()
	if len(left) > 0 {
		newest := left[0]
		for _, w := range left {
			if w.order > newest.order {
				newest = w
			}
		}
		s.count.Passed += uint64(len(left))
		_ = s.queue.pass(newest.id) // as above
	}
	return len(left)
}

func (s *shaper) met(f *Filtered) error {
	length, err := s.queue.length()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.count
	out.Waiting, out.Dropped = length.waiting, length.dropped
	out.LateMid, out.LateP99, out.LateMax = s.late.at(0.5), s.late.at(0.99), s.late.max
	f.Shaped = &out
	return nil
}

func (s *shaper) close() error {
	s.release()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.alarm.ring()
	<-s.ended
	err := s.queue.close()
	_ = s.alarm.close()
	return err
}
