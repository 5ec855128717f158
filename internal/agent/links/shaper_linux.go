package links

import (
	"container/heap"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"github.com/florianl/go-nfqueue/v2"
	"golang.org/x/sys/unix"

	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/seed"
)

// shaper shapes packets in the agent: the kernel hands them over by a queue in the namespace where they arrive, and
// they go on when their time has come. They wait in the receiver's kernel and not in the sender's, where those of one
// connection would count against what TCP lets it have in its own queues, and two in flight would be all.
type shaper struct {
	queue *queue
	what  links.Shaping
	waker *waker
	ended chan struct{} // closed when the thread that sends packets on has ended

	mu      sync.Mutex
	random  *rand.Rand
	last    [drawings]float64 // the numbers drawn last, for correlation
	waiting delayQueue
	order   uint64
	open    bool // let whatever arrives go at once
	closing bool
	count   links.Shaped
	late    *hdrhistogram.Histogram // ns by which packets went on after their time
}

// What numbers are drawn for. Each has a sequence of its own, so that one does not correlate with another.
const (
	forLoss = iota
	forCorruption
	forReordering
	forDelay
	drawings
)

// latest is the longest delay after its time, in ns, at which a packet is told apart from one still later.
const latest = int64(time.Minute)

func newShaper(space *namespace, key string, what links.Shaping) (*shaper, error) {
	s := &shaper{
		what: what, ended: make(chan struct{}), random: seed.Rand(what.Seed, key),
		count: links.Shaped{Engine: links.Queue},
		late:  hdrhistogram.New(1, latest, 2),
	}
	for i := range s.last {
		s.last[i] = s.random.Float64()
	}
	var err error
	if s.waker, err = newWaker(); err != nil {
		return nil, err
	}
	if s.queue, err = openQueue(space, queueOptions{payload: what.Corrupt > 0, arrived: s.arrived}); err != nil {
		_ = s.waker.close()
		return nil, err
	}
	go s.sendOn()
	return s, nil
}

// draw returns a number from 0 to 1. Correlated ones are, in that share of draws, the number of the draw before: unlike
// a weighted mean of the two, this leaves all numbers equally likely, so that a loss of 30 % is one.
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
		s.waker.wake()
	}
}

// damage turns one bit of a packet beyond its IP header: a checksum of TCP or UDP covers all of that. It tells whether
// there was anything to turn.
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
	s.waker.own()
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
			_ = s.late.RecordValue(min(now-w.due, latest)) // which is in its range
		}
		s.count.Passed += uint64(len(due))
		s.mu.Unlock()
		switch {
		case len(due) == 0:
			s.waker.wait(next)
		case s.inOrder():
			_ = s.queue.pass(due[len(due)-1].id) // as above
		default:
			for _, w := range due {
				_ = s.queue.passOne(w.id)
			}
		}
	}
}

// release lets everything go in the order in which it arrived, and from now on what arrives, and returns how many
// packets had been waiting.
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
		_ = s.queue.passAll(newest.id) // as above
	}
	return len(left)
}

func (s *shaper) met(f *links.Filtered) error {
	length, err := s.queue.length()
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	out := s.count
	out.Waiting, out.Dropped = length.waiting, length.dropped
	late := func(percent float64) time.Duration { return time.Duration(s.late.ValueAtQuantile(percent)) }
	out.LateMid, out.LateP99, out.LateMax = late(50), late(99), time.Duration(s.late.Max())
	f.Shaped = &out
	return nil
}

func (s *shaper) close() error {
	s.release()
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.waker.wake()
	<-s.ended
	err := s.queue.close()
	_ = s.waker.close()
	return err
}

// waiter is a packet that waits for its time.
type waiter struct {
	due   int64  // ns of CLOCK_MONOTONIC
	order uint64 // of its arrival
	id    uint32 // as the kernel numbers it
}

// delayQueue keeps waiters by their time, and those of one time by their arrival.
type delayQueue struct{ list waiters }

// waiters is a heap.
type waiters []waiter

func (w waiters) Len() int { return len(w) }

func (w waiters) Less(i, j int) bool {
	return w[i].due < w[j].due || w[i].due == w[j].due && w[i].order < w[j].order
}
func (w waiters) Swap(i, j int) { w[i], w[j] = w[j], w[i] }
func (w *waiters) Push(x any)   { *w = append(*w, x.(waiter)) }

func (w *waiters) Pop() any {
	last := (*w)[len(*w)-1]
	*w = (*w)[:len(*w)-1]
	return last
}

// add puts a waiter in and tells whether it is the first now.
func (a *delayQueue) add(w waiter) bool {
	heap.Push(&a.list, w)
	return a.list[0] == w
}

// first returns the time of the first waiter; 0 when there is none.
func (a *delayQueue) first() int64 {
	if len(a.list) == 0 {
		return 0
	}
	return a.list[0].due
}

// due takes out those whose time has come, in their order.
func (a *delayQueue) due(into []waiter, now int64) []waiter {
	for len(a.list) > 0 && a.list[0].due <= now {
		into = append(into, heap.Pop(&a.list).(waiter))
	}
	return into
}

// all takes out all waiters, in no order.
func (a *delayQueue) all() []waiter {
	out := a.list
	a.list = nil
	return out
}

// waker wakes one thread at a given time, or by wake. It waits in the kernel, on a thread of its own: Go's timers are
// late by half a millisecond and more, this one by a tenth.
type waker struct{ event int }

func newWaker() (*waker, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an event descriptor: %w", err)
	}
	return &waker{event: bell}, nil
}

// own keeps the calling goroutine on its thread for good, and has the kernel wake that on time: before other work,
// where that is allowed. It asks for no real-time priority. Go's scheduler waits in loops for other threads, which a
// loop of that priority keeps from the processor: packets then waited for 100 ms and more, whenever memory was
// collected on a busy machine.
func (a *waker) own() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // else it may sleep 50 µs too long
	_ = unix.Setpriority(unix.PRIO_PROCESS, 0, -20)    // of this thread alone
}

// wait returns at ns of CLOCK_MONOTONIC (0: never), or after wake, or sooner.
func (a *waker) wait(until int64) {
	var limit *unix.Timespec
	if until != 0 {
		left := until - clock.Now()
		if left <= 0 {
			return
		}
		ts := unix.NsecToTimespec(left)
		limit = &ts
	}
	fds := []unix.PollFd{{Fd: int32(a.event), Events: unix.POLLIN}}
	if n, err := unix.Ppoll(fds, limit, nil); err != nil || n == 0 {
		if err != nil && !errors.Is(err, unix.EINTR) {
			time.Sleep(time.Millisecond) // cannot be, and must not spin
		}
		return
	}
	var b [8]byte
	_, _ = unix.Read(a.event, b[:]) // which resets it
}

func (a *waker) wake() { _, _ = unix.Write(a.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (a *waker) close() error { return unix.Close(a.event) }
