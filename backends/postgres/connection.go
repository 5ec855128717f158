package postgres

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// clientRole is the role of clients. It is not a superuser, so the connections that the server reserves stay free for
// the supervisor.
const clientRole = "locker"

// connection is one client process: it opens a session for each user.
type connection struct {
	access  backends.Access
	params  LockParams
	address string
	locker  func(ctx context.Context, user int) (lock.Locker, error)

	sharing sync.Mutex
	shared  *session // of all users, if they share one
}

func newConnection(a backends.Access) (*connection, error) {
	p, err := lockParams(a.Params)
	if err != nil {
		return nil, err
	}
	addresses := a.Addresses(Port)
	if len(addresses) != 1 {
		return nil, fmt.Errorf("postgres: %d addresses of port %q; one is needed", len(addresses), Port)
	}
	return &connection{access: a, params: p, address: addresses[0]}, nil
}

// Locker returns a locker for one user, with its own session, because advisory locks are re-entrant within a session.
func (c *connection) Locker(ctx context.Context, user int) (lock.Locker, error) {
	return c.locker(ctx, user)
}

// Close ends the shared session; the users close their own.
func (c *connection) Close() error {
	if c.shared != nil {
		c.shared.close()
	}
	return nil
}

// firstConnect is how long a user may take to connect when its client starts. All users connect at once then, and
// each password costs both sides some milliseconds of CPU time. No load is waiting yet.
const firstConnect = 10 * time.Second

// first opens a user's first session.
func (c *connection) first(ctx context.Context, user int) (*session, error) {
	return c.open(ctx, user, max(c.params.Timeout, firstConnect))
}

// again opens a session for a user whose last one has ended.
func (c *connection) again(ctx context.Context, user int) (*session, error) {
	return c.open(ctx, user, c.params.Timeout)
}

// open opens a session, or returns the one that all users of the process share.
func (c *connection) open(ctx context.Context, user int, within time.Duration) (*session, error) {
	if !c.params.SharedConnection {
		return c.openOne(ctx, user, within)
	}
	c.sharing.Lock()
	defer c.sharing.Unlock()
	if c.shared != nil && !c.shared.lost() {
		return c.shared, nil
	}
	s, err := c.openOne(ctx, user, within)
	if err == nil {
		s.turn = make(chan struct{}, 1)
	}
	c.shared = s
	return s, err
}

func (c *connection) openOne(ctx context.Context, user int, within time.Duration) (*session, error) {
	probe := max(time.Second, c.params.TCPTimeout/8)
	dialer := net.Dialer{
		Timeout: within,
		KeepAliveConfig: net.KeepAliveConfig{
			Enable: true, Idle: c.params.TCPTimeout / 2, Interval: probe,
			Count: max(1, int(c.params.TCPTimeout/2/probe)),
		},
	}
	return open(ctx, target{
		address: c.address, login: asClient(c.access.Login), keys: keyspace(c.access.Prefix),
		database: c.params.Database,
		name:     sessionName(c.access, user), dial: dialer.DialContext, timeout: within,
	})
}

// asClient returns the login, with the role of clients if it names none.
func asClient(l node.Login) node.Login {
	l.User = cmp.Or(l.User, clientRole)
	return l
}

// sessionPrefix begins the application_name of every lock user's session.
const sessionPrefix = "lockquake "

// sessionName returns the name under which the server's list of sessions shows a user's session.
func sessionName(a backends.Access, user int) string {
	return fmt.Sprintf("%s%s %d/%d", sessionPrefix, a.Run, a.Client, user)
}

// sessionUser parses a session's name; ok is false if it is not a lock user's.
func sessionUser(name string) (user history.User, ok bool) {
	rest, ok := strings.CutPrefix(name, sessionPrefix)
	if !ok {
		return 0, false
	}
	client, number, ok := strings.Cut(rest[strings.LastIndexByte(rest, ' ')+1:], "/")
	if !ok {
		return 0, false
	}
	c, err := strconv.Atoi(client)
	if err != nil {
		return 0, false
	}
	u, err := strconv.Atoi(number)
	return history.MakeUser(c, u), err == nil
}
