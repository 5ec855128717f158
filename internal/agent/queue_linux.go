package agent

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/florianl/go-nfqueue/v2"
	"golang.org/x/sys/unix"
)

// queue is a queue of the kernel in one namespace, read by the agent: each packet that a rule sends there waits until it is
// let go. Packets stay in the kernel; only their numbers come here. When the agent dies the kernel drops what waits, which
// TCP sends again, and rules with the bypass flag let everything pass.
type queue struct {
	space  *namespace
	number uint16
	q      *nfqueue.Nfqueue
	stop   context.CancelFunc
}

const (
	firstQueue = 100     // numbers below are left to whoever else uses queues in there
	queueTries = 100     // how many numbers are tried
	queueRoom  = 1 << 16 // packets that may wait; beyond that they are dropped
	queueRead  = 4 << 20 // bytes of the socket's buffer
)

// openQueue opens the first free queue. arrived is called for each packet, in their order.
func openQueue(space *namespace, arrived func(q *queue, id uint32)) (*queue, error) {
	var last error
	for number := uint16(firstQueue); number < firstQueue+queueTries; number++ {
		q, err := bindQueue(space, number, arrived)
		if err == nil {
			return q, nil
		}
		if last = err; !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return nil, fmt.Errorf("open a packet queue: %w", last)
}

func bindQueue(space *namespace, number uint16, arrived func(*queue, uint32)) (*queue, error) {
	q := &queue{space: space, number: number}
	var err error
	q.q, err = nfqueue.Open(&nfqueue.Config{
		NetNS: space.fd(), NfQueue: number, MaxQueueLen: queueRoom, Copymode: nfqueue.NfQnlCopyMeta, AfFamily: unix.AF_INET,
	})
	if err != nil {
		return nil, err
	}
	_ = q.q.Con.SetReadBuffer(queueRead) // a smaller one only drops sooner
	ctx, stop := context.WithCancel(context.Background())
	q.stop = stop
	err = q.q.RegisterWithErrorFunc(ctx, func(a nfqueue.Attribute) int {
		if a.PacketID != nil {
			arrived(q, *a.PacketID)
		}
		return 0
	}, func(error) int {
		if ctx.Err() != nil {
			return 1
		}
		return 0 // the socket's buffer ran over: what did not fit was dropped
	})
	if err != nil {
		stop()
		return nil, errors.Join(err, q.q.Con.Close())
	}
	return q, nil
}

// pass lets all packets go that arrived up to and with this one, in their order.
func (q *queue) pass(upTo uint32) error { return q.q.SetVerdictBatch(upTo, nfqueue.NfAccept) }

// waiting asks the kernel how many packets wait.
func (q *queue) waiting() (int, error) {
	n := 0
	err := q.space.do(func() error {
		f, err := os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return fmt.Errorf("look at the packet queue: %w", err)
		}
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			fields := strings.Fields(lines.Text()) // number, port id, packets that wait, ...
			if len(fields) > 2 && fields[0] == strconv.Itoa(int(q.number)) {
				n, err = strconv.Atoi(fields[2])
				return err
			}
		}
		return fmt.Errorf("the kernel does not list packet queue %d", q.number)
	})
	return n, err
}

// close waits until the last packets were let go, at most 200 ms, and closes the queue.
func (q *queue) close() error {
	for range 100 {
		if n, err := q.waiting(); err != nil || n == 0 {
			break
		}
		time.Sleep(2 * time.Millisecond)
	}
	q.stop()
	return q.q.Close()
}

// holder keeps packets until they are let go.
type holder struct {
	queue *queue

	mu     sync.Mutex
	held   int
	newest uint32
	open   bool // let whatever arrives go at once
}

func newHolder(space *namespace) (*holder, error) {
	h := &holder{}
	var err error
	h.queue, err = openQueue(space, h.arrived)
	return h, err
}

func (h *holder) arrived(q *queue, id uint32) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		_ = q.pass(id) // the socket is ours: it fails only when it is closed
		return
	}
	h.held, h.newest = h.held+1, id
}

// release lets everything go in the order in which it arrived, and from now on what arrives, and returns how many packets
// had been held.
func (h *holder) release() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.open = true
	if h.held > 0 {
		_ = h.queue.pass(h.newest) // as above
	}
	return h.held
}

func (h *holder) close() error {
	if h == nil {
		return nil
	}
	h.release()
	return h.queue.close()
}
