package locks

import (
	"context"
	"errors"
	"fmt"
	mathrand "math/rand/v2"
	"time"

	"github.com/go-redsync/redsync/v4"
	syncredis "github.com/go-redsync/redsync/v4/redis"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/lock"
)

// redsyncFive is go-redsync with a pool for each server, as its README shows it. The adapter adds:
//   - one attempt per call of the library: the scenario sets the retry policy
//   - node_timeout as the library's timeout factor, and as the deadline of a release and an extension, which the
//     library does not bound
//   - the validity, from the time before the call minus the drift, 2 ms less than the library's own
//
// Servers are always asked in parallel. Their answers are parsed from the library's errors.
func redsyncFive() backends.Lock {
	return quorumLock(backends.Lock{
		Name:    "redsync",
		Doc:     "go-redsync v4 over a pool for each of the independent servers.",
		Modules: []string{access.GoRedis, "github.com/go-redsync/redsync/v4"},
		Points:  []string{"before-lock", "lock-done", "before-unlock", "unlock-done"},
		Dial:    dialRedsyncFive,
	})
}

// redsyncFiveConnection is one client process's pools.
type redsyncFiveConnection struct {
	*fiveConnection
	library *redsync.Redsync
}

func dialRedsyncFive(_ context.Context, a backends.Access) (backends.Connection, error) {
	c, err := dialFive(a)
	if err != nil {
		return nil, err
	}
	pools := make([]syncredis.Pool, 0, len(c.fleet.clients))
	for _, client := range c.fleet.clients {
		client.AddHook(sentHook{})
		pools = append(pools, goredis.NewPool(client))
	}
	return &redsyncFiveConnection{fiveConnection: c, library: redsync.New(pools...)}, nil
}

// Locker returns a locker for one user. Values are random for each attempt, so users may share connections.
func (c *redsyncFiveConnection) Locker(_ context.Context, user int) (lock.Locker, error) {
	return &redsyncer{
		library: c.library,
		keys:    access.Keyspace(c.access.Prefix),
		params:  c.params,
		nodes:   len(c.fleet.clients),
		random:  backends.Random(c.access.Run, user),
	}, nil
}

// sentHook adds ErrNotSent to the error of a command that was never written to a connection. The library makes its
// commands itself, so their last argument is replaced by an owner with the same text.
type sentHook struct{}

// DialHook changes nothing.
func (sentHook) DialHook(next redis.DialHook) redis.DialHook { return next }

// ProcessHook checks whether the command was sent.
func (sentHook) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		args := cmd.Args()
		last := len(args) - 1
		o := &owner{id: fmt.Sprint(args[last])}
		args[last] = o
		err := next(ctx, cmd)
		if o.answer(true, err) == notSent {
			err = fmt.Errorf("%w: %w", lock.ErrNotSent, err)
			cmd.SetErr(err)
		}
		return err
	}
}

// ProcessPipelineHook changes nothing: the library sends no pipelines.
func (sentHook) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// redsyncer is one user.
type redsyncer struct {
	library *redsync.Redsync
	keys    access.Keyspace
	params  access.QuorumParams
	nodes   int
	random  *mathrand.Rand
	held    held[*redsync.Mutex]
}

// mutex returns the library's object; value is "" for one that is yet to be locked.
func (l *redsyncer) mutex(name, value string, ttl time.Duration) *redsync.Mutex {
	return l.library.NewMutex(l.keys.Key(name),
		redsync.WithValue(value),
		redsync.WithExpiry(ttl),
		redsync.WithDriftFactor(l.params.ClockDrift),
		redsync.WithTimeoutFactor(float64(l.params.NodeTimeout)/float64(ttl)),
	)
}

// Acquire tries until a majority grants the lock.
func (l *redsyncer) Acquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	return l.params.Retry.Poll(ctx, l.random, func(ctx context.Context) (lock.Grant, error) {
		return l.TryAcquire(ctx, r)
	})
}

// TryAcquire makes one attempt on all servers. If the replies came too late it returns ErrContended: the library gave
// the attempt up, and the servers' grants have expired.
func (l *redsyncer) TryAcquire(ctx context.Context, r lock.Request) (lock.Grant, error) {
	m := l.mutex(r.Lock, "", r.TTL)
	lock.At(ctx, "before-lock")
	start := time.Now()
	if err := m.TryLockContext(ctx); err != nil {
		v := voteOf(err, l.nodes)
		if v.count(yes) >= v.quorum() {
			return lock.Grant{}, fmt.Errorf("%w: given up: %v", lock.ErrContended, err)
		}
		return lock.Grant{}, fmt.Errorf("redsync lock: %w", v.refusal(v.quorum()))
	}
	lock.At(ctx, "lock-done")
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: m.Value(), Token: lock.NoToken,
		Issued: start, ValidUntil: lock.Until(l.params.End(start, r.TTL)),
	}
	l.held.keep(g, m)
	return g, nil
}

// Release unlocks on all servers.
func (l *redsyncer) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	m, err := l.held.handle(g)
	if err != nil {
		return err
	}
	bounded, cancel := context.WithTimeout(ctx, l.params.NodeTimeout)
	defer cancel()
	_, err = m.UnlockContext(bounded)
	err = voteOf(err, l.nodes).own()
	if err == nil || errors.Is(err, lock.ErrNotHeld) {
		l.held.drop(g)
		lock.At(ctx, "unlock-done")
	}
	if err != nil {
		return fmt.Errorf("redsync unlock: %w", err)
	}
	return nil
}

// Renew extends on all servers. The library's Extend has one expiry per mutex, so a new one takes over the value.
func (l *redsyncer) Renew(ctx context.Context, g lock.Grant, ttl time.Duration) (lock.Grant, error) {
	if _, err := l.held.handle(g); err != nil {
		return g, err
	}
	m := l.mutex(g.Lock, g.ID, ttl)
	bounded, cancel := context.WithTimeout(ctx, l.params.NodeTimeout)
	defer cancel()
	start := time.Now()
	_, err := m.ExtendContext(bounded)
	if errors.Is(err, redsync.ErrExtendFailed) {
		return g, fmt.Errorf("redsync extend: too late: %w", err)
	}
	if err := voteOf(err, l.nodes).own(); err != nil {
		if errors.Is(err, lock.ErrNotHeld) {
			l.held.drop(g)
		}
		return g, fmt.Errorf("redsync extend: %w", err)
	}
	g.ValidUntil = lock.Until(l.params.End(start, ttl))
	l.held.keep(g, m)
	return g, nil
}

// Close frees what the user may still hold; anything left expires.
func (l *redsyncer) Close() error { return l.held.free(l.params.NodeTimeout, l.Release) }

// voteOf returns the servers' answers that an error of the library contains. The error names, in no order, the
// servers that did not do what was asked; all others did. If a majority had the key with another value, it names only
// these.
func voteOf(err error, nodes int) vote {
	var v vote
	var taken *redsync.ErrTaken
	rest := yes
	switch {
	case errors.As(err, &taken):
		rest = unknown
		for range taken.Nodes {
			v.add(no, nil)
		}
	case !errors.Is(err, redsync.ErrFailed): // ErrFailed means that all did it, but too late
		for _, leaf := range leaves(err) {
			v.add(answerOf(leaf), leaf)
		}
	}
	for len(v.answers) < nodes {
		v.add(rest, nil)
	}
	return v
}

func (v *vote) add(a answer, err error) {
	v.answers, v.errs = append(v.answers, a), append(v.errs, err)
}

// leaves undoes errors.Join.
func leaves(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok { //nolint:errorlint // the outermost one is meant
		var all []error
		for _, e := range joined.Unwrap() {
			all = append(all, leaves(e)...)
		}
		return all
	}
	if err == nil {
		return nil
	}
	return []error{err}
}

// answerOf returns the meaning of one server's error.
func answerOf(err error) answer {
	var taken *redsync.ErrNodeTaken
	var reply redis.Error
	switch {
	case errors.As(err, &taken), errors.Is(err, redsync.ErrLockAlreadyExpired):
		return no
	case errors.As(err, &reply):
		return refused
	case errors.Is(err, lock.ErrNotSent):
		return notSent
	}
	return unknown
}
