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
// for the agent's verdict. Packets stay in the kernel; the agent gets only their numbers. When the agent dies, the
// kernel drops the waiting packets, which TCP retransmits, and rules with the bypass flag pass everything.
type queue struct {
	space  *namespace
	number uint16
	q      *nfqueue.Nfqueue
	stop   context.CancelFunc
}

const (
	firstQueue = 100     // lower numbers are left to other programs in the namespace
	queueTries = 100     // how many numbers are tried
	queueRoom  = 1 << 16 // packets that may wait; beyond that they are dropped
	queueRead  = 4 << 20 // bytes of the socket's buffer
	queueCopy  = 0xffff  // bytes of a packet, if its content is asked for
)

// queueOptions are the options of a queue.
type queueOptions struct {
	payload bool // packets come with their content, segmented and with checksums
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
		Flags:    nfqueue.NfQaCfgFlagGSO, // a large packet comes unsegmented, as the sender's kernel made it
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
		return 0 // the socket's buffer overflowed: the excess was dropped
	})
	if err != nil {
		stop()
		return nil, errors.Join(err, q.q.Con.Close())
	}
	return q, nil
}

// pass accepts all packets up to and including this one, in order.
func (q *queue) pass(upTo uint32) error { return q.q.SetVerdictBatch(upTo, nfqueue.NfAccept) }

// unread is how far passAll reaches beyond the newest packet read. The kernel orders numbers correctly within 2^31.
const unread = 1 << 30

// passAll accepts all packets that wait in the kernel, in order. newest is the last one read, or 0. On a busy machine
// the numbers of some are still unread; closing the queue would drop those.
func (q *queue) passAll(newest uint32) error { return q.pass(newest + unread) }

// passOne accepts one packet.
func (q *queue) passOne(id uint32) error { return q.q.SetVerdict(id, nfqueue.NfAccept) }

// passAltered accepts one packet with changed content.
func (q *queue) passAltered(id uint32, packet []byte) error {
	return q.q.SetVerdictWithOption(id, nfqueue.NfAccept, nfqueue.WithAlteredPacket(packet))
}

// drop drops one packet.
func (q *queue) drop(id uint32) error { return q.q.SetVerdict(id, nfqueue.NfDrop) }

// waiting returns how many packets wait, according to the kernel.
func (q *queue) waiting() (int, error) {
	l, err := q.length()
	return l.waiting, err
}

// queueLength has the kernel's counts of a queue.
type queueLength struct {
	waiting int
	dropped uint64 // queue full, or the socket of its reader
}

func (q *queue) length() (queueLength, error) {
	var out queueLength
	err := q.space.do(func() error {
		f, err := os.Open("/proc/thread-self/net/netfilter/nfnetlink_queue")
		if err != nil {
			return fmt.Errorf("inspect the packet queue: %w", err)
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

// close waits, at most a second, until the last packets are released, and closes the queue.
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

// holder holds packets until they are released.
type holder struct {
	queue *queue

	mu     sync.Mutex
	held   int
	newest uint32
	open   bool // pass arriving packets at once
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

// release passes all packets in the order in which they arrived, and from now on all that arrive. It returns how many
// were held.
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
