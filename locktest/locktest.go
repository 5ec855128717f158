// Package locktest tests a lock library on a real service, from the library's own `go test`:
//
//	func TestMain(m *testing.M) { locktest.Main(m) }
//
//	func TestLock(t *testing.T) {
//		locktest.Run(t, locktest.Redis(), func(ctx context.Context, endpoints []string) (lock.Locker, error) {
//			return newLocker(endpoints)
//		})
//	}
//
// Run has the program lockquake start the service. It puts the lock to the conformance suite, has many users fight over
// it, and breaks the world under them. Clients are processes of their own, so that every fault reaches them: Main runs
// the test's own binary again as each of them. A subtest fails with what proves it, in plain words, and with the path
// of the run's report.
//
// docs/locktest.md tells what is judged, and what a lock.Locker must say for that.
package locktest

import (
	"cmp"
	"context"
	"os"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/lock"
)

// Connect makes what one user of the lock calls, with a connection to the service of its own. It is called in the
// test's process and in those of clients, which run the test up to Run and no further. The context bounds the call
// alone: what goes on behind it must not end with it. Files of this machine may be out of reach.
type Connect func(ctx context.Context, endpoints []string) (lock.Locker, error)

// settings are what the options of a Run say.
type settings struct {
	ttl       time.Duration
	recovery  time.Duration // 0: twice the TTL, and some seconds
	clients   int
	users     int
	provider  string
	budget    time.Duration // 0: without end
	out       string        // "": a directory that stays only where a check failed
	seed      uint64        // 0: drawn by each run
	scenarios []string      // to run beside those of every Run
	offers    []func(*backends.Offers)
}

// Option is a setting of Run.
type Option func(*settings)

// TTL is what grants are asked for with. Checks that let one end take longer with a longer one. The default is that of
// the Service.
func TTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// Recovery is within what time after the death of a holder the lock must be granted again. The default is twice the TTL
// and five seconds.
func Recovery(d time.Duration) Option { return func(s *settings) { s.recovery = d } }

// Users is how many users fight over the lock in each of how many client processes. The default is four in each of
// three.
func Users(users, clients int) Option {
	return func(s *settings) { s.users, s.clients = users, clients }
}

// Provider is what servers and clients run as: "docker" (containers), "local" (processes of this machine), or "auto":
// docker where a container engine answers. The default is what the environment says in LOCKTEST_PROVIDER, or auto.
func Provider(name string) Option { return func(s *settings) { s.provider = name } }

// Budget is how long the runs may take together. One that would take longer is skipped, and says so.
func Budget(d time.Duration) Option { return func(s *settings) { s.budget = d } }

// Out is the folder of all runs, and of their reports. The default is a new one in os.TempDir, which is removed where
// no check failed.
func Out(dir string) Option { return func(s *settings) { s.out = dir } }

// Seed is that of everything random in the runs; 0, the default, has each draw its own.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

// Scenario adds scenarios to those that every Run has: names of those that come with lockquake, whose backend must be
// that of the Service, or YAML files of one's own.
func Scenario(names ...string) Option {
	return func(s *settings) { s.scenarios = append(s.scenarios, names...) }
}

// Offers changes what Run has found out of what the lock can do. Run looks at the optional interfaces that its
// lock.Locker has (TryAcquirer, Renewer, Watcher), and whether the first grant names an end and has a token. It does
// not find out whether the lock serves its waiters in order (Fair) and whether it knows shared mode (Shared).
func Offers(change func(*backends.Offers)) Option {
	return func(s *settings) { s.offers = append(s.offers, change) }
}

// Run tests the lock: a subtest for each check of the conformance suite, and one for each scenario. With -short these
// are the quick ones. It needs a TestMain that calls Main.
func Run(t *testing.T, s Service, connect Connect, options ...Option) {
	t.Helper()
	set := settings{ttl: s.ttl, users: 4, clients: 3, provider: cmp.Or(os.Getenv("LOCKTEST_PROVIDER"), "auto")}
	for _, o := range options {
		o(&set)
	}
	me := thisRun(t)
	if second != nil {
		second.become(t, me, s, connect)
		return // this was not the Run that the process is for
	}
	if !mainCalled {
		t.Fatal("this package has no TestMain that calls locktest.Main, which client processes need: func TestMain(m *testing.M) { locktest.Main(m) }")
	}
	r, err := newRunner(t, set, s, connect, me)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("conformance", r.conformance)
	r.end() // the runs have servers of their own
	r.runAll(t)
}
