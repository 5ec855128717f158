package locktest

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/internal/client"
	"github.com/lockquake/lockquake/lock"
	"github.com/lockquake/lockquake/workloads"
	"github.com/lockquake/lockquake/workloads/resource/register"
)

// mark is the first argument after the flags of a process that is run again as a client. The test, the number of its
// Run and what the lock announces follow it.
const mark = "locktest"

// run identifies one Run of a test's binary.
type run struct {
	test   string // name of the test
	number int    // number of the Run within the test, from 0
}

var (
	mainCalled bool
	second     *again // nil in the process that go test started

	runsMu sync.Mutex
	runs   = map[string]int{} // number of calls of Run, by name of the test
)

// thisRun identifies the Run that a test is calling. When the test ends its count starts again, for -count.
func thisRun(t *testing.T) run {
	t.Helper()
	runsMu.Lock()
	defer runsMu.Unlock()
	n := runs[t.Name()]
	if runs[t.Name()]++; n == 0 {
		t.Cleanup(func() {
			runsMu.Lock()
			defer runsMu.Unlock()
			delete(runs, t.Name())
		})
	}
	return run{t.Name(), n}
}

// again is a process that was started as a client of one Run.
type again struct {
	run
	announced
	out *os.File // the original standard output, reserved for the protocol
}

// announced is what a client says of its lock in its hello. The hello is sent before the lock exists, so the process
// that starts the client passes this on.
type announced struct {
	Points []string
	Tells  bool // its holders are told of a loss
}

// Main must be called by TestMain. It runs the tests, up to eight parallel ones at once unless -parallel says
// otherwise: tests of the conformance suite wait for clocks, not for a processor.
//
// In a process that lockquake started, Main runs a client instead and does not return. What TestMain does before Main
// happens in clients too.
func Main(m *testing.M) {
	mainCalled = true
	conformance.Parallel()
	flag.Parse()
	args := flag.Args()
	if len(args) != 4 || args[0] != mark {
		m.Run() // TestMain returns, so m keeps the exit code
		return
	}
	second = &again{out: os.Stdout}
	number, err := strconv.Atoi(args[2])
	if err = errors.Join(err, json.Unmarshal([]byte(args[3]), &second.announced)); err != nil {
		fmt.Fprintf(os.Stderr, "locktest: its last arguments are %q: %v\n", args[2:], err)
		os.Exit(2)
	}
	second.run = run{args[1], number}
	os.Stdout = os.Stderr // test output must not come between frames
	m.Run()
	fmt.Fprintf(os.Stderr, "locktest: as a client, test %s does not come to its call number %d of locktest.Run\n",
		second.test, number+1)
	os.Exit(2)
}

// arguments returns the arguments that make this program a client of the Run, with what the lock announces. The
// author's own flags are passed on.
func (r run) arguments(a announced) []string {
	var pattern []string
	for part := range strings.SplitSeq(r.test, "/") {
		pattern = append(pattern, "^"+regexp.QuoteMeta(part)+"$")
	}
	out := []string{"-test.run=" + strings.Join(pattern, "/")}
	flag.Visit(func(f *flag.Flag) {
		if !strings.HasPrefix(f.Name, "test.") || f.Name == "test.short" {
			out = append(out, "-"+f.Name+"="+f.Value.String())
		}
	})
	text, _ := json.Marshal(a) // cannot fail
	return append(out, mark, r.test, strconv.Itoa(r.number), string(text))
}

// become runs this process as a client, if it was started for this Run, and ends it afterwards. For any other Run it
// returns.
func (a *again) become(t *testing.T, me run, s Service, connect Connect) {
	t.Helper()
	if me != a.run {
		return
	}
	var locks []backends.Lock
	for _, token := range []bool{false, true} {
		locks = append(locks, backends.Lock{Name: s.standIn(token), Dial: s.dial(connect)})
	}
	b := backends.Backend{Name: s.backend, Locks: locks}
	if conformance.IsChild() {
		os.Exit(conformance.Child(a.out, b))
	}
	software, libraries := built()
	err := client.Main(context.Background(), client.Options{
		Backends: []backends.Backend{b}, Workloads: workloads.All(), Resources: register.Kinds(),
		In: os.Stdin, Out: a.out, Process: filepath.Base(os.Args[0]) + " " + a.test, Version: software,
		Libraries: libraries, Points: a.Points, Tells: a.Tells,
	})
	if err != nil {
		fmt.Fprintln(os.Stderr, "locktest:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// built returns the module under test with its version, and the other modules in the build except lockquake's own.
func built() (software string, libraries map[string]string) {
	libraries = map[string]string{}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "", libraries
	}
	for _, m := range info.Deps {
		if m.Replace != nil {
			m = m.Replace
		}
		if m.Version != "" && m.Path != "github.com/lockquake/lockquake" {
			libraries[m.Path] = m.Version
		}
	}
	return strings.TrimSpace(info.Main.Path + " " + info.Main.Version), libraries
}

// dial returns the function that makes a process's connection. Users connect by themselves.
func (s Service) dial(connect Connect) func(context.Context, backends.Access) (backends.Connection, error) {
	return func(_ context.Context, a backends.Access) (backends.Connection, error) {
		return connection{connect, s.endpoints(a)}, nil
	}
}

type connection struct {
	connect   Connect
	endpoints []string
}

// Locker connects one user.
func (c connection) Locker(ctx context.Context, _ int) (lock.Locker, error) {
	return c.connect(ctx, c.endpoints)
}

// Close does nothing: users have connections of their own.
func (connection) Close() error { return nil }
