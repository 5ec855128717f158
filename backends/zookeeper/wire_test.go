package zookeeper

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"testing"
	"time"
)

// Frames recorded between go-zookeeper/zk v1.0.4 and ZooKeeper 3.8.0: a session of 2 s, a create of an ephemeral
// sequential node, a getData with a watch, a delete and the watch's event, a getData of the deleted node, a ping, and
// the close.
const (
	connectFrame   = "0000002c000000000000000000000000000007d000000000000000000000001000000000000000000000000000000000"
	connectedFrame = "0000002400000000000007d00100004a99af00000000001023bb94eb74514e9939b277fadd60447f"
	createFrame    = "000000370000000200000001000000082f612f6c6f636b2dffffffff000000010000001f00000005776f726c64000000" +
		"06616e796f6e6500000003"
	createdFrame = "0000002600000002000000000000000300000000000000122f612f6c6f636b2d30303030303030303030"
	getFrame     = "0000001f0000000300000004000000122f612f6c6f636b2d3030303030303030303001"
	gotFrame     = "0000005800000003000000000000000300000000ffffffff00000000000000030000000000000003000001a1fe651195" +
		"000001a1fe6511950000000000000000000000000100004a99af000000000000000000000000000000000003"
	removeFrame = "000000220000000400000002000000122f612f6c6f636b2d30303030303030303030ffffffff"
	eventFrame  = "0000002effffffffffffffffffffffff000000000000000200000003000000122f612f6c6f636b2d3030303030303030" +
		"3030"
	removedFrame = "0000001000000004000000000000000400000000"
	againFrame   = "0000001f0000000500000004000000122f612f6c6f636b2d3030303030303030303000"
	goneFrame    = "00000010000000050000000000000004ffffff9b"
	pingFrame    = "00000008fffffffe0000000b"
	pongFrame    = "00000010fffffffe000000000000000400000000"
	shutFrame    = "0000000800000006fffffff5"
	closedFrame  = "0000001000000006000000000000000500000000"
)

func raw(t *testing.T, frames ...string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(frames, ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestFramer cuts a stream at every position, and expects the same frames.
func TestFramer(t *testing.T) {
	long := "00000100" + strings.Repeat("ab", 256)
	stream := raw(t, connectedFrame, "00000000", createdFrame, long, pongFrame)
	var want []string
	for size := 1; size <= len(stream); size++ {
		var got []string
		f := framer{seen: func(b []byte, _ time.Time) error {
			got = append(got, hex.EncodeToString(b))
			return nil
		}}
		for piece := range slices.Chunk(stream, size) {
			if err := f.feed(piece, time.Time{}); err != nil {
				t.Fatal(err)
			}
		}
		if want == nil {
			want = got
		}
		if len(got) != 5 || !slices.Equal(got, want) {
			t.Fatalf("in pieces of %d: %q", size, got)
		}
	}
	if len(want[3]) != 2*keptOfFrame {
		t.Errorf("%d bytes of a long frame are kept", len(want[3])/2)
	}
	for _, bad := range []string{"ffffffff", "7fffffff"} {
		if err := (&framer{}).feed(raw(t, bad), time.Time{}); !errors.Is(err, errNoFrame) {
			t.Errorf("length %s: %v", bad, err)
		}
	}
}

// script is a connection with a prepared other side.
type script struct {
	net.Conn
	in, out bytes.Buffer
}

func (s *script) Read(b []byte) (int, error)  { return s.in.Read(b) }
func (s *script) Write(b []byte) (int, error) { return s.out.Write(b) }
func (s *script) Close() error                { return nil }

// ear records what the tap reports.
type ear struct {
	lines []string
	sent  []time.Time // of the answered requests
	deny  int32       // an operation that is not allowed
}

func (e *ear) greeted(sent time.Time, h hello) {
	e.lines = append(e.lines, fmt.Sprintf("greeted %x %s %x", h.session, h.timeout, h.password))
	e.sent = append(e.sent, sent)
}

func (e *ear) asked(r request) bool {
	e.lines = append(e.lines, fmt.Sprintf("asked %d %d", r.xid, r.op))
	return r.op != e.deny
}

func (e *ear) answered(r request, zxid int64, code int32) {
	e.lines = append(e.lines, fmt.Sprintf("answered %d %d %#x %d", r.xid, r.op, zxid, code))
	e.sent = append(e.sent, r.sent)
}

func (e *ear) garbled()  { e.lines = append(e.lines, "garbled") }
func (e *ear) notified() { e.lines = append(e.lines, "notified") }

// say writes requests, hear reads replies.
func say(t *testing.T, c *tap, frames ...string) {
	t.Helper()
	for _, f := range frames {
		if _, err := c.Write(raw(t, f)); err != nil {
			t.Fatal(err)
		}
	}
}

func hear(t *testing.T, c *tap, s *script, frames ...string) {
	t.Helper()
	s.in.Write(raw(t, frames...))
	b := make([]byte, 7) // no frame has this length
	for s.in.Len() > 0 {
		if _, err := c.Read(b); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTapMatchesReplies runs a session's course.
func TestTapMatchesReplies(t *testing.T) {
	s, e := &script{}, &ear{}
	c := newTap(s, e)
	say(t, c, connectFrame)
	hear(t, c, s, connectedFrame)
	say(t, c, createFrame, getFrame)
	hear(t, c, s, createdFrame, gotFrame)
	say(t, c, removeFrame, againFrame)
	hear(t, c, s, eventFrame, removedFrame, goneFrame)
	say(t, c, pingFrame, shutFrame)
	hear(t, c, s, pongFrame, closedFrame)
	want := []string{
		"greeted 100004a99af0000 2s 23bb94eb74514e9939b277fadd60447f",
		"asked 2 1", "asked 3 4", "answered 2 1 0x3 0", "answered 3 4 0x3 0",
		"asked 4 2", "asked 5 4", "notified", "answered 4 2 0x4 0", "answered 5 4 0x4 -101",
		"asked -2 11", "asked 6 -11", "answered -2 11 0x4 0", "answered 6 -11 0x5 0",
	}
	if !slices.Equal(e.lines, want) {
		t.Errorf("heard\n%s\nwant\n%s", strings.Join(e.lines, "\n"), strings.Join(want, "\n"))
	}
	if got := hex.EncodeToString(s.out.Bytes()); got != connectFrame+createFrame+getFrame+removeFrame+againFrame+pingFrame+shutFrame {
		t.Errorf("written: %s", got)
	}
}

// TestTapTakesSendTimes: the second of two pings is answered late, and each answer counts from its own request.
func TestTapTakesSendTimes(t *testing.T) {
	s, e := &script{}, &ear{}
	c := newTap(s, e)
	var after []time.Time
	for _, f := range []string{connectFrame, pingFrame, pingFrame} {
		say(t, c, f)
		after = append(after, time.Now())
		time.Sleep(5 * time.Millisecond)
	}
	hear(t, c, s, connectedFrame, pongFrame, pongFrame)
	for i, sent := range e.sent {
		if sent.After(after[i]) || i > 0 && !sent.After(after[i-1]) {
			t.Errorf("answer %d counts from %s after its request", i, sent.Sub(after[i]))
		}
	}
}

// TestTapDoubts: a reply matches no request. Nothing after it is believed, and nothing more is written.
func TestTapDoubts(t *testing.T) {
	for name, replies := range map[string][]string{
		"an answer to nothing":  {connectedFrame, pongFrame, pongFrame},
		"answers out of order":  {connectedFrame, gotFrame, pongFrame},
		"no session":            {"00000004" + "00000000"},
		"a length that is none": {connectedFrame, "ffffffff" + pongFrame},
	} {
		s, e := &script{}, &ear{}
		c := newTap(s, e)
		say(t, c, connectFrame, pingFrame)
		hear(t, c, s, replies...)
		n := len(e.lines)
		if e.lines[n-1] != "garbled" {
			t.Errorf("%s: %q", name, e.lines)
		}
		if _, err := c.Write(raw(t, pingFrame)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: write after it: %v", name, err)
		}
		hear(t, c, s, pongFrame)
		if len(e.lines) != n {
			t.Errorf("%s: %q is believed after it", name, e.lines[n:])
		}
	}
}

// TestTapRefuses: neither a request that is not allowed nor anything after it is written.
func TestTapRefuses(t *testing.T) {
	s, e := &script{}, &ear{deny: opCreate}
	c := newTap(s, e)
	say(t, c, connectFrame)
	hear(t, c, s, connectedFrame)
	for _, f := range []string{createFrame, pingFrame} {
		if _, err := c.Write(raw(t, f)); !errors.Is(err, net.ErrClosed) {
			t.Errorf("write: %v", err)
		}
	}
	if got := hex.EncodeToString(s.out.Bytes()); got != connectFrame {
		t.Errorf("written: %s", got)
	}
}

// TestTapCountsLosses closes a connection with three pending requests, one of them a ping.
func TestTapCountsLosses(t *testing.T) {
	s := &script{}
	c := newTap(s, &ear{})
	say(t, c, connectFrame)
	hear(t, c, s, connectedFrame)
	say(t, c, createFrame, pingFrame, getFrame, removeFrame)
	hear(t, c, s, createdFrame)
	if c.losses() != 0 {
		t.Errorf("%d losses on an open connection", c.losses())
	}
	_, _ = c.Close(), c.Close()
	if c.losses() != 2 {
		t.Errorf("%d losses, want get and delete", c.losses())
	}
}
