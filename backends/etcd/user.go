package etcd

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// grace is how long a call may go on after its caller gave up: an answer within that time makes the outcome certain.
const grace = 500 * time.Millisecond

// user is the common part of etcd's locks: one user's session, replaced when it is no longer usable, and the grants
// that the user holds.
type user struct {
	conn    *connection
	session *session
	held    map[string]*held // by id
}

// held is a grant that was neither released nor given up.
type held struct {
	key      string // of the grant, under the session's lease
	revision int64  // at which it was created
	session  *session
	unlock   func(ctx context.Context) error
	over     chan struct{} // closed when the user gives it back
}

// begin prepares an acquire. Its errors are certain.
func (u *user) begin(ctx context.Context, r lock.Request) (*session, error) {
	if r.TTL != u.conn.access.TTL {
		return nil, fmt.Errorf("%w: ttl %s requested, but the session has %s", lock.ErrNotSent, r.TTL,
			u.conn.access.TTL)
	}
	s, err := u.live(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w, there is no session: %w", lock.ErrNotSent, err)
	}
	lock.At(ctx, "before-lock")
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return s, nil
}

// exclusively is begin for locks that have only exclusive mode.
func (u *user) exclusively(ctx context.Context, r lock.Request) (*session, error) {
	if r.Mode != lock.Exclusive {
		return nil, fmt.Errorf("%w: lock %s is exclusive only", lock.ErrNotSent, u.conn.access.Lock)
	}
	return u.begin(ctx, r)
}

// live returns the user's session, or a new one if the old one is no longer usable.
func (u *user) live(ctx context.Context) (*session, error) {
	if u.session != nil && u.session.usable() {
		return u.session, nil
	}
	u.discard()
	s, err := u.conn.next(ctx)
	if err != nil {
		return nil, err
	}
	u.session = s
	return s, nil
}

// discard gives the session up. Its keep-alive ends at once. The revocation runs in the background, because the
// service may be unreachable; the lease expires without it.
func (u *user) discard() {
	s := u.session
	u.session = nil
	if s == nil {
		return
	}
	s.inner.Orphan()
	go func() { _ = s.end(context.WithoutCancel(u.conn.client.Ctx())) }()
}

// grantID returns a grant's id: the key alone is the same for all grants of one session.
func grantID(key string, revision int64) string { return fmt.Sprintf("%s@%d", key, revision) }

// granted returns the grant of h, and keeps it.
func (u *user) granted(r lock.Request, issued time.Time, token lock.Token, h *held) lock.Grant {
	valid, _ := h.session.validity()
	h.over = make(chan struct{})
	g := lock.Grant{
		Lock: r.Lock, Mode: r.Mode, ID: grantID(h.key, h.revision), Token: token, Issued: issued, ValidUntil: valid,
	}
	u.held[g.ID] = h
	return g
}

// Release gives the grant back. If the outcome is unknown, it gives up the session too: its keep-alive would hold the
// lock for ever.
func (u *user) Release(ctx context.Context, g lock.Grant) error {
	lock.At(ctx, "before-unlock")
	h, ok := u.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	delete(u.held, g.ID)
	close(h.over)
	bounded, done := context.WithTimeout(ctx, u.conn.params.Timeout)
	defer done()
	if err := h.unlock(bounded); err != nil {
		if h.session == u.session {
			u.discard()
		}
		return fmt.Errorf("etcd unlock: %w", err)
	}
	lock.At(ctx, "unlock-done")
	return nil
}

// Check reads the key.
func (u *user) Check(ctx context.Context, g lock.Grant) error {
	h, revision, err := u.standing(ctx, g)
	if err == nil && revision != h.revision {
		err = fmt.Errorf("%w: %s is gone", lock.ErrNotHeld, h.key)
	}
	return err
}

// standing returns the grant's record, and the revision at which the server says its key was created.
func (u *user) standing(ctx context.Context, g lock.Grant) (h *held, revision int64, err error) {
	h, ok := u.held[g.ID]
	if !ok {
		return nil, 0, fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	resp, err := u.conn.kv().Get(ctx, h.key)
	if err != nil {
		return h, 0, fmt.Errorf("get %s: %w", h.key, err)
	}
	if len(resp.Kvs) == 0 {
		return h, 0, fmt.Errorf("%w: %s is gone", lock.ErrNotHeld, h.key)
	}
	return h, resp.Kvs[0].CreateRevision, nil
}

// Watch reports each answered keep-alive and the end of the session.
func (u *user) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	h, ok := u.held[g.ID]
	if !ok {
		return backends.Unwatched()
	}
	s := backends.HeldGrant{Validity: h.session.validity, Lost: h.session.inner.Done(), Over: h.over}
	return s.Watch(ctx, g.ValidUntil)
}

// Close ends the session, and with it everything that the user holds. A shared session ends with the connection.
func (u *user) Close() error { return u.close(context.WithoutCancel(u.conn.client.Ctx())) }

// close is Close with a limit for the request that ends the session.
func (u *user) close(ctx context.Context) error {
	for id, h := range u.held {
		delete(u.held, id)
		close(h.over)
	}
	s := u.session
	u.session = nil
	if s == nil || u.conn.params.SharedSession {
		return nil
	}
	return s.end(ctx)
}

// kv returns the client's KV with a deadline for each call.
func (c *connection) kv() clientv3.KV { return boundedKV{KV: c.client.KV, timeout: c.params.Timeout} }
