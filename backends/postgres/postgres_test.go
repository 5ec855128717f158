package postgres

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/node"
	"github.com/lockquake/lockquake/lock"
)

// TestParams: settings that the server or the lock does not support are rejected, and the error names the key.
func TestParams(t *testing.T) {
	for _, c := range []struct {
		set  func(*Params)
		want string
	}{
		{func(*Params) {}, ""},
		{func(p *Params) { p.SynchronousCommit = "local" }, ""},
		{func(p *Params) { p.SynchronousCommit = "false" }, "synchronous_commit"},
		{func(p *Params) { p.Timeout = 1000 }, "timeout"},
		{func(p *Params) { p.TCPTimeout = time.Second }, "tcp_timeout"},
		{func(p *Params) { p.Retry.Delay = 10 }, "retry.delay"},
	} {
		_, err := newTopology(topology.Common{TTL: time.Second}, func(into any) error { c.set(into.(*Params)); return nil })
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("error is %v; it should name %q", err, c.want)
		}
	}
	sharing := func(into any) error { into.(*Params).SharedConnection = true; return nil }
	if _, err := newTopology(topology.Common{Lock: "lease"}, sharing); err == nil || !strings.Contains(err.Error(), "shared_connection") {
		t.Errorf("the lease has no connection to share: %v", err)
	}
	if _, err := newTopology(topology.Common{Lock: advisoryName}, sharing); err != nil {
		t.Error(err)
	}
	if _, err := newTopology(topology.Common{Nodes: 3}, func(any) error { return nil }); err == nil {
		t.Error("three nodes are taken for one server")
	}
}

// TestSettings compares the server's settings with the parameters.
func TestSettings(t *testing.T) {
	p := defaults()
	p.SynchronousCommit, p.TCPTimeout = "off", 3*time.Second
	argv := p.command(node.Place{Dir: "/data", Secret: "/secret"}, "10.1.2.3:7000")
	if alone := p.command(node.Place{}, "127.0.0.1:7000"); !slices.Contains(alone, "listen_addresses=127.0.0.1") {
		t.Errorf("where it shares the machine's network it listens elsewhere than on the loopback address: %q", alone)
	}
	for _, want := range []string{
		"/secret", "listen_addresses=0.0.0.0",
		"port=7000", "synchronous_commit=off", "track_wal_io_timing=on", "tcp_user_timeout=3000", "tcp_keepalives_idle=1", "tcp_keepalives_interval=1",
	} {
		if !slices.Contains(argv, want) {
			t.Errorf("%q is not among the settings %q", want, argv[5:])
		}
	}
}

// TestSessionName reads back what the server shows of a session.
func TestSessionName(t *testing.T) {
	name := sessionName(backends.Access{Run: "0a1b", Client: 7}, 31)
	if u, ok := sessionUser(name); !ok || u != history.MakeUser(7, 31) {
		t.Errorf("%q is the session of %v, %t", name, u, ok)
	}
	for _, other := range []string{"", "psql", "lockquake", "lockquake 0a1b", "lockquake 0a1b 1/x", "lockquake 0a1b x/1"} {
		if u, ok := sessionUser(other); ok {
			t.Errorf("%q is taken for the session of %v", other, u)
		}
	}
}

// TestClassify says what each error of a statement means.
func TestClassify(t *testing.T) {
	now := time.Now()
	answer := func(severity, code string) error {
		return &pgconn.PgError{SeverityUnlocalized: severity, Code: code}
	}
	broken := errors.New("unexpected EOF")
	for name, c := range map[string]struct {
		err  error
		sent time.Time
		want error // nil: the outcome is unknown
	}{
		"cancelled":                   {answer("ERROR", codeQueryCancelled), now, lock.ErrRefused},
		"would have to wait":          {answer("ERROR", codeLockNotAvailable), now, lock.ErrRefused},
		"deadlock":                    {answer("ERROR", "40P01"), now, lock.ErrRefused},
		"the session was terminated":  {answer("FATAL", "57P01"), now, nil},
		"broken before anything left": {broken, time.Time{}, lock.ErrNotSent},
		"broken afterwards":           {broken, now, nil},
	} {
		got := classify(c.err, c.sent)
		if c.want == nil && lock.Certain(got) || c.want != nil && !errors.Is(got, c.want) || !errors.Is(got, c.err) {
			t.Errorf("%s: %v", name, got)
		}
	}
	if err := classify(pgx.ErrNoRows, now); !errors.Is(err, pgx.ErrNoRows) || lock.Certain(err) {
		t.Errorf("no rows: %v", err)
	}
}

// TestServerEndedStatementIsNotContended: a statement that the server ended by itself, for example after its lock_timeout, is an
// error. It does not mean that the lock is held.
func TestServerEndedStatementIsNotContended(t *testing.T) {
	stopped, stop := context.WithCancel(t.Context())
	stop()
	timeout := &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: codeLockNotAvailable}
	for _, c := range []struct {
		name string
		ctx  context.Context
		err  error
		want bool
	}{
		{"the server, by its lock_timeout", t.Context(), timeout, false},
		{"the user", stopped, timeout, true},
		{"a deadlock, as the user gave up", stopped, &pgconn.PgError{SeverityUnlocalized: "ERROR", Code: "40P01"}, false},
		{"nobody", stopped, nil, false},
	} {
		if got := withdrawn(c.ctx, c.err); got != c.want {
			t.Errorf("%s: %t", c.name, got)
		}
	}
}

// server speaks as much of the protocol as a session needs: it accepts every login, and leaves statements to answer.
func server(t *testing.T, answer func(net.Conn)) string {
	t.Helper()
	return conformance.Listen(t, func(c net.Conn) { greet(c, answer) })
}

func greet(c net.Conn, answer func(net.Conn)) {
	defer c.Close()
	b := pgproto3.NewBackend(c, c)
	if m, err := b.ReceiveStartupMessage(); err != nil {
		return
	} else if _, ok := m.(*pgproto3.StartupMessage); !ok {
		return // a cancel request: the other side only waits for the end
	}
	b.Send(&pgproto3.AuthenticationOk{})
	b.Send(&pgproto3.BackendKeyData{ProcessID: 1, SecretKey: []byte{0, 0, 0, 1}})
	b.Send(&pgproto3.ReadyForQuery{TxStatus: 'I'})
	if b.Flush() != nil {
		return
	}
	if _, err := b.Receive(); err != nil {
		return
	}
	answer(c)
	_, _ = b.Receive() // until the other side gives up
}

// userOf connects a user of a lock to a server.
func userOf(t *testing.T, address, lockName string) lock.Locker {
	t.Helper()
	l, _ := Backend().Lock(lockName)
	conn, err := l.Dial(t.Context(), backends.Access{
		Backend: "postgres", Lock: lockName, TTL: time.Second, Run: "unit",
		Nodes:  []backends.Endpoint{{Name: serverName, Addresses: map[string]string{Port: address}}},
		Params: []byte(`{"timeout_ns": 10000000000}`),
	})
	if err != nil {
		t.Fatal(err)
	}
	u, err := conn.Locker(t.Context(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = u.Close() })
	return u
}

// TestSilenceIsUnknown: the server takes the request and does not answer, or hangs up.
func TestSilenceIsUnknown(t *testing.T) {
	for name, hangsUp := range map[string]bool{"silent": false, "hangs up": true} {
		for _, l := range []string{leaseName, advisoryName, rowName} {
			t.Run(name+"/"+l, func(t *testing.T) {
				t.Parallel()
				ctx, giveUp := context.WithCancel(t.Context())
				defer giveUp()
				u := userOf(t, server(t, func(c net.Conn) {
					if hangsUp {
						_ = c.Close()
					} else {
						giveUp()
					}
				}), l)
				if _, err := u.Acquire(ctx, lock.Request{Lock: "a", TTL: time.Second}); err == nil || lock.Certain(err) {
					t.Errorf("acquire: %v", err)
				}
			})
		}
	}
}

// TestRefusedIsCertain: the server is gone, so no request can have reached it.
func TestRefusedIsCertain(t *testing.T) {
	for _, l := range []string{leaseName, advisoryName, rowName} {
		t.Run(l, func(t *testing.T) {
			address := server(t, func(net.Conn) {})
			u := userOf(t, address, l)
			switch x := u.(type) {
			case *leaser:
				x.session.close()
				x.conn.address = "127.0.0.1:1" // no listener
			case *sessionHolder:
				x.sessions[0].close()
				x.conn.address = "127.0.0.1:1"
			}
			if _, err := u.(lock.TryAcquirer).TryAcquire(t.Context(), lock.Request{Lock: "a", TTL: time.Second}); !errors.Is(err, lock.ErrNotSent) {
				t.Errorf("try: %v", err)
			}
		})
	}
}

// TestLossIsReported: the server closes a session between two statements.
func TestLossIsReported(t *testing.T) {
	hangUp := make(chan struct{})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go func() { <-hangUp; _ = c.Close() }()
		greet(c, func(net.Conn) {})
	}()
	u := userOf(t, l.Addr().String(), advisoryName).(*sessionHolder)
	g := lock.Grant{Lock: "a", ID: "g"}
	u.held[g.ID] = &held{session: u.sessions[0], over: make(chan struct{})}
	changes := u.Watch(t.Context(), g)
	close(hangUp)
	if c, ok := <-changes; !ok || !c.Lost {
		t.Errorf("change %+v, %t", c, ok)
	}
}
