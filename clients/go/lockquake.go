// Package lockquake is the half of lockquake's control stream (docs/protocol.md) that every client in Go needs: frames,
// clocks, workloads, events, points. It needs the standard library alone, and is a module of its own: whoever imports
// it keeps the versions of all other modules.
//
// A client is a type with Acquire and Release, and a call of Main:
//
//	func main() { lockquake.Main("my lock", connect) }
//
//	func connect(a *lockquake.Access) (*myLock, error) { ... } // once for each user
//
// docs/clients.md tells more.
package lockquake

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// Lock is one user's lock, with a connection of its own. Its methods are called one at a time. Their contexts end with
// the time that an operation may take; that of Acquire also ends when the client is told to stop.
//
// An error that is one of ErrContended, ErrNotHeld, ErrLost, ErrNotSent and ErrRefused means certainly. After any other
// one nobody knows what was done.
type Lock interface {
	// Acquire takes the lock, or says why not.
	Acquire(ctx context.Context, name string) (Grant, error)
	// Release gives it back.
	Release(ctx context.Context, g Grant) error
}

// What a Lock may do beside; an io.Closer is closed at the end. Its Close alone may be called while another call is under
// way, which then returns, with an error unless it was done.
type (
	// Renewer asks for more time, and returns the new end of the validity. ErrNotHeld and ErrLost say that the grant is
	// gone.
	Renewer interface {
		Renew(ctx context.Context, g Grant) (valid int64, err error)
	}
	// Checker returns ErrNotHeld where the service says that the grant is gone.
	Checker interface {
		Check(ctx context.Context, g Grant) error
	}
	// UnheldReleaser releases a lock that this object does not have. Last is the grant of it that the object gave back
	// last, or nil. The library is asked as by Release, and ErrNotHeld says that it said no.
	UnheldReleaser interface {
		ReleaseUnheld(ctx context.Context, name string, last *Grant) error
	}
	// Watcher arranges for lost to be called when the library says that the grant is gone.
	Watcher interface {
		OnLost(g Grant, lost func())
	}
	// RenewalWatcher arranges for renewed to be called after each renewal that the library made by itself, with the new
	// end of the validity. It counts from when the renewal was sent; Unknown where the library does not say.
	RenewalWatcher interface {
		OnRenewed(g Grant, renewed func(valid int64))
	}
	// Keeper says that a grant lasts while the process lives, though nobody asks for more time, as where a session is
	// kept alive. Keeps is never called.
	Keeper interface {
		Keeps()
	}
	// Hider says that the lock is at another key than the one at which lockquake asks the service for it. Elsewhere is
	// never called.
	Hider interface {
		Elsewhere()
	}
)

// Grant is a lock in hand.
type Grant struct {
	ID     string      // by which the service knows it
	Sent   int64       // when the request was sent that was granted, by Now
	Valid  int64       // end of what was promised, by Now; or Endless, or Unknown
	Token  uint64      // fencing token; 0: none
	Handle interface{} // whatever the author wants to keep
}

// Validities that are no time.
const (
	Endless = math.MaxInt64
	Unknown = math.MinInt64
)

// What certainly is so.
var (
	ErrContended = errors.New("somebody else has the lock") // or the wait for it was given up; nothing was granted
	ErrNotHeld   = errors.New("the service does not have the grant any more")
	ErrLost      = errors.New("the grant was lost while it was in hand")
	ErrNotSent   = errors.New("the request never reached the service")
	ErrRefused   = errors.New("the service answered that it would not do it")
	errFenced    = errors.New("the resource refused the token")
)

// Now reads the host's CLOCK_MONOTONIC in ns: the time base of a run, which no clock fault moves.
func Now() int64 {
	var ts syscall.Timespec
	const monotonic = 1
	// It cannot fail for this clock and a valid pointer.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// Access is how to reach the service.
type Access struct {
	Backend, Lock  string
	TTLNanoseconds int64 `json:"ttl_ns"` // of grants
	Client         int   // index of this process
	User, Password string
	Run            string
	Params         json.RawMessage // of the backend; those that end in _ns are times in ns
	Nodes          []struct {
		Name      string
		Addresses map[string]string
	}
	TLS json.RawMessage
}

// TTL is how long a grant is promised for.
func (a *Access) TTL() time.Duration { return time.Duration(a.TTLNanoseconds) }

// Timeout is that of one request, as the scenario says; else a second.
func (a *Access) Timeout() time.Duration {
	p := struct {
		Timeout time.Duration `json:"timeout_ns"`
	}{time.Second}
	_ = json.Unmarshal(a.Params, &p) // some backends have none
	return p.Timeout
}

// Addresses are those, as host:port, of each server that has a port of that name; most have "client".
func (a *Access) Addresses(port string) (out []string) {
	for _, n := range a.Nodes {
		if address := n.Addresses[port]; address != "" {
			out = append(out, address)
		}
	}
	return out
}

// Valid is the end of a promise of a TTL that was asked for at sent, less the drift that two clocks may have.
func (a *Access) Valid(sent int64) int64 { return sent + a.TTLNanoseconds - a.TTLNanoseconds/100 - 2e6 }

// Grant is one of a TTL.
func (a *Access) Grant(id string, sent int64) Grant {
	return Grant{ID: id, Sent: sent, Valid: a.Valid(sent)}
}

type userKey struct{}

// At announces a point of what the user of ctx does. It costs next to nothing unless it is armed.
func At(ctx context.Context, point string) {
	if u, ok := ctx.Value(userKey{}).(*user); ok && atomic.LoadInt32(&u.armed) > 0 {
		u.reached(point)
	}
}

// Poll asks for the lock at once and then every 10 ms, each time by one request, until it is granted for a TTL. What it
// calls returns the id and the handle of the grant, or ErrContended.
func (a *Access) Poll(ctx context.Context, ask func() (id string, handle interface{}, err error)) (Grant, error) {
	for {
		sent := Now()
		id, handle, err := ask()
		if err == nil {
			g := a.Grant(id, sent)
			g.Handle = handle
			return g, nil
		}
		if !errors.Is(err, ErrContended) {
			return Grant{}, err
		}
		select {
		case <-ctx.Done():
			return Grant{}, ErrContended
		case <-time.After(10 * time.Millisecond):
		}
	}
}

// NewID is a name for a grant that nobody else has, for libraries that leave it to the caller.
func NewID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it cannot fail
	return hex.EncodeToString(id)
}

// points are passed around Acquire and Release of every lock.
var points = []string{"before-lock", "lock-done", "before-unlock", "unlock-done"}

// Within calls lock, of a library that knows no context, and gives up when ctx is over. What it is granted after that,
// unlock gives back.
func Within(ctx context.Context, lock, unlock func() error) error {
	done := make(chan error, 1)
	go func() { done <- lock() }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		go func() {
			if <-done == nil {
				_ = unlock()
			}
		}()
		return ctx.Err()
	}
}

// Main is the life of a client. Connect is called for each user; name is what reports call the program; names are more
// points, which its lock passes to At. What connect returns is the lock's own type and no interface, for the client
// says before the start what of all this it is.
func Main[L Lock](name string, connect func(*Access) (L, error), names ...string) {
	var kind L
	if any(kind) == nil {
		fmt.Fprintf(os.Stderr, "%s: connect returns an interface; return the lock's own type, which tells whether it can be renewed, checked, watched and closed\n", name)
		os.Exit(2)
	}
	s := &session{stream: newStream(os.Stdout), users: map[int]*user{}, errors: map[string]int{}}
	s.connect = func(a *Access) (Lock, error) { return connect(a) }
	h := greeting(name, append(points, names...))
	orders := []string{"cancel"}
	if _, ok := any(kind).(io.Closer); ok {
		orders = append(orders, "close")
	}
	if _, ok := any(kind).(Renewer); ok {
		orders = append(orders, "renew")
	}
	if _, ok := any(kind).(Checker); ok {
		orders = append(orders, "check")
	}
	if _, ok := any(kind).(UnheldReleaser); ok {
		orders = append(orders, "release-unheld")
	}
	h["orders"] = orders
	_, h["tells"] = any(kind).(Watcher)
	_, h["keeps"] = any(kind).(Keeper)
	_, h["elsewhere"] = any(kind).(Hider)
	s.serve(os.Stdin, h)
}
