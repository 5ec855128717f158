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
// Run starts the service by the program lockquake. It runs the conformance suite on the lock, lets many users contend
// for it, and injects faults meanwhile. Each client is a process of its own, so that every fault can reach it: Main
// runs the test's own binary again as the client. A subtest that fails shows the evidence in plain words and the path
// of the run's report.
//
// docs/locktest.md says what is judged, and what a lock.Locker must report for that.
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

// Connect returns the lock of one user, with its own connection to the service. It is called in the test's process and
// in client processes, which run the test up to Run and no further. The context covers the call alone: background work
// of the lock must not end with it. Clients may be unable to read files of this machine.
type Connect func(ctx context.Context, endpoints []string) (lock.Locker, error)

// settings are the options of a Run.
type settings struct {
	ttl       time.Duration
	recovery  time.Duration // 0: twice the TTL, and five seconds
	hung      time.Duration // 0: no bound
	clients   int
	users     int
	provider  string
	budget    time.Duration // 0: unlimited
	out       string        // "": a directory that is kept only if a check failed
	seed      uint64        // 0: drawn by each run
	scenarios []string      // to run in addition to those of every Run
	offers    []func(*backends.Offers)
}

// Option is a setting of Run.
type Option func(*settings)

// TTL sets the TTL of requests. A longer one makes checks that wait for an expiry take longer. The default depends on
// the Service.
func TTL(d time.Duration) Option { return func(s *settings) { s.ttl = d } }

// Recovery sets how soon after a holder's death the lock must be granted again. The default is twice the TTL plus five
// seconds.
func Recovery(d time.Duration) Option { return func(s *settings) { s.recovery = d } }

// Hung declares how soon the lock must be granted again after the last call of a user that hangs while its process
// lives. It is for a lock that renews grants by itself, and stops when its user makes no more calls. The default is no
// bound: the suite then shows what the lock does, and nothing fails.
func Hung(d time.Duration) Option { return func(s *settings) { s.hung = d } }

// Users sets the number of users per client process, and the number of client processes. The default is four users in
// each of three processes.
func Users(users, clients int) Option {
	return func(s *settings) { s.users, s.clients = users, clients }
}

// Provider sets how servers and clients run: "docker" (containers), "local" (processes of this machine), or "auto"
// (docker if a container engine answers, else local). The default is the value of LOCKTEST_PROVIDER, or auto.
func Provider(name string) Option { return func(s *settings) { s.provider = name } }

// Budget limits the total time of the runs. A run that would exceed it is skipped with a message.
func Budget(d time.Duration) Option { return func(s *settings) { s.budget = d } }

// Out sets the directory of all runs and their reports. The default is a new one in os.TempDir, which is removed if no
// check failed.
func Out(dir string) Option { return func(s *settings) { s.out = dir } }

// Seed sets the seed of the runs. With 0, the default, each run draws its own.
func Seed(n uint64) Option { return func(s *settings) { s.seed = n } }

// Scenario adds scenarios to those that every Run has. Each is a YAML file, or the name of one that comes with
// lockquake and has the Service's backend.
func Scenario(names ...string) Option {
	return func(s *settings) { s.scenarios = append(s.scenarios, names...) }
}

// Offers changes the detected capabilities of the lock. Run looks at the optional interfaces of its lock.Locker
// (TryAcquirer, Renewer, Watcher), and at whether the first grant has an expiry and a token. It cannot detect whether
// the lock is fair (Fair) or has a shared mode (Shared).
func Offers(change func(*backends.Offers)) Option {
	return func(s *settings) { s.offers = append(s.offers, change) }
}

// Run tests the lock, with one subtest for each check of the conformance suite and one for each scenario. With -short
// only the quick ones run. Run needs a TestMain that calls Main.
func Run(t *testing.T, s Service, connect Connect, options ...Option) {
	t.Helper()
	set := settings{ttl: s.ttl, users: 4, clients: 3, provider: cmp.Or(os.Getenv("LOCKTEST_PROVIDER"), "auto")}
	for _, o := range options {
		o(&set)
	}
	me := thisRun(t)
	if second != nil {
		second.become(t, me, s, connect)
		return // the process was started for another Run
	}
	if !mainCalled {
		t.Fatal("client processes need a TestMain in this package that calls locktest.Main: func TestMain(m *testing.M) { locktest.Main(m) }")
	}
	r, err := newRunner(t, set, s, connect, me)
	if err != nil {
		t.Fatal(err)
	}
	t.Run("conformance", r.conformance)
	r.end() // the runs start servers of their own
	r.runAll(t)
}
