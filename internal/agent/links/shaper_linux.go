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

// shaper shapes packets in the agent: the kernel hands them over by a queue in the receiving namespace, and they are
// passed when their time has come. They wait in the receiver's kernel. In the sender's kernel they would count against
// TCP's limit for its own queues, which leaves two packets of a connection in flight.
type shaper struct {
	queue *queue
	what  links.Shaping
	waker *waker
	ended chan struct{} // closed when the thread that passes packets has ended

	mu      sync.Mutex
	random  *rand.Rand
	last    [drawings]float64 // the last numbers drawn, for correlation
	waiting delayQueue
	order   uint64
	open    bool // pass arriving packets at once
	closing bool
	count   links.Shaped
	late    *hdrhistogram.Histogram // ns by which packets were passed after their time
}

// The purposes of random numbers. Each has its own sequence, so that they do not correlate.
const (
	forLoss = iota
	forCorruption
	forReordering
	forDelay
	drawings
)

// latest is the largest recorded lateness of a packet, in ns.
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

// draw returns a number from 0 to 1. With correlation, that share of the draws repeats the number before. Unlike a
// weighted mean of the two, this keeps the numbers uniform, so that a loss of 30 % stays 30 %.
func (s *shaper) draw(what int) float64 {
	if s.what.Correlation == 0 || s.random.Float64() >= s.what.Correlation {
		s.last[what] = s.random.Float64()
	}
	return s.last[what]
}

// arrived decides what to do with a packet.
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

// damage flips one bit of a packet beyond its IP header, which a checksum of TCP or UDP covers. It reports whether
// there was a bit to flip.
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

// inOrder reports whether no packet overtakes another, so that one verdict covers all packets up to it.
func (s *shaper) inOrder() bool { return s.what.Jitter == 0 && s.what.Reorder == 0 }

// sendOn passes packets when they are due.
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
			_ = s.late.RecordValue(min(now-w.due, latest)) // always in range
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

// release passes all packets in the order in which they arrived, and from now on all that arrive. It returns how many
// were waiting.
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

// delayQueue orders waiters by their time, and those of the same time by arrival.
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

// add adds a waiter and reports whether it is now the first.
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

// due removes the waiters whose time has come, in order.
func (a *delayQueue) due(into []waiter, now int64) []waiter {
	for len(a.list) > 0 && a.list[0].due <= now {
		into = append(into, heap.Pop(&a.list).(waiter))
	}
	return into
}

// all removes all waiters, in no order.
func (a *delayQueue) all() []waiter {
	out := a.list
	a.list = nil
	return out
}

// waker wakes one thread at a given time, or by wake. It waits in the kernel, on its own thread, and is 0.1 ms late;
// Go's timers are late by 0.5 ms and more.
type waker struct{ event int }

func newWaker() (*waker, error) {
	bell, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, fmt.Errorf("make an event descriptor: %w", err)
	}
	return &waker{event: bell}, nil
}

// own locks the calling goroutine to its thread for good, and makes the kernel wake the thread on time, before other
// work if allowed. It does not use real-time priority. Go's scheduler spins for other threads, and a spin of that
// priority starves them: on a busy machine packets then waited for 100 ms and more at each garbage collection.
func (a *waker) own() {
	runtime.LockOSThread()
	_ = unix.Prctl(unix.PR_SET_TIMERSLACK, 1, 0, 0, 0) // otherwise it may sleep 50 µs too long
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
			time.Sleep(time.Millisecond) // cannot happen, and must not spin
		}
		return
	}
	var b [8]byte
	_, _ = unix.Read(a.event, b[:]) // which resets it
}

func (a *waker) wake() { _, _ = unix.Write(a.event, []byte{1, 0, 0, 0, 0, 0, 0, 0}) }

func (a *waker) close() error { return unix.Close(a.event) }
