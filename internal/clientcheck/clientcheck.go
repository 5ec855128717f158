// Package clientcheck tests a client against docs/protocol.md without a judge. Each check starts a process of it,
// talks to it as a run would, and reports in one line what is wrong.
package clientcheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/wire"
)

// Process is a running client.
type Process struct {
	In    io.WriteCloser
	Out   io.Reader
	Ended <-chan struct{} // closed when it has ended
}

// Options says what to test.
type Options struct {
	// Start starts the process for check number; each check has its own.
	Start func(ctx context.Context, number int) (Process, error)
	// Frame returns the start frame for that process: Access, Resource, TTL, and two Locks that no other check has: the
	// clients of some checks die with a lock in hand. The check sets the rest.
	Frame func(number int) (*wire.Start, error)
	// Tell is called after each check, with what is wrong, or nothing if the client passed. It is not called for what
	// the client does not offer, such as permits.
	Tell func(check string, wrong []string)

	waits time.Duration // in place of patience and startPatience, for tests
}

// check is one conversation with a client.
type check struct {
	name string
	talk func(ctx context.Context, c *client) error
}

// checks are all of them, the simplest first: what fails there makes the rest fail too.
var checks = []check{
	{"hello", hello},
	{"version", otherVersion},
	{"input ends", inputEnds},
	{"orders", orders},
	{"permits", permits},
	{"giving up", givingUp},
	{"points", points},
	{"death", death},
	{"workload", workload},
}

// Count returns how many processes a Run starts.
func Count() int { return len(checks) }

// Run makes all checks and reports whether the client passed all of them. An error says that a check could not be
// made.
func Run(ctx context.Context, o Options) (right bool, err error) {
	right = true
	for i, k := range checks {
		wrong, err := o.one(ctx, i, k)
		if errors.Is(err, errNotOffered) {
			continue
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", k.name, err)
		}
		right = right && len(wrong) == 0
		o.Tell(k.name, wrong)
		if k.name == "hello" && len(wrong) > 0 {
			break // the results of the other checks add nothing
		}
	}
	return right, nil
}

// patience is how long a check waits for any one action of a client.
const patience = 10 * time.Second

// startPatience is how long the first frame may take: an interpreter or a JVM may have to start first, on a busy
// machine.
const startPatience = 30 * time.Second

// one makes one check.
func (o Options) one(ctx context.Context, number int, k check) (wrong []string, err error) {
	start, err := o.Frame(number)
	if err != nil {
		return nil, err
	}
	p, err := o.Start(ctx, number)
	if err != nil {
		return nil, err
	}
	c := newClient(p, start, cmp.Or(o.waits, patience))
	if o.waits > 0 {
		c.starts = o.waits
	}
	defer c.end()
	switch err := k.talk(ctx, c); {
	case errors.Is(err, errNotOffered):
		return nil, err
	case err != nil:
		c.wrong("%v", err)
	}
	return c.found(), ctx.Err()
}

// errOver ends a check whose finding is recorded already.
var errOver = errors.New("")

// hello checks the first frame.
func hello(ctx context.Context, c *client) error {
	h, err := c.greet(ctx)
	if err != nil {
		return err
	}
	if h.Process == "" {
		c.wrong("hello: process is missing: the judged client would be unnamed")
	}
	if h.PID == 0 {
		c.wrong("hello: pid is missing")
	}
	if b := h.Hung; b != nil && (b.TTLs < 0 || b.Plus < 0 || b.TTLs == 0 && b.Plus == 0) {
		c.wrong("hello: hung is %d TTLs and %v: want a bound above 0, or none", b.TTLs, time.Duration(b.Plus))
	}
	known := false
	for _, f := range h.Formats {
		known = known || f == wire.FormatJSONL || f == wire.FormatRecords
	}
	if !known {
		c.wrong("hello: formats is %q: want %s or %s among them", h.Formats, wire.FormatJSONL, wire.FormatRecords)
	}
	c.send(wire.Frame{Type: wire.TypePing, Ping: &wire.Ping{ID: 4711}})
	f, err := c.next(ctx, wire.TypePong)
	if err != nil {
		return err
	}
	if f.Pong.ID != 4711 {
		c.wrong("pong: id is %d: want that of the ping, 4711", f.Pong.ID)
	}
	c.clocks(h, f.Pong)
	return nil
}

// otherVersion checks that the client rejects a version of the protocol that it cannot know.
func otherVersion(ctx context.Context, c *client) error {
	if _, err := c.greet(ctx); err != nil {
		return err
	}
	st := *c.start
	st.Version, st.Format = 99, wire.FormatJSONL
	line, err := json.Marshal(wire.Frame{Type: wire.TypeStart, Start: &st})
	if err != nil {
		return err
	}
	if _, err := c.process.In.Write(append(line, '\n')); err != nil {
		return err
	}
	f, err := c.next(ctx, wire.TypeReady, wire.TypeFailed)
	if err == nil && f.Type == wire.TypeReady {
		c.wrong("start: version 99 of the protocol was answered with ready: refuse it with failed")
	}
	return nil // ending without a message is fine
}

// inputEnds checks that a client ends within 2 s when its supervisor is gone.
func inputEnds(ctx context.Context, c *client) error {
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	if _, err := c.ask(ctx, wire.Command{Do: wire.DoAcquire}); err != nil {
		return err
	}
	_ = c.process.In.Close()
	return c.ends(ctx, "its standard input ended", 2*time.Second)
}

// orders has two users contend for a lock.
func orders(ctx context.Context, c *client) error {
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	if err := c.carryAll(ctx, contention); err != nil {
		return err
	}
	return c.stop(ctx)
}

// errNotOffered ends a check of what the client does not offer.
var errNotOffered = errors.New("not offered")

// permits has three users take a lock of two permits, if the client's locks have permits.
func permits(ctx context.Context, c *client) error {
	access := map[string]json.RawMessage{}
	if err := json.Unmarshal(c.start.Access, &access); err != nil {
		return err
	}
	access["permits"] = json.RawMessage("2")
	var err error
	if c.start.Access, err = json.Marshal(access); err != nil {
		return err
	}
	c.start.Resource = nil
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	if !c.hello.Permits {
		return errNotOffered
	}
	if err := c.carryAll(ctx, sharing); err != nil {
		return err
	}
	return c.stop(ctx)
}

// givingUp checks the orders that are optional for clients: a waiter has to give up, and closes its lock object.
func givingUp(ctx context.Context, c *client) error {
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	if c.hello.Takes(wire.DoCancel) {
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoAcquire}); err != nil || r.Outcome != wire.OutcomeOK {
			return fmt.Errorf("an acquire: result: outcome is %q (%s), want ok (%w)", r.Outcome, r.Error,
				orNothing(err))
		}
		waits := c.order(wire.Command{Do: wire.DoAcquire, User: 1, Timeout: int64(time.Minute)})
		asked, cancel := context.WithTimeout(ctx, c.waits)
		defer cancel()
		for c.record.count(history.Acquire, history.Invoke) < 2 {
			if clock.Sleep(asked, time.Millisecond) != nil {
				return fmt.Errorf("an acquire that waits: no event of it within %v", c.waits)
			}
		}
		clock.Sleep(ctx, 100*time.Millisecond)
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoCancel, User: 1}); err != nil || r.Outcome != wire.OutcomeOK {
			return fmt.Errorf("a cancel of an acquire that waits: result: outcome is %q (%s), want ok (%w)", r.Outcome,
				r.Error, orNothing(err))
		}
		r, err := c.result(ctx, waits)
		switch {
		case err != nil:
			return fmt.Errorf("a cancelled acquire: %w", err)
		case r.Outcome == wire.OutcomeOK:
			c.wrong("an acquire that was cancelled while another user had the lock: result: outcome is ok")
		case c.record.count(history.Cancel, history.Info) == 0:
			c.wrong("cancel: no event cancel was recorded")
		}
	}
	if err := c.carryAll(ctx, closing); err != nil {
		return err
	}
	if c.hello.Takes(wire.DoClose) {
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoClose, User: 1}); err != nil || r.Outcome != wire.OutcomeOK ||
			c.record.count(history.Close, history.Ok) == 0 {
			return fmt.Errorf("a close: result: outcome is %q (%s), want ok, and the events close invoke and ok before it (%w)", r.Outcome, r.Error, orNothing(err))
		}
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoAcquire, User: 1}); err == nil &&
			r.Outcome != wire.OutcomeFail {
			c.wrong("an acquire of a user that has closed its lock: result: outcome is %q: want fail", r.Outcome)
		}
	}
	return c.stop(ctx)
}

// points checks that a user stops at the points that every client has, and at those that this one announces.
func points(ctx context.Context, c *client) error {
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	for _, point := range append([]string{"acquired", "before-release"}, c.hello.Points...) {
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoArm, Point: point, Action: wire.ActionWait}); err != nil ||
			r.Outcome != wire.OutcomeOK {
			return fmt.Errorf("arm of %s: result: outcome is %q (%s), want ok (%w)", point, r.Outcome, r.Error,
				orNothing(err))
		}
		taken, freed := c.order(wire.Command{Do: wire.DoAcquire}), c.order(wire.Command{Do: wire.DoRelease})
		f, err := c.next(ctx, wire.TypePoint)
		if err != nil {
			return fmt.Errorf("point %s: %w", point, err)
		}
		switch {
		case f.Point.Point != point || f.Point.User != 0:
			c.wrong("point: it is %s of user %d: want %s of user 0", f.Point.Point, f.Point.User, point)
		case point == "acquired" && c.record.count(history.Acquire, history.Ok) == 0:
			c.wrong("point acquired: it came before the event acquire ok, but must follow it")
		}
		if r, err := c.ask(ctx, wire.Command{Do: wire.DoContinue, Point: point}); err != nil ||
			r.Outcome != wire.OutcomeOK {
			return fmt.Errorf("continue at %s: result: outcome is %q (%s), want ok (%w)", point, r.Outcome, r.Error,
				orNothing(err))
		}
		for _, id := range []int{taken, freed} {
			if r, err := c.result(ctx, id); err != nil || r.Outcome != wire.OutcomeOK {
				return fmt.Errorf("after point %s: result: outcome is %q (%s), want ok (%w)", point, r.Outcome,
					r.Error, orNothing(err))
			}
		}
	}
	r, err := c.ask(ctx, wire.Command{Do: wire.DoArm, Point: "acquired", Action: "sing"})
	if err == nil && r.Outcome != wire.OutcomeFail {
		c.wrong("arm with action sing: result: outcome is %q: want fail", r.Outcome)
	}
	return c.stop(ctx)
}

// orNothing returns an error that can be printed even if err is nil.
func orNothing(err error) error {
	if err == nil {
		return errOver
	}
	return err
}

// death checks that the process ends at the point at which it has to die.
func death(ctx context.Context, c *client) error {
	if err := c.begin(ctx, nil); err != nil {
		return err
	}
	if _, err := c.ask(ctx, wire.Command{Do: wire.DoArm, Point: "acquired", Action: wire.ActionDie}); err != nil {
		return err
	}
	c.order(wire.Command{Do: wire.DoAcquire})
	if _, err := c.next(ctx, wire.TypePoint); err != nil {
		return fmt.Errorf("point acquired: %w", err)
	}
	if c.record.count(history.Acquire, history.Ok) == 0 {
		c.wrong("point acquired: it came before the event acquire ok, which is lost with the process")
	}
	return c.ends(ctx, "it should have died at a point", 2*time.Second)
}

// workload has four users count for two seconds.
func workload(ctx context.Context, c *client) error {
	if err := c.begin(ctx, &wire.Workload{
		Use: "counter", Users: 4, Total: 4,
		Params: []byte(`{"locks":2,"hold":1000000}`),
	}); err != nil {
		return err
	}
	from := now() + int64(300*time.Millisecond)
	c.send(wire.Frame{Type: wire.TypeGo, Go: &wire.Go{Time: from}})
	select {
	case <-time.After(2300 * time.Millisecond):
	case <-c.ended:
	case <-ctx.Done():
	}
	if err := c.stop(ctx); err != nil {
		return err
	}
	grants := c.record.granted()
	if len(grants) == 0 {
		return fmt.Errorf("no user was granted a lock in two seconds: %s", strings.Join(c.causes(), "; "))
	}
	if first := grants[0]; first.Value < from {
		return fmt.Errorf("event %d (acquire ok): its request was sent %v before the time in go", first.Seq,
			time.Duration(from-first.Value))
	}
	if int64(len(grants)) != c.done.Cycles {
		return fmt.Errorf("done: cycles is %d, but %d grants were recorded", c.done.Cycles, len(grants))
	}
	return promises(grants, c.start.TTL)
}
