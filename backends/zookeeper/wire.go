package zookeeper

import (
	"encoding/binary"
	"errors"
	"net"
	"sync"
	"time"
)

// The numbers of ZooKeeper's protocol that the tap uses (zookeeper.jute, ZooDefs.OpCode, KeeperException.Code).
const (
	opCreate = 1
	opPing   = 11
	opClose  = -11

	xidEvent = -1 // marks a watch event, not an answer

	codeExpired = -112
	codeMoved   = -118
)

// keptOfFrame is how many bytes of a frame are examined: enough for a connect request or response, with its password
// of 16 bytes, and for the header of any other frame.
const keptOfFrame = 64

// maxFrame is far above what a server sends or takes (jute.maxbuffer, 1 MiB); anything longer is not a frame.
const maxFrame = 64 << 20

var errNoFrame = errors.New("not a frame of ZooKeeper's protocol")

// framer cuts a stream into frames: four bytes of length, then as many bytes. It passes on the beginning of each
// frame as soon as it is there, with the arrival time of the frame's first byte.
type framer struct {
	seen  func(beginning []byte, began time.Time) error
	kept  []byte // the length and the beginning of the current frame
	skip  int    // bytes of the frame that are still to come and are not examined
	began time.Time
}

// feed takes the bytes of one read or write.
func (f *framer) feed(b []byte, now time.Time) error {
	for len(b) > 0 {
		if f.skip > 0 {
			n := min(f.skip, len(b))
			f.skip -= n
			b = b[n:]
			continue
		}
		if len(f.kept) == 0 {
			f.began = now
		}
		want, length := 4, 0
		if len(f.kept) >= 4 {
			length = int(int32(binary.BigEndian.Uint32(f.kept)))
			want = 4 + min(length, keptOfFrame)
		}
		n := min(want-len(f.kept), len(b))
		f.kept = append(f.kept, b[:n]...)
		b = b[n:]
		if len(f.kept) < 4 {
			return nil
		}
		length = int(int32(binary.BigEndian.Uint32(f.kept)))
		if length < 0 || length > maxFrame {
			return errNoFrame
		}
		if len(f.kept) < 4+min(length, keptOfFrame) {
			continue
		}
		beginning := f.kept[4:]
		f.skip = length - len(beginning)
		err := f.seen(beginning, f.began)
		f.kept = f.kept[:0]
		if err != nil {
			return err
		}
	}
	return nil
}

// request is a request that was written.
type request struct {
	xid, op int32
	sent    time.Time
}

// hello is the server's answer to a connect request.
type hello struct {
	timeout  time.Duration // as granted by the server
	session  int64         // 0: the requested session is over
	password []byte
}

// listener learns what goes over a connection. A request that it does not allow is not written, nor is anything after
// it.
type listener interface {
	greeted(sent time.Time, h hello)
	asked(r request) (allowed bool)
	answered(r request, zxid int64, code int32)
	notified()
	garbled() // requests and replies do not match: nothing more is reported
}

// tap is a connection that is read along. The server answers the requests of a connection in order, including pings.
type tap struct {
	net.Conn
	to listener

	mu      sync.Mutex
	out, in framer
	opened  bool      // the connect request was written
	sent    time.Time // when the connect request was written
	greeted bool      // the connect request was answered
	pending []request
	shut    bool // nothing more is written
	deaf    bool // nothing more is reported to the listener
	lost    int  // unanswered requests other than pings, counted when the connection was closed
}

func newTap(c net.Conn, to listener) *tap {
	t := &tap{Conn: c, to: to}
	t.out.seen = t.request
	t.in.seen = t.reply
	return t
}

// Write notes the time before it writes. A request that it refuses was certainly not sent.
func (t *tap) Write(b []byte) (int, error) {
	t.mu.Lock()
	if t.shut {
		t.mu.Unlock()
		return 0, net.ErrClosed
	}
	t.feed(&t.out, b)
	shut := t.shut
	t.mu.Unlock()
	if shut {
		return 0, net.ErrClosed
	}
	return t.Conn.Write(b)
}

// Read reads from the connection and parses the bytes.
func (t *tap) Read(b []byte) (int, error) {
	n, err := t.Conn.Read(b)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.feed(&t.in, b[:n])
	return n, err
}

// feed examines bytes as long as they can be parsed. After that the connection is of no use: it could not prove that
// its session lives.
func (t *tap) feed(f *framer, b []byte) {
	if t.deaf {
		return
	}
	if err := f.feed(b, time.Now()); err != nil {
		t.deaf, t.shut = true, true
		if errors.Is(err, errNoFrame) {
			t.to.garbled()
		}
	}
}

// Close ends the connection; nothing is written after it.
func (t *tap) Close() error {
	t.mu.Lock()
	t.shut = true
	for _, r := range t.pending {
		if r.op != opPing {
			t.lost++
		}
	}
	t.pending = nil
	t.mu.Unlock()
	return t.Conn.Close()
}

// hangUpIfSilent closes the connection unless the connect request was answered.
func (t *tap) hangUpIfSilent() {
	t.mu.Lock()
	greeted := t.greeted
	t.mu.Unlock()
	if !greeted {
		_ = t.Close() // the library reports the error of its read
	}
}

// losses returns the number of requests that were written and not answered before the connection was closed.
func (t *tap) losses() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.lost
}

func (t *tap) request(b []byte, began time.Time) error {
	if !t.opened {
		t.opened, t.sent = true, began
		return nil
	}
	if len(b) < 8 {
		return errNoFrame
	}
	r := request{xid: number(b), op: number(b[4:]), sent: began}
	if !t.to.asked(r) {
		return net.ErrClosed
	}
	t.pending = append(t.pending, r)
	return nil
}

func (t *tap) reply(b []byte, _ time.Time) error {
	if !t.greeted {
		h, err := parseHello(b)
		if err != nil || !t.opened {
			return errNoFrame
		}
		t.greeted = true
		t.to.greeted(t.sent, h)
		return nil
	}
	if len(b) < 16 {
		return errNoFrame
	}
	xid, zxid, code := number(b), int64(binary.BigEndian.Uint64(b[4:])), number(b[12:])
	if xid == xidEvent {
		t.to.notified()
		return nil
	}
	if len(t.pending) == 0 || t.pending[0].xid != xid {
		return errNoFrame
	}
	r := t.pending[0]
	t.pending = t.pending[1:]
	t.to.answered(r, zxid, code)
	return nil
}

// parseHello reads protocol version, timeout, session and password.
func parseHello(b []byte) (hello, error) {
	if len(b) < 20 {
		return hello{}, errNoFrame
	}
	n := int(number(b[16:]))
	if n < 0 || n > len(b)-20 {
		return hello{}, errNoFrame
	}
	return hello{
		timeout:  time.Duration(number(b[4:])) * time.Millisecond,
		session:  int64(binary.BigEndian.Uint64(b[8:])),
		password: append([]byte(nil), b[20:20+n]...),
	}, nil
}

func number(b []byte) int32 { return int32(binary.BigEndian.Uint32(b)) }
