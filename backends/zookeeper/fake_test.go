package zookeeper

import (
	"encoding/binary"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// fake is a server whose answers a test chooses.
type fake struct {
	listener net.Listener

	mu       sync.Mutex
	length   time.Duration                          // of the sessions it grants
	expired  bool                                   // it no longer knows any session
	answer   func(op int32) (code int32, v verdict) // nil: every request succeeds
	asked    []int32                                // operations in order, without pings
	connects []int64                                // requested sessions
	conns    []net.Conn
}

// verdict is what a fake does with a request.
type verdict int

const (
	reply verdict = iota
	silence
	hangUp
)

func newFake(t *testing.T) *fake {
	t.Helper()
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &fake{listener: l, length: 10 * time.Second} // no machine stalls that long
	t.Cleanup(f.hangUp)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			f.mu.Lock()
			f.conns = append(f.conns, c)
			f.mu.Unlock()
			go f.serve(c)
		}
	}()
	return f
}

// hangUp closes all connections.
func (f *fake) hangUp() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range f.conns {
		_ = c.Close()
	}
	f.conns = nil
}

// set changes what the fake does.
func (f *fake) set(change func(*fake)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

// seen returns what was asked of the fake.
func (f *fake) seen() (connects []int64, asked []int32) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append(connects, f.connects...), append(asked, f.asked...)
}

func frame(c net.Conn) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return nil, err
	}
	b := make([]byte, number(head[:]))
	_, err := io.ReadFull(c, b)
	return b, err
}

func write(c net.Conn, b []byte) {
	_, _ = c.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(b))), b...))
}

func (f *fake) serve(c net.Conn) {
	defer c.Close()
	b, err := frame(c)
	if err != nil {
		return
	}
	write(c, f.greet(int64(binary.BigEndian.Uint64(b[16:]))))
	for zxid := uint64(0x100000001); ; zxid++ {
		b, err := frame(c)
		if err != nil {
			return
		}
		xid, op := number(b), number(b[4:])
		code, what := f.decide(op)
		switch what {
		case silence:
			continue
		case hangUp:
			return
		}
		out := binary.BigEndian.AppendUint32(nil, uint32(xid))
		out = binary.BigEndian.AppendUint64(out, zxid)
		out = binary.BigEndian.AppendUint32(out, uint32(code))
		if op == opCreate && code == 0 { // the path; a sequential node's number is always the same
			path := string(b[12:12+number(b[8:])]) + "0000000007"
			out = binary.BigEndian.AppendUint32(out, uint32(len(path)))
			out = append(out, path...)
		}
		if op == opChildren && code == 0 {
			out = binary.BigEndian.AppendUint32(out, 1)
			out = binary.BigEndian.AppendUint32(out, uint32(len(contender)+10))
			out = append(out, contender+"0000000007"...)
			out = append(out, make([]byte, 68)...) // the parent's stat
		}
		write(c, out)
	}
}

const opChildren = 12

func (f *fake) greet(session int64) []byte {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.connects = append(f.connects, session)
	switch {
	case f.expired && session != 0:
		session = 0
	case session == 0:
		session = int64(len(f.connects))
	}
	out := binary.BigEndian.AppendUint32(nil, 0)
	out = binary.BigEndian.AppendUint32(out, uint32(f.length.Milliseconds()))
	out = binary.BigEndian.AppendUint64(out, uint64(session))
	out = binary.BigEndian.AppendUint32(out, 16)
	return append(out, make([]byte, 17)...)
}

func (f *fake) decide(op int32) (code int32, v verdict) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if op != opPing {
		f.asked = append(f.asked, op)
	}
	if f.answer == nil {
		return 0, reply
	}
	return f.answer(op)
}

// userOf returns a user of a lock on the fake.
func userOf(t *testing.T, f *fake, name string) lock.Locker {
	t.Helper()
	l, ok := Backend().Lock(name)
	if !ok {
		t.Fatalf("no lock %s", name)
	}
	c, err := l.Dial(t.Context(), backends.Access{
		Backend: "zookeeper", Lock: name, TTL: time.Second, Run: "unit",
		Nodes:  []backends.Endpoint{{Name: "zookeeper-1", Addresses: map[string]string{Port: f.listener.Addr().String()}}},
		Params: []byte(`{"timeout_ns": 10000000000, "lag_ns": 100000000}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := c.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}
