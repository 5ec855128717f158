// Package lockquake is the client side of lockquake's control stream (docs/protocol.md) for clients in Go: frames,
// clocks, workloads, events, points. It needs only the standard library, and is a module of its own: importing it
// changes the version of no other module.
//
// A client is a type with Acquire and Release, and a call of Main:
//
//	func main() { lockquake.Main("my lock", connect) }
//
//	func connect(a *lockquake.Access) (*myLock, error) { ... } // once for each user
//
// docs/clients.md has more.
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

// Lock is one user's lock, with a connection of its own. Its methods are called one at a time. Each context ends when
// the time for the operation is over; that of Acquire also ends when the client must stop.
//
// ErrContended, ErrNotHeld, ErrLost, ErrNotSent and ErrRefused mean that the operation certainly failed. After any
// other error the outcome is unknown.
type Lock interface {
	// Acquire takes the lock, or returns an error that says why it could not.
	Acquire(ctx context.Context, name string) (Grant, error)
	// Release gives the lock back.
	Release(ctx context.Context, g Grant) error
}

// Optional interfaces of a Lock. An io.Closer is closed at the end. Close alone may be called while another call is
// under way; that call then returns, with an error unless it succeeded.
type (
	// Reenterer takes a lock that this object holds once more, by the library's own call, and returns the grant of
	// that. Each grant is released, the latest first; the lock is free after the last.
	Reenterer interface {
		Reenter(ctx context.Context, g Grant) (Grant, error)
	}
	// Renewer extends a grant and returns the new end of its validity. ErrNotHeld and ErrLost mean that the grant is
	// gone.
	Renewer interface {
		Renew(ctx context.Context, g Grant) (valid int64, err error)
	}
	// Checker returns ErrNotHeld if the service says that the grant is gone.
	Checker interface {
		Check(ctx context.Context, g Grant) error
	}
	// UnheldReleaser releases a lock that this object does not hold. Last is the latest grant of that lock which the
	// object released, or nil. The library is called as for Release; ErrNotHeld means that it refused.
	UnheldReleaser interface {
		ReleaseUnheld(ctx context.Context, name string, last *Grant) error
	}
	// Watcher has lost called when the library reports that the grant is gone.
	Watcher interface {
		OnLost(g Grant, lost func())
	}
	// RenewalWatcher has renewed called after each renewal that the library makes by itself. Valid is the new end of
	// the validity, counted from when the renewal was sent. It is Unknown if the library does not say.
	RenewalWatcher interface {
		OnRenewed(g Grant, renewed func(valid int64))
	}
	// Keeper marks a lock whose grants last as long as the process lives, without any call to Renew. A session that
	// the library keeps alive is an example. Keeps is never called.
	Keeper interface {
		Keeps()
	}
	// Semaphore marks a lock that as many users may hold at once as Access.Permits says. HasPermits is never called.
	Semaphore interface {
		HasPermits()
	}
	// Hider marks a lock whose key is not the one at which lockquake asks the service for it. Elsewhere is never
	// called.
	Hider interface {
		Elsewhere()
	}
	// Abandoner declares the bound from the last call of a user that hangs, while its process lives, to the next grant:
	// a number of TTLs and a time. It is for a library that renews by itself, and stops for such a user. Hung is called
	// once, on the zero value of the lock's type.
	Abandoner interface {
		Hung() (ttls int, plus time.Duration)
	}
)

// Grant is a lock that was granted.
type Grant struct {
	ID     string      // by which the service identifies the grant
	Sent   int64       // when the granted request was sent, by Now
	Valid  int64       // end of the promised validity, by Now; or Endless, or Unknown
	Token  uint64      // fencing token; 0: none
	Handle interface{} // for the author's own use
}

// Values of Grant.Valid that are not a time.
const (
	Endless = math.MaxInt64
	Unknown = math.MinInt64
)

// Errors after which the outcome is certain.
var (
	ErrContended = errors.New("another user has the lock") // or the wait was given up; nothing was granted
	ErrNotHeld   = errors.New("the service no longer has the grant")
	ErrLost      = errors.New("the grant was lost while it was in hand")
	ErrNotSent   = errors.New("the request never reached the service")
	ErrRefused   = errors.New("the service refused the request")
	errFenced    = errors.New("the resource refused the token")
)

// Now reads the host's CLOCK_MONOTONIC in ns. It is the time base of a run: no clock fault moves it.
func Now() int64 {
	var ts syscall.Timespec
	const monotonic = 1
	// It cannot fail for this clock and a valid pointer.
	_, _, _ = syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, monotonic, uintptr(unsafe.Pointer(&ts)), 0)
	return ts.Nano()
}

// Access describes how to reach the service.
type Access struct {
	Backend, Lock  string
	TTLNanoseconds int64 `json:"ttl_ns"` // TTL of grants
	Client         int   // index of this process
	Permits        int   // how many users may hold one lock at once
	User, Password string
	Run            string
	Params         json.RawMessage // of the backend; keys that end in _ns are times in ns
	Nodes          []struct {
		Name      string
		Addresses map[string]string
	}
	TLS json.RawMessage
}

// TTL returns the TTL of grants.
func (a *Access) TTL() time.Duration { return time.Duration(a.TTLNanoseconds) }

// Timeout returns the timeout of one request that the scenario sets; the default is one second.
func (a *Access) Timeout() time.Duration {
	p := struct {
		Timeout time.Duration `json:"timeout_ns"`
	}{time.Second}
	_ = json.Unmarshal(a.Params, &p) // some backends have none
	return p.Timeout
}

// Addresses returns host:port of each server that has a port of that name. Most backends have a "client" port.
func (a *Access) Addresses(port string) (out []string) {
	for _, n := range a.Nodes {
		if address := n.Addresses[port]; address != "" {
			out = append(out, address)
		}
	}
	return out
}

// Valid returns the end of a TTL that was requested at sent, less the drift that two clocks may have.
func (a *Access) Valid(sent int64) int64 { return sent + a.TTLNanoseconds - a.TTLNanoseconds/100 - 2e6 }

// Grant returns a grant that is valid for one TTL.
func (a *Access) Grant(id string, sent int64) Grant {
	return Grant{ID: id, Sent: sent, Valid: a.Valid(sent)}
}

type userKey struct{}

// At announces that the user of ctx has reached a point. It costs next to nothing unless a point is armed.
func At(ctx context.Context, point string) {
	if u, ok := ctx.Value(userKey{}).(*user); ok && atomic.LoadInt32(&u.armed) > 0 {
		u.reached(point)
	}
}

// Poll requests the lock at once and then every 10 ms, one request at a time, until it is granted for a TTL. The
// function ask returns the id and the handle of the grant, or ErrContended.
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

// NewID returns a unique name for a grant, for libraries that leave it to the caller.
func NewID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id) // it cannot fail
	return hex.EncodeToString(id)
}

// points are announced around Acquire and Release of every lock.
var points = []string{"before-lock", "lock-done", "before-unlock", "unlock-done"}

// Within calls lock of a library that takes no context, and gives up when ctx is over. If the lock is granted later,
// Within releases it by unlock.
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

// Main runs a client. It calls connect for each user; name is what reports call the program. Further points that the
// lock passes to At are given as names. Connect must return the lock's own type, not an interface: before the start,
// the client announces which optional interfaces that type has.
func Main[L Lock](name string, connect func(*Access) (L, error), names ...string) {
	var kind L
	if any(kind) == nil {
		fmt.Fprintf(os.Stderr, "%s: connect returns an interface; return the lock's own type, which shows whether it can be renewed, checked, watched and closed\n", name)
		os.Exit(2)
	}
	s := &session{stream: newStream(os.Stdout), users: map[int]*user{}, errors: map[string]int{}}
	s.connect = func(a *Access) (Lock, error) { return connect(a) }
	h := greeting(name, append(points, names...))
	orders := []string{"cancel"}
	if _, ok := any(kind).(io.Closer); ok {
		orders = append(orders, "close")
	}
	if _, ok := any(kind).(Reenterer); ok {
		orders = append(orders, "reenter")
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
	_, h["permits"] = any(kind).(Semaphore)
	_, h["elsewhere"] = any(kind).(Hider)
	if a, ok := any(kind).(Abandoner); ok {
		ttls, plus := a.Hung()
		h["hung"] = map[string]interface{}{"ttls": ttls, "plus_ns": plus.Nanoseconds()}
	}
	s.serve(os.Stdin, h)
}
