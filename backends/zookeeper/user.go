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

// root returns the parent of all locks.
func (k keyspace) root() string {
	if k == "" {
		return "/lockquake"
	}
	return strings.TrimSuffix(string(k), "/")
}

// parent returns the node under which a lock is kept.
func (k keyspace) parent(name string) string { return k.root() + "/" + url.PathEscape(name) }

// access returns who may use the created nodes: users with this login, or anyone if there is none.
func access(l node.Login) []zk.ACL {
	if l.User != "" {
		return zk.AuthACL(zk.PermAll)
	}
	return zk.WorldACL(zk.PermAll)
}

// offers returns what all locks of this package have in common.
func offers() backends.Offers {
	return backends.Offers{
		Blocking: true, Try: true, Renewal: "background", LossSignal: true, Token: backends.TokenService,
		Reentrant: "no", Fair: true, Expires: true,
	}
}

// minTTL is two ticks of the default length; servers raise shorter sessions to that.
const minTTL = 400 * time.Millisecond

// recovery adds up three times: the dead holder's session; its whole length again, which a new leader gives every
// session if it takes over just before the end; and the election. The election begins when followers leave an
// unresponsive leader, after lag.
func recovery(ttl time.Duration, p LockParams) time.Duration {
	return 2*ttl + 3*time.Second + 2*max(0, p.Lag-defaults().derived().Lag)
}

// user is the common part of this package's lockers: one user's session, and the grants under it.
type user struct {
	conn    *connection
	session *session
	held    map[string]*held // by id
}

// held is a grant that was neither released nor given up.
type held struct {
	path    string   // its node; "" if the library does not say
	library *zk.Lock // for the library's lock
	session *session
	over    chan struct{} // closed when the user gives it back
}

// live returns the user's session, or a new one if the old one is no longer usable.
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

// begin prepares an acquire.
func (u *user) begin(ctx context.Context, r lock.Request, point string) (*session, error) {
	if r.TTL != u.conn.access.TTL {
		return nil, fmt.Errorf("%w: ttl %s requested, but the session has %s", lock.ErrNotSent, r.TTL,
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

// grant returns the grant of a node that was created by c.
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

// grantID returns a grant's id: the transaction that created its node.
func grantID(name string, czxid int64) string { return fmt.Sprintf("%s@%#x", name, czxid) }

// failed classifies an error of an acquire. before is the number of create requests when the acquire began. It gives
// the session up unless the service answered: a node of unknown existence would hold the lock as long as the session
// lives.
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

// refusals begin below this code (KeeperException.Code, APIERROR); codes above it are system errors.
const refusals = -100

// release removes the grant's node. A request without an answer ends the session, and with it the node.
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

// ended returns the error for a grant whose session had ended before: the grant is certainly not held if the service
// does not know the session.
func (h *held) ended(ctx context.Context, why error) error {
	ctx, cancel := context.WithTimeout(ctx, h.session.set.timeout)
	defer cancel()
	if h.session.gone(ctx) {
		return fmt.Errorf("%w: %w", lock.ErrNotHeld, why)
	}
	return why
}

// remove deletes a node at any version.
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

// Close ends the session, and with it everything that the user holds. A shared session ends with the connection.
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
