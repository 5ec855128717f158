package links

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

	"github.com/lockquake/lockquake/chaos/links"
)

// queue is a packet queue of the kernel in one namespace, read by the agent: each packet that a rule sends there waits
// for the agent's verdict. Packets stay in the kernel; only their numbers come here. When the agent dies, the kernel
// drops what waits, which TCP sends again, and rules with the bypass flag let everything pass.
type queue struct {
	space  *namespace
	number uint16
	q      *nfqueue.Nfqueue
	stop   context.CancelFunc
}

const (
	firstQueue = 100     // numbers below are left to other programs in the namespace
	queueTries = 100     // how many numbers are tried
	queueRoom  = 1 << 16 // packets that may wait; beyond that they are dropped
	queueRead  = 4 << 20 // bytes of the socket's buffer
	queueCopy  = 0xffff  // bytes of a packet, where its content is asked for
)

// queueOptions says what is wanted of a queue.
type queueOptions struct {
	payload bool // the packets' content comes with them, cut to what fits on the wire and with its checksums made
	// arrived is called for each packet, in their order.
	arrived func(q *queue, a nfqueue.Attribute)
}

// openQueue opens the first free queue.
func openQueue(space *namespace, o queueOptions) (*queue, error) {
	var last error
	for number := uint16(firstQueue); number < firstQueue+queueTries; number++ {
		q, err := bindQueue(space, number, o)
		if err == nil {
			return q, nil
		}
		if last = err; !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.EBUSY) {
			break
		}
	}
	return nil, fmt.Errorf("open a packet queue: %w", last)
}

func bindQueue(space *namespace, number uint16, o queueOptions) (*queue, error) {
	q := &queue{space: space, number: number}
	config := nfqueue.Config{
		NetNS: space.fd(), NfQueue: number, MaxQueueLen: queueRoom, Copymode: nfqueue.NfQnlCopyMeta,
		AfFamily: unix.AF_INET,
		Flags:    nfqueue.NfQaCfgFlagGSO, // a large packet comes whole, as the sender's kernel made it
	}
	if o.payload {
		config.Copymode, config.MaxPacketLen, config.Flags = nfqueue.NfQnlCopyPacket, queueCopy, 0
	}
	var err error
	q.q, err = nfqueue.Open(&config)
	if err != nil {
		return nil, err
	}
	_ = q.q.Con.SetReadBuffer(queueRead) // a smaller one only drops sooner
	ctx, stop := context.WithCancel(context.Background())
	q.stop = stop
	err = q.q.RegisterWithErrorFunc(ctx, func(a nfqueue.Attribute) int {
		if a.PacketID != nil {
			o.arrived(q, a)
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

// unread is how far beyond the newest packet that was read passAll reaches. The kernel tells earlier from later numbers
// within 2^31.
const unread = 1 << 30

// passAll lets all packets go that wait in the kernel, in their order. newest is the last that was read, or 0. On a
// busy machine packets wait whose numbers have not been read yet; closing the queue would drop them.
func (q *queue) passAll(newest uint32) error { return q.pass(newest + unread) }

// passOne lets one packet go.
func (q *queue) passOne(id uint32) error { return q.q.SetVerdict(id, nfqueue.NfAccept) }

// passAltered lets one packet go with other content.
func (q *queue) passAltered(id uint32, packet []byte) error {
	return q.q.SetVerdictWithOption(id, nfqueue.NfAccept, nfqueue.WithAlteredPacket(packet))
}

// drop makes one packet vanish.
func (q *queue) drop(id uint32) error { return q.q.SetVerdict(id, nfqueue.NfDrop) }

// waiting asks the kernel how many packets wait.
func (q *queue) waiting() (int, error) {
	l, err := q.length()
	return l.waiting, err
}

// queueLength is what the kernel says of a queue.
type queueLength struct {
	waiting int
	dropped uint64 // for want of room, in the queue or on the way to its reader
}

func (q *queue) length() (queueLength, error) {
	var out queueLength
	err := q.space.do(func() error {
		f, err := os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return fmt.Errorf("look at the packet queue: %w", err)
		}
		defer func() { _ = f.Close() }()
		for lines := bufio.NewScanner(f); lines.Scan(); {
			// Number, port id, packets that wait, how much is copied and of what, dropped for a full queue, for a full
			// socket, ...
			fields := strings.Fields(lines.Text())
			if len(fields) < 7 || fields[0] != strconv.Itoa(int(q.number)) {
				continue
			}
			var full, unread uint64
			if _, err := fmt.Sscan(strings.Join([]string{fields[2], fields[5], fields[6]}, " "), &out.waiting, &full,
				&unread); err != nil {
				return fmt.Errorf("read the line of packet queue %d: %w", q.number, err)
			}
			out.dropped = full + unread
			return nil
		}
		return fmt.Errorf("the kernel does not list packet queue %d", q.number)
	})
	return out, err
}

// close waits until the last packets were let go, at most a second, and closes the queue.
func (q *queue) close() error {
	for range 500 {
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
	h.queue, err = openQueue(space, queueOptions{arrived: h.arrived})
	return h, err
}

func (h *holder) arrived(q *queue, a nfqueue.Attribute) {
	id := *a.PacketID
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.open {
		_ = q.pass(id) // the socket is ours: it fails only when it is closed
		return
	}
	h.held, h.newest = h.held+1, id
}

// release lets everything go in the order in which it arrived, and from now on what arrives, and returns how many
// packets had been held.
func (h *holder) release() int {
	waiting, _ := h.queue.waiting()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !h.open {
		h.held = max(h.held, waiting)
	}
	h.open = true
	_ = h.queue.passAll(h.newest) // as above; none may wait
	return h.held
}

func (h *holder) met(f *links.Filtered) error {
	n, err := h.queue.waiting()
	f.Held = n
	return err
}

func (h *holder) close() error {
	h.release()
	return h.queue.close()
}
