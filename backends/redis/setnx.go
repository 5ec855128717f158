package redis

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// setNx is the oldest recipe: SETNX takes the key and DEL gives it back. It is wrong on purpose. Nothing ever ends the hold of who died,
// lost its connection in the middle or forgot; and DEL asks nobody whose key it is. The Redis documentation keeps it as history (SETNX,
// "Design pattern: Locking with SETNX"). Of the conformance suite it fails the checks that wait for an expiry, and release-forged.
func setNx() backends.Lock {
	return backends.Lock{
		Name:  "setnx",
		Doc:   "SETNX, released by DEL (redis.io, SETNX, the design pattern of old).",
		Wrong: "the key never expires: a holder that crashes blocks the lock for ever; and a release deletes the key whosever it is",
		Found: backends.Found{
			Checks: []string{"expiry", "expiry-process", "release-stale", "errors-acquire", "release-forged", "release-point"},
			Stories: []backends.Finding{
				{Story: "crash", Shows: "a stuck lock", Reasons: []string{"stuck_locks 0: found"}},
				{Story: "slow-replies", Shows: "an orphan that stays", Reasons: []string{"orphan_age_ms <"}},
			},
		},
		Offers: backends.Offers{
			Try: true, Renewal: "none", Token: backends.TokenNone, Reentrant: "no", Expires: false,
		},
		Points:   []string{"before-setnx", "setnx-done", "before-delete", "release-done"},
		Recovery: recovery, // what its users hope for; nothing delivers it
		Dial:     dialRecipe(means{(*recipe).takeForEver, (*recipe).releaseAny}),
	}
}

// takeForEver is an attempt without an expiry.
func (l *recipe) takeForEver(ctx context.Context, r lock.Request) (lock.Grant, error) {
	g, err := l.setNx(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	g.ValidUntil = lock.Endless()
	l.keep(g, struct{}{})
	return g, nil
}

// setNx sends SETNX.
func (l *recipe) setNx(ctx context.Context, r lock.Request) (lock.Grant, error) {
	o := newOwner()
	lock.At(ctx, "before-setnx")
	n, err := l.client.Do(ctx, "SETNX", l.keys.key(r.Lock), o).Int()
	if err != nil {
		return lock.Grant{}, fmt.Errorf("SETNX: %w", o.classify(err))
	}
	if n == 0 {
		return lock.Grant{}, contended(r)
	}
	lock.At(ctx, "setnx-done")
	return lock.Grant{Lock: r.Lock, Mode: lock.Exclusive, ID: o.id, Token: lock.NoToken, Issued: o.sent}, nil
}

// setNxExpire is SETNX followed by an expiry in a command of its own (PEXPIRE, so that a TTL need not be whole
// seconds). It is wrong on purpose: whoever dies or loses its connection between the two leaves a key that never expires.
// That is why SET learned NX and EX in one command (Redis 2.6.12; the documentation of SETNX names the gap). It is released by
// the script of set-px-lua, so that the gap is all that is wrong with it.
func setNxExpire() backends.Lock {
	return expiring(backends.Lock{
		Name:   "setnx-expire",
		Doc:    "SETNX, then PEXPIRE as a second command (what was done before Redis 2.6.12); a script deletes only one's own.",
		Wrong:  "two commands: a holder that crashes between SETNX and PEXPIRE blocks the lock for ever",
		Found:  backends.FoundIn("crash-setnx-done", "a stuck lock", "stuck_locks 0: found", "errors-acquire"),
		Offers: backends.Offers{Renewal: "none"},
		Points: []string{"before-setnx", "setnx-done", "expire-done", "before-delete", "release-done"},
		Dial:   dialRecipe(means{(*recipe).takeThenExpire, (*recipe).releaseOwn}),
	})
}

// takeThenExpire is an attempt of two commands. Once SETNX was answered no error is certain any more: the key stands.
func (l *recipe) takeThenExpire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	g, err := l.setNx(ctx, r)
	if err != nil {
		return lock.Grant{}, err
	}
	var o owner
	set, err := l.client.PExpire(sending(ctx, &o), l.keys.key(r.Lock), r.TTL).Result()
	if err != nil {
		return lock.Grant{}, fmt.Errorf("PEXPIRE after SETNX: %w", err)
	}
	if !set {
		return lock.Grant{}, fmt.Errorf("%w: the key of %s went between SETNX and PEXPIRE", lock.ErrLost, r.Lock)
	}
	lock.At(ctx, "expire-done")
	g.ValidUntil = backends.Validity(o.sent, r.TTL)
	l.keep(g, struct{}{})
	return g, nil
}
