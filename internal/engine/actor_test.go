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

// part says what an actor does. What it leaves out is done as by a node that nothing ails.
type part struct {
	starts    func(a *actor) error                        // before ready
	begins    func(a *actor)                              // from go on; nil: take the lock and give it back, again and again
	commanded func(a *actor, c wire.Command) *wire.Result // nil result: no answer
	signalled func(a *actor, name string)                 // before the signal acts
	ends      func(a *actor, d *wire.Done) error          // before the last word
}

// actor plays a client or a resource over the protocol of real ones.
type actor struct {
	stage *stage
	part  part
	conn  *wire.Conn
	dec   *wire.Decoder
	out   io.Writer
	start wire.Start
	life  context.Context // ends by a kill, and with the run
	die   context.CancelFunc
	load  context.Context // ends by a stop
	busy  sync.WaitGroup
	goes  int64 // when it was told to begin, by its own clock

	mu    sync.Mutex
	seq   uint32
	sent  int64
	last  int64
	token uint64
	held  uint32 // the grant in hand
}

// errEnds is what a part returns in order to end its node without a word.
var errEnds = errors.New("the test ends it")

// live is the node's main function.
func (a *actor) live(ctx context.Context) error {
	a.life, a.die = context.WithCancel(ctx)
	defer a.die()
	var stop context.CancelFunc
	a.load, stop = context.WithCancel(a.life)
	defer a.busy.Wait()
	defer stop()
	hello := wire.NewHello("actor", "test")
	if a.stage.ahead != nil {
		hello.BootID = "elsewhere"
	}
	if err := a.conn.Send(wire.Frame{Type: wire.TypeHello, Hello: hello}); err != nil {
		return err
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
				return a.lastWord()
			}
			if err := a.take(f); err != nil {
				return err
			}
		}
	}
}

// read answers pings by the actor's own clock, hands on all else, and ends the actor with its input.
func (a *actor) read(frames chan<- *wire.Frame) {
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

func (a *actor) take(f *wire.Frame) error {
	switch f.Type {
	case wire.TypeStart:
		a.start = *f.Start
		a.part = a.stage.parts[a.start.Name]
		a.stage.enter(a.start.Name, a)
		if a.part.starts != nil {
			if err := a.part.starts(a); err != nil {
				return err
			}
		}
		return a.conn.Send(wire.Frame{Type: wire.TypeReady, Ready: &wire.Ready{}})
	case wire.TypeGo:
		a.goes = f.Go.Time
		begins := a.part.begins
		if begins == nil && a.start.Workload != nil {
			begins = cycles
		}
		if begins != nil {
			a.busy.Go(func() { begins(a) })
		}
	case wire.TypeCommand:
		res := &wire.Result{Outcome: wire.OutcomeOK}
		if a.part.commanded != nil {
			res = a.part.commanded(a, *f.Command)
		} else {
			a.obey(*f.Command)
		}
		if res != nil {
			answer := *res
			answer.ID = f.Command.ID
			return a.conn.Send(wire.Frame{Type: wire.TypeResult, Result: &answer})
		}
	}
	return nil
}

// obey does what an honest client would have recorded.
func (a *actor) obey(c wire.Command) {
	switch c.Do {
	case wire.DoAcquire:
		a.grant()
	case wire.DoRelease:
		a.release()
	}
}

func (a *actor) lastWord() error {
	a.mu.Lock()
	d := &wire.Done{Recorded: a.sent}
	a.mu.Unlock()
	if a.part.ends != nil {
		if err := a.part.ends(a, d); err != nil {
			return err
		}
	}
	return a.conn.Send(wire.Frame{Type: wire.TypeDone, Done: d})
}

// cycles takes the lock and gives it back until the actor is stopped.
func cycles(a *actor) {
	for a.pause(time.Millisecond) {
		a.grant()
		a.pause(3 * time.Millisecond)
		a.release()
	}
}

// pause waits, and tells whether the actor is to go on.
func (a *actor) pause(d time.Duration) bool { return clock.Sleep(a.load, d) == nil }

// now is the actor's own clock.
func (a *actor) now() int64 {
	if a.stage.ahead == nil {
		return clock.Now()
	}
	return clock.Now() + a.stage.ahead()
}

// emit sends one event, stamped now unless it has a time.
func (a *actor) emit(e history.Event) history.Event {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.send(e)
}

// send is emit for who holds the mutex.
func (a *actor) send(e history.Event) history.Event {
	a.seq++
	e.Seq, e.User = a.seq, history.MakeUser(a.start.Index, 0)
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

// grant has the lock granted, unless it is in hand.
func (a *actor) grant() {
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

// release gives back what is in hand. at is the time of the invoke; 0 is now.
func (a *actor) release(at ...int64) {
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
