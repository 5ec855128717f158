package conformance

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// distant is a user whose link to the service can be silenced.
type distant struct {
	lock.Locker
	gate *gate // nil if there is no network
}

// distant returns a user with its own connection through a gate.
func (b *bench) distant(ctx context.Context) (distant, error) {
	if b.o.Backend.InProcess {
		l, err := b.user(ctx)
		return distant{Locker: l}, err
	}
	if b.o.Direct != "" {
		return distant{}, fmt.Errorf("%w: %s", errSkip, b.o.Direct)
	}
	access, g, err := openGate(b.o, b.name)
	if err != nil {
		return distant{}, err
	}
	b.later(g.close)
	conn, err := b.lock.Dial(ctx, access)
	if err != nil {
		return distant{}, fmt.Errorf("dial through the gate: %w", err)
	}
	b.later(conn.Close)
	b.later(func() error { g.resume(); return nil }) // closing a silenced user would wait for its timeouts
	l, err := b.userOf(ctx, conn)
	return distant{Locker: l, gate: g}, err
}

// Muter is a Locker of a service without a network that renews grants in the background. Mute stops the renewals, or
// lets them go on.
type Muter interface{ Mute(silent bool) }

// silence silences the user. Without a network a user is silent as long as it makes no call, and nothing renews its
// grants.
func (d distant) silence() {
	if d.gate != nil {
		d.gate.stall()
	} else if m, ok := d.Locker.(Muter); ok {
		m.Mute(true)
	}
}

// silenceOrCut ends the user's grant: by silence if grants expire, otherwise by closing its connection. The returned
// function brings the user back.
func (d distant) silenceOrCut(l backends.Lock) (back func()) {
	if l.Offers.Expires || d.gate == nil {
		d.silence()
		return d.speak
	}
	d.gate.setRefuse(true)
	return func() { d.gate.setRefuse(false) }
}

// speak ends the silence.
func (d distant) speak() {
	if d.gate != nil {
		d.gate.resume()
	} else if m, ok := d.Locker.(Muter); ok {
		m.Mute(false)
	}
}

// distantHolder returns a distant user who has the lock, its grant, and another user.
func (b *bench) distantHolder(ctx context.Context) (a distant, g lock.Grant, other lock.Locker, err error) {
	if a, err = b.distant(ctx); err != nil {
		return a, g, nil, err
	}
	if other, err = b.user(ctx); err != nil {
		return a, g, nil, err
	}
	g, err = b.grantWithin(ctx, a, soon, "a free lock")
	return a, g, other, err
}
