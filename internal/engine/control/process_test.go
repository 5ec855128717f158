package control

import (
	"context"
	"io"
	"log/slog"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine/live"
	"github.com/lockquake/lockquake/internal/engine/plan"
	"github.com/lockquake/lockquake/internal/engine/rundir"
	"github.com/lockquake/lockquake/internal/engine/watch"
	"github.com/lockquake/lockquake/internal/wire"
)

// strange is a node whose clock is ahead of this machine's by an hour, and which stamps one event with it.
func strange(t *testing.T, in io.Reader, out io.WriteCloser, ahead int64, hello wire.Hello) {
	t.Helper()
	defer out.Close()
	conn, dec := wire.NewNodeConn(in, out), wire.NewDecoder(in)
	if err := conn.Send(wire.Frame{Type: wire.TypeHello, Hello: &hello}); err != nil {
		t.Error(err)
	}
	for {
		item, err := dec.Next()
		if err != nil {
			return
		}
		switch f := item.Frame; f.Type {
		case wire.TypePing:
			time.Sleep(time.Millisecond) // it reads its clock when it answers, not half-way before
			err = conn.Send(wire.Frame{Type: wire.TypePong, Pong: &wire.Pong{ID: f.Ping.ID, Now: clock.Now() + ahead}})
		case wire.TypeStop:
			e := history.Event{Time: clock.Now() + ahead, Seq: 1, Op: 1, Grant: 1, Kind: history.Acquire, Phase: history.Ok, Valid: clock.Now() + ahead}
			if err = conn.SendEvents([]history.Event{e}); err == nil {
				return
			}
		}
		if err != nil {
			t.Error(err)
			return
		}
	}
}

func TestAStrangeClockIsMeasuredAndItsEventsMoved(t *testing.T) {
	const ahead = int64(time.Hour)
	toNode, in := io.Pipe()
	out, fromNode := io.Pipe()
	go strange(t, toNode, fromNode, ahead, wire.Hello{BootID: "elsewhere"})
	s := greeted(t, out, in)
	m := newMeasurer(t)
	if err := m.Meet(t.Context(), s.Clock, s.greeting(), s.Node.Process.Running, false); err != nil {
		t.Fatal(err)
	}
	now := clock.Now()
	wrong, off := s.Clock.Error(now), s.Clock.Run(now+ahead)-now
	if off > wrong || off < -wrong || wrong <= 0 || wrong > int64(time.Second) { // half of the quickest of thirty answers, which takes a millisecond
		t.Fatalf("an hour ahead is told to be %d wrong, and is %d", wrong, off)
	}
	dir := m.Dir.HistoryDir()
	if err := s.record(dir, &plan.Plan{Locks: []string{"lock-0"}}); err != nil {
		t.Fatal(err)
	}
	before := clock.Now()
	if err := s.conn.Send(wire.Frame{Type: wire.TypeStop}); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if err := s.close(); err != nil {
		t.Fatal(err)
	}
	all, err := history.OpenAll(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer all.Close()
	var e history.Event
	h, err := all.Next(&e)
	if err != nil || h.ErrorNS < wrong || h.ErrorNS > s.Clock.Error(clock.Now()) || h.OffsetNS > -ahead+wrong || h.OffsetNS < -ahead-wrong || h.Exact() {
		t.Fatalf("header %+v, %v; want the error %d in it", h, err, wrong)
	}
	live, _ := s.live.Last(0, -1)
	for name, got := range map[string]int64{"file": e.Time, "file's validity": e.Valid, "live view": live.Start, "live validity": live.Valid} {
		if got < before-h.ErrorNS || got > clock.Now()+h.ErrorNS {
			t.Errorf("%s: the event is at %d, it was made between %d and %d", name, got, before, clock.Now())
		}
	}
}

// newMeasurer returns a measurer for a run directory that has only the folder of the history.
func newMeasurer(t *testing.T) *watch.Measurer {
	t.Helper()
	m := &watch.Measurer{Dir: &rundir.Dir{Path: t.TempDir(), Log: slog.New(slog.DiscardHandler)}}
	if err := os.Mkdir(m.Dir.HistoryDir(), 0o750); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = m.Close() })
	return m
}

// greeted returns the session of a node that has said hello.
func greeted(t *testing.T, out io.Reader, in io.Writer) *Process {
	t.Helper()
	s := newProcess(&cluster.Node{}, 0, live.New(), wire.NewConn(out, in))
	s.directed = true
	go s.read()
	if err := s.await(t.Context(), s.greeted, "hello"); err != nil {
		t.Fatal(err)
	}
	return s
}

// TestSharedClockIsRecognised: a clock is ours with the same kernel and the same time namespace, unless the provider says
// otherwise.
func TestSharedClockIsRecognised(t *testing.T) {
	if clock.BootID() == "" {
		t.Skip("this machine does not tell its boot id")
	}
	for _, c := range []struct {
		hello    wire.Hello
		separate bool
		ours     bool
	}{
		{wire.Hello{BootID: clock.BootID(), TimeNS: clock.TimeNamespace()}, false, true},
		{wire.Hello{BootID: clock.BootID(), TimeNS: clock.TimeNamespace()}, true, false},
		{wire.Hello{BootID: clock.BootID(), TimeNS: "time:[1]"}, false, false},
		{wire.Hello{BootID: "elsewhere", TimeNS: clock.TimeNamespace()}, false, false},
		{wire.Hello{}, false, false},
	} {
		toNode, in := io.Pipe()
		out, fromNode := io.Pipe()
		go strange(t, toNode, fromNode, 0, c.hello)
		s := greeted(t, out, in)
		err := newMeasurer(t).Meet(t.Context(), s.Clock, s.greeting(), s.Node.Process.Running, c.separate)
		if err != nil || s.Clock.Separate() == c.ours || (s.Clock.Error(clock.Now()) == 0) != c.ours {
			t.Errorf("%+v, separate clocks %t: %v; ours: %t", c.hello, c.separate, err, c.ours)
		}
		_ = s.conn.Close()
	}
}

// TestTimesMayBeWrong by the error of the node's clock plus 10 ms: up to that they are accepted.
func TestTimesMayBeWrong(t *testing.T) {
	t.Parallel()
	for wrong, refused := range map[time.Duration]string{
		-16 * time.Millisecond: "before the start frame was sent", -14 * time.Millisecond: "", 14 * time.Millisecond: "", 16 * time.Millisecond: "later than its arrival",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := newProcess(&cluster.Node{}, 0, live.New(), nil)
			s.Clock.RemoteClock = wire.NewRemoteClock("client-1", func(context.Context) (int64, error) {
				time.Sleep(5 * time.Millisecond)
				now := clock.Now()
				time.Sleep(5 * time.Millisecond)
				return now, nil
			})
			if _, err := s.Clock.Measure(t.Context()); err != nil { // its error is 5 ms
				t.Fatal(err)
			}
			s.expect(&wire.Start{})
			err := s.punctual([]history.Event{{Time: clock.Now() + int64(wrong)}})
			if (err == nil) != (refused == "") || err != nil && !strings.Contains(err.Error(), refused) {
				t.Errorf("%v from now: %v, want %q", wrong, err, refused)
			}
		})
	}
}

// TestTimesOfTheRunsClockMayBeWrong by 10 ms: a runtime may read the clock in two ways.
func TestTimesOfTheRunsClockMayBeWrong(t *testing.T) {
	t.Parallel()
	for wrong, refused := range map[time.Duration]bool{-watch.ClockRoom - 1: true, -watch.ClockRoom: false, watch.ClockRoom: false, watch.ClockRoom + 1: true} {
		synctest.Test(t, func(t *testing.T) {
			s := newProcess(&cluster.Node{}, 0, live.New(), nil)
			s.expect(&wire.Start{})
			if err := s.punctual([]history.Event{{Time: clock.Now() + int64(wrong)}}); refused != (err != nil) {
				t.Errorf("%v from now: %v", wrong, err)
			}
		})
	}
}

// TestTalkIsBounded to 10,000 unsolicited frames.
func TestTalkIsBounded(t *testing.T) {
	t.Parallel()
	s := newProcess(&cluster.Node{}, 0, live.New(), nil)
	s.log = slog.New(slog.DiscardHandler)
	talk := &wire.Frame{Type: wire.TypeLog, Log: &wire.Log{Text: "I am a lock"}}
	for i := range MaxTalk {
		if err := s.frame(talk); err != nil {
			t.Fatalf("frame %d: %v", i+1, err)
		}
	}
	if err := s.frame(talk); err == nil {
		t.Error("one more was taken")
	}
}

// TestAClockBehindAFrozenStreamIsLeftOut: a late answer to an abandoned question is not taken for the next one's.
func TestAClockBehindAFrozenStreamIsLeftOut(t *testing.T) {
	toNode, in := io.Pipe()
	out, fromNode := io.Pipe()
	go strange(t, toNode, fromNode, int64(time.Hour), wire.Hello{BootID: "elsewhere"})
	s := greeted(t, out, in)
	defer func() { _ = s.conn.Close() }()
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := s.Clock.Measure(gone); err == nil || s.Clock.Separate() {
		t.Errorf("it was measured without an answer: %v", err)
	}
	if _, err := s.Clock.Measure(t.Context()); err != nil || !s.Clock.Separate() {
		t.Errorf("it was not measured: %v", err)
	}
}

// TestMain lets the clock follow the time of a bubble.
func TestMain(m *testing.M) {
	clock.Simulate()
	os.Exit(m.Run())
}
