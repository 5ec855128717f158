package conformance

import (
	"bytes"
	"errors"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// network is where gates listen and how they reach the service.
type network interface {
	Listen() (net.Listener, error)
	Dial(address string) (net.Conn, error)
}

// loopback is TCP on this machine.
type loopback struct{}

func (loopback) Listen() (net.Listener, error)         { return net.Listen("tcp4", "127.0.0.1:0") }
func (loopback) Dial(address string) (net.Conn, error) { return net.Dial("tcp", address) }

// gate is a proxy in front of every endpoint of a service, for one client. It can hold back all bytes, or all
// requests after the next one. It can delay replies, cut a connection between a request and its reply, and refuse
// connections.
type gate struct {
	mu      sync.Mutex
	open    chan struct{} // closed while bytes may pass
	late    time.Duration // by how much replies come late
	name    []byte        // the lock's; only requests that contain it count
	came    int           // how many requests there were, passed or held back
	left    int           // how many more replies to cut off
	single  bool          // the next request passes, and all after it wait
	later   chan struct{} // closed when those may go on; nil while none waits
	hits    int
	hitAt   time.Time
	refuse  bool
	conns   map[net.Conn]struct{}
	proxies []net.Listener
	closed  bool
	network network
}

// openGate starts a proxy for each endpoint and returns the access that goes through them. It recognizes a request by
// the name of its lock.
func openGate(o Options, name string) (backends.Access, *gate, error) {
	g := &gate{name: []byte(name), open: make(chan struct{}), conns: map[net.Conn]struct{}{}, network: o.network}
	if g.network == nil {
		g.network = loopback{}
	}
	close(g.open)
	a := o.Access
	through := a
	through.Nodes, through.Via = nil, map[string]string{}
	for _, n := range a.Nodes {
		n.Addresses = maps.Clone(n.Addresses)
		for port, address := range n.Addresses {
			l, err := g.network.Listen()
			if err != nil {
				return a, nil, errors.Join(err, g.close())
			}
			g.proxies = append(g.proxies, l)
			n.Addresses[port], through.Via[address] = l.Addr().String(), l.Addr().String()
			go g.serve(l, address)
		}
		through.Nodes = append(through.Nodes, n)
	}
	return through, g, nil
}

func (g *gate) serve(l net.Listener, to string) {
	for {
		client, err := l.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		refuse := g.refuse
		g.mu.Unlock()
		if refuse {
			reset(client)
			continue
		}
		go g.join(client, to)
	}
}

// reset closes a connection so that the other side notices at once.
func reset(c net.Conn) {
	if t, ok := c.(*net.TCPConn); ok {
		_ = t.SetLinger(0)
	}
	_ = c.Close()
}

// join passes bytes both ways until one side ends.
func (g *gate) join(client net.Conn, to string) {
	server, err := g.network.Dial(to)
	if err != nil {
		reset(client)
		return
	}
	g.mu.Lock()
	if g.closed || g.refuse { // also if that was set while the server was dialled
		g.mu.Unlock()
		reset(client)
		reset(server)
		return
	}
	g.conns[client], g.conns[server] = struct{}{}, struct{}{}
	g.mu.Unlock()
	l := &link{gate: g, client: client, server: server}
	go l.pass(client, server, g.arrived, l.request)
	l.pass(server, client, g.lateness, l.reply)
	g.mu.Lock()
	delete(g.conns, client)
	delete(g.conns, server)
	g.mu.Unlock()
}

// link is one proxied connection.
type link struct {
	gate           *gate
	client, server net.Conn
	mu             sync.Mutex
	doomed         bool // the next reply is cut off
}

// piece is the result of one read.
type piece struct {
	bytes []byte
	due   time.Time // when to forward it
}

// inFlight is how many pieces one direction of a connection buffers before it stops reading.
const inFlight = 1024

// pass copies until an error. late returns the delay of a piece at its arrival; seen reports whether its bytes may go
// on. Reading continues while a piece waits, so that all are delayed equally, however many there are.
func (l *link) pass(from, to net.Conn, late func([]byte) time.Duration, seen func([]byte) bool) {
	pieces := make(chan piece, inFlight)
	go func() {
		defer close(pieces)
		buf := make([]byte, 32<<10)
		for {
			n, err := from.Read(buf)
			if err != nil {
				return
			}
			pieces <- piece{bytes: bytes.Clone(buf[:n]), due: time.Now().Add(late(buf[:n]))}
		}
	}()
	whole := true
	for p := range pieces { // drain it, so that the reader never blocks
		if !whole {
			continue
		}
		time.Sleep(time.Until(p.due))
		l.gate.wait()
		if whole = seen(p.bytes); whole {
			_, err := to.Write(p.bytes)
			whole = err == nil
		}
		if !whole {
			reset(from)
			reset(to)
		}
	}
	reset(from)
	reset(to)
}

// arrived counts the requests. They are never delayed.
func (g *gate) arrived(b []byte) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	if bytes.Contains(b, g.name) {
		g.came++
	}
	return 0
}

// requests returns how many have come.
func (g *gate) requests() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.came
}

// request looks for the request whose reply is to be cut off, and holds back everything after the one that passes.
func (l *link) request(b []byte) bool {
	g := l.gate
	g.mu.Lock()
	if later := g.later; later != nil {
		g.mu.Unlock()
		<-later
		g.mu.Lock()
	} else if g.single && bytes.Contains(b, g.name) {
		g.single, g.later = false, make(chan struct{})
	}
	hit := g.left > 0 && bytes.Contains(b, g.name)
	if hit {
		g.left--
		g.hits++
		g.hitAt = time.Now()
	}
	g.mu.Unlock()
	if hit {
		l.mu.Lock()
		l.doomed = true
		l.mu.Unlock()
	}
	return true
}

// reply closes a doomed connection at the first bytes that come back.
func (l *link) reply([]byte) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.doomed
}

// lateness returns the delay of a reply that arrives now.
func (g *gate) lateness([]byte) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.late
}

// answerLate delays every reply by d from now on.
func (g *gate) answerLate(d time.Duration) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.late = d
}

// wait blocks while bytes are held back.
func (g *gate) wait() {
	g.mu.Lock()
	open := g.open
	g.mu.Unlock()
	<-open
}

// stall holds back all bytes in both directions.
func (g *gate) stall() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
		if !g.closed {
			g.open = make(chan struct{})
		}
	default:
	}
}

// resume lets the held bytes go on.
func (g *gate) resume() {
	g.mu.Lock()
	defer g.mu.Unlock()
	select {
	case <-g.open:
	default:
		close(g.open)
	}
}

// passOne forwards the next request and holds back everything after it. Replies pass.
func (g *gate) passOne() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.single = true
}

// passAll lets the requests go on that passOne held back, and reports whether the one to pass had come.
func (g *gate) passAll() (came bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	came = g.later != nil
	g.single = false
	if g.later != nil {
		close(g.later)
		g.later = nil
	}
	return came
}

// cutReplies forwards the next n requests and cuts their connections before the replies.
func (g *gate) cutReplies(n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.left, g.hits = n, 0
}

// cut returns when the last request came whose reply was to be cut off, and how many came since cutReplies.
func (g *gate) cut() (last time.Time, n int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.hitAt, g.hits
}

// setRefuse makes the gate reset new connections, and the existing ones at the moment it is turned on.
func (g *gate) setRefuse(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.refuse = on
	if on {
		for c := range g.conns {
			reset(c)
		}
	}
}

// close closes all connections and proxies.
func (g *gate) close() error {
	g.resume()
	g.passAll()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
	var errs []error
	for _, l := range g.proxies {
		errs = append(errs, l.Close())
	}
	for c := range g.conns {
		reset(c)
	}
	return errors.Join(errs...)
}
