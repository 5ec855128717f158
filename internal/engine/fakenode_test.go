package engine

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// script is how a fake node misbehaves.
type script struct {
	starts    func(a *fakeNode) error                        // before ready
	begins    func(a *fakeNode)                              // from go on; nil: take and release the lock repeatedly
	commanded func(a *fakeNode, c wire.Command) *wire.Result // nil result: no answer
	signalled func(a *fakeNode, name string)                 // before the signal acts
	ends      func(a *fakeNode, d *wire.Done) error          // before its done frame
}

// fakeNode is a client, a resource or a server of a test. Clients and resources speak the real protocol.
type fakeNode struct {
	bed     *testbed
	script  script
	conn    *wire.Conn
	dec     *wire.Decoder
	out     io.Writer
	start   wire.Start
	life    context.Context // ends by a kill, and with the run
	die     context.CancelFunc
	load    context.Context // ends by a stop
	busy    sync.WaitGroup
	startAt int64 // when it had to begin, by its own clock
	own     bool  // it claims to be lockquake's own client

	mu    sync.Mutex
	seq   uint32
	sent  int64
	last  int64
	token uint64
	held  uint32 // the grant that it holds; 0: none
	user  int    // whose events it sends
}

// errEnds is returned by a script to end its node without a done frame.
var errEnds = errors.New("the test ends it")

// main is the node's main function.
func (a *fakeNode) main(ctx context.Context) error {
	a.life, a.die = context.WithCancel(ctx)
	defer a.die()
	var stop context.CancelFunc
	a.load, stop = context.WithCancel(a.life)
	defer a.busy.Wait()
	defer stop()
	hello := wire.NewHello("fake", "test")
	if a.own {
		hello.Process = wire.ProcessClient
	}
	hello.Orders = a.bed.takes
	hello.Points = []string{"before-free", "nowhere"}
	hello.Libraries = map[string]string{"example.org/lib": "v1.0.0", "example.org/old": "v2.0.0+incompatible"}
	if a.bed.ahead != nil && !a.bed.lies {
		hello.BootID = "elsewhere"
	}
	if !a.bed.mute {
		if err := a.conn.Send(wire.Frame{Type: wire.TypeHello, Hello: hello}); err != nil {
			return err
		}
	}
	frames := make(chan *wire.Frame, 100)
	go a.read(frames)
	for {
		select {
		case <-a.life.Done():
			return a.life.Err()
		case f := <-frames:
			if f.Type == wire.TypeStop {
				stop()
				a.busy.Wait()
				return a.sendDone()
			}
			if err := a.take(f); err != nil {
				return err
			}
		}
	}
}

// read answers pings by the node's own clock, passes other frames on, and ends the node with its input.
func (a *fakeNode) read(frames chan<- *wire.Frame) {
	defer a.die()
	for {
		item, err := a.dec.Next()
		if err != nil {
			return
		}
		f := item.Frame
		if f.Ping == nil {
			frames <- f
			continue
		}
		now := a.now()
		_ = a.conn.Send(wire.Frame{Type: wire.TypePong, Pong: &wire.Pong{ID: f.Ping.ID, Now: now, Wall: now, Mono: now}})
	}
}

func (a *fakeNode) take(f *wire.Frame) error {
	switch f.Type {
	case wire.TypeStart:
		a.start = *f.Start
		a.script = a.bed.scripts[a.start.Name]
		a.bed.addFake(a.start.Name, a)
		if a.script.starts != nil {
			if err := a.script.starts(a); err != nil {
				return err
			}
		}
		return a.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{}})
	case wire.TypeGo:
		a.startAt = f.Go.Time
		begins := a.script.begins
		if begins == nil && a.start.Workload != nil {
			begins = cycles
		}
		if begins != nil {
			a.busy.Go(func() { begins(a) })
		}
	case wire.TypeCommand:
		res := &wire.Result{Outcome: wire.OutcomeOK}
		if a.script.commanded != nil {
			res = a.script.commanded(a, *f.Command)
		} else {
			a.carryOut(*f.Command)
		}
		if res != nil {
			answer := *res
			answer.ID = f.Command.ID
			return a.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &answer})
		}
	}
	return nil
}

// carryOut records the events of a command as a real client does.
func (a *fakeNode) carryOut(c wire.Command) {
	switch c.Do {
	case wire.DoAcquire:
		a.grant()
	case wire.DoRelease:
		a.release()
	}
}

func (a *fakeNode) sendDone() error {
	a.mu.Lock()
	d := &wire.Done{Recorded: a.sent}
	a.mu.Unlock()
	if a.script.ends != nil {
		if err := a.script.ends(a, d); err != nil {
			return err
		}
	}
	return a.conn.Send(wire.Frame{Type: wire.TypeDone, Done: d})
}

// cycles takes the lock and releases it until the node gets a stop.
func cycles(a *fakeNode) {
	for a.pause(time.Millisecond) {
		a.grant()
		a.pause(3 * time.Millisecond)
		a.release()
	}
}

// pause waits, and reports whether the node may go on.
func (a *fakeNode) pause(d time.Duration) bool { return clock.Sleep(a.load, d) == nil }

// now returns the time of the node's own clock.
func (a *fakeNode) now() int64 {
	if a.bed.ahead == nil {
		return clock.Now()
	}
	return clock.Now() + a.bed.ahead()
}

// emit sends one event, stamped now unless it has a time.
func (a *fakeNode) emit(e history.Event) history.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.send(e)
}

// send is emit for callers that hold the mutex.
func (a *fakeNode) send(e history.Event) history.Event {
	a.seq++
	e.Seq, e.User = a.seq, history.MakeUser(a.start.Index, a.user)
	if e.Time == 0 {
		e.Time = a.now()
	}
	e.Time = max(e.Time, a.last)
	if e.Op == 0 {
		e.Op = e.Seq
	}
	a.last = e.Time
	if a.life.Err() == nil && a.conn.SendEvents([]history.Event{e}) == nil {
		a.sent++
	}
	return e
}

// grant records a grant of the lock, unless the node holds it.
func (a *fakeNode) grant() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held != 0 {
		return
	}
	asked := a.send(history.Event{Kind: history.Acquire, Phase: history.Invoke})
	a.token++
	a.held = asked.Op
	a.send(history.Event{
		Kind: history.Acquire, Phase: history.Ok, Op: asked.Op, Grant: asked.Op, Token: a.token, Value: asked.Time, Valid: asked.Time + int64(5*time.Second),
	})
}

// renew records that the held lock is renewed.
func (a *fakeNode) renew() {
	a.mu.Lock()
	defer a.mu.Unlock()
	asked := a.send(history.Event{Kind: history.Renew, Phase: history.Invoke, Grant: a.held})
	a.send(history.Event{Kind: history.Renew, Phase: history.Ok, Op: asked.Op, Grant: a.held, Valid: asked.Time + int64(5*time.Second)})
}

// release records a release of the held lock, invoked now or at the given time.
func (a *fakeNode) release(at ...int64) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.held == 0 {
		return
	}
	e := history.Event{Kind: history.Release, Phase: history.Invoke, Grant: a.held}
	if len(at) > 0 {
		e.Time = at[0]
	}
	begun := a.send(e)
	a.send(history.Event{Kind: history.Release, Phase: history.Ok, Op: begun.Op, Grant: a.held})
	a.held = 0
}
