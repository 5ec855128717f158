package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// keyspace is where locks are kept: below a prefix that begins and ends with "/", or "" for the package's own.
type keyspace string

// root is the parent of all locks.
func (k keyspace) root() string {
	if k == "" {
		return "/lockquake"
	}
	return strings.TrimSuffix(string(k), "/")
}

// parent is the node under which a lock is kept.
func (k keyspace) parent(name string) string { return k.root() + "/" + url.PathEscape(name) }

// access is who may use the nodes that are made: whoever logs in as we do, or anyone.
func access(l node.Login) []zk.ACL {
	if l.User != "" {
		return zk.AuthACL(zk.PermAll)
	}
	return zk.WorldACL(zk.PermAll)
}

// offers is what all locks of this package have in common.
func offers() backends.Offers {
	return backends.Offers{
		Blocking: true, Try: true, Renewal: "background", LossSignal: true, Token: backends.TokenService,
		Reentrant: "no", Fair: true, Expires: true,
	}
}

// minTTL is two ticks of the default length, below which the servers raise every session.
const minTTL = 400 * time.Millisecond

// recovery allows for the session of a dead holder, for a new leader just before its end, which gives every session its
// whole length again, and for the election: that begins when followers let go of a leader that does not answer, after
// lag.
func recovery(ttl time.Duration, p LockParams) time.Duration {
	return 2*ttl + 3*time.Second + 2*max(0, p.Lag-defaults().derived().Lag)
}

// user is what the lockers of this package share: one user's session, and the grants under it.
type user struct {
	conn    *connection
	session *session
	held    map[string]*held // by id
}

// held is a grant that was neither released nor given up.
type held struct {
	path    string   // its node; "" where the library does not tell
	library *zk.Lock // for the library's lock
	session *session
	over    chan struct{} // closed when the user gives it back
}

// live returns the user's session, a new one where the old one is of no use any more.
func (u *user) live(ctx context.Context) (*session, error) {
	if u.session != nil {
		if u.session.usable() {
			return u.session, nil
		}
		u.session.end(errGivenUp)
		u.session = nil
	}
	s, err := u.conn.next(ctx)
	if err != nil {
		return nil, err
	}
	u.session = s
	return s, nil
}

// begin is how every acquire begins.
func (u *user) begin(ctx context.Context, r lock.Request, point string) (*session, error) {
	if r.TTL != u.conn.access.TTL {
		return nil, fmt.Errorf("%w: ttl %s asked for, but the session has %s", lock.ErrNotSent, r.TTL,
			u.conn.access.TTL)
	}
	s, err := u.live(ctx)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	lock.At(ctx, point)
	if err := ctx.Err(); err != nil {
		return nil, fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return s, nil
}

// grant makes the grant of a node that was created by c.
func (u *user) grant(r lock.Request, c creation, h *held) lock.Grant {
	valid, _ := h.session.validity()
	g := lock.Grant{
		Lock: r.Lock, Mode: lock.Exclusive, ID: grantID(r.Lock, c.zxid), Token: lock.Token(c.zxid),
		Issued: c.sent, ValidUntil: valid,
	}
	h.over = make(chan struct{})
	u.held[g.ID] = h
	return g
}

// grantID names a grant by the transaction that made its node.
func grantID(name string, czxid int64) string { return fmt.Sprintf("%s@%#x", name, czxid) }

// failed says what an error means for an acquire that had made no more than before create requests when it began, and
// gives the session up unless the service answered: a node that nobody knows of would hold the lock as long as the
// session lives.
func (u *user) failed(s *session, before int, err error) error {
	made := s.created()
	switch {
	case errors.Is(err, zk.ErrSessionExpired), errors.Is(err, errExpired):
		s.end(errExpired)
		return fmt.Errorf("%w before it was granted: %w", lock.ErrLost, err)
	case made.number > before && made.answered && made.code < refusals:
		return fmt.Errorf("%w: %w", lock.ErrRefused, err)
	}
	s.end(errGivenUp)
	if made := s.created(); made.number == before { // it was not written, and cannot be any more
		return fmt.Errorf("%w: %w", lock.ErrNotSent, err)
	}
	return err
}

// refusals begin below this code (KeeperException.Code, APIERROR); those above are troubles of the system.
const refusals = -100

// release removes what the grant stands for. What is not answered ends the session, and with it the node.
func (u *user) release(ctx context.Context, g lock.Grant, remove func(context.Context, *held) error) error {
	h, ok := u.held[g.ID]
	if !ok {
		return fmt.Errorf("%w: this user has no grant %s", lock.ErrNotHeld, g.ID)
	}
	delete(u.held, g.ID)
	close(h.over)
	if err := h.session.reason(); err != nil {
		return h.ended(ctx, err)
	}
	err := remove(ctx, h)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, zk.ErrNoNode):
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
	case errors.Is(err, zk.ErrSessionExpired), errors.Is(err, errExpired):
		h.session.end(errExpired)
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, err)
	}
	h.session.end(errGivenUp)
	return fmt.Errorf("zookeeper delete: %w", err)
}

// ended says what becomes of a grant whose session was over before it was asked about: it is certainly not held when
// the service knows no such session.
func (h *held) ended(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, h.session.set.timeout)
	defer cancel()
	if h.session.gone(ctx) {
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, why)
	}
	return why
}

// remove deletes a node whatever its version.
func remove(ctx context.Context, s *session, path string) error {
	_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) { return struct{}{}, c.Delete(path, -1) })
	return err
}

// Watch reports each answered request of the session and its end.
func (u *user) Watch(ctx context.Context, g lock.Grant) <-chan lock.Change {
	h, ok := u.held[g.ID]
	if !ok {
		return backends.Unwatched()
	}
	s := backends.HeldGrant{Validity: h.session.validity, Lost: h.session.over, Over: h.over}
	return s.Watch(ctx, g.ValidUntil)
}

// Close ends the session, and with it whatever the user held. One that is shared ends with the connection.
func (u *user) Close() error {
	for id, h := range u.held {
		delete(u.held, id)
		close(h.over)
	}
	s := u.session
	u.session = nil
	if s == nil || u.conn.params.SharedSession || s.reason() != nil {
		return nil
	}
	return s.leave()
}
