package lockquake

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand"
	"os"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"time"
)

// module is the path of this module, which is left out of the lock's libraries.
const module = "github.com/lockquake/lockquake/clients/go"

// protocol is the version of docs/protocol.md that this package speaks.
const protocol = 1

// frame is a frame from the supervisor.
type frame struct {
	Type    string
	Start   *start
	Go      struct{ Time int64 }
	Command order
	Ping    struct{ ID int }
}

type start struct {
	Version, Index int
	Format         string
	Seed           uint64
	Locks          []string
	Access         Access
	Workload       *struct {
		Use          string
		Users, Total int
		Params       params
	}
	Resource *struct{ Use, Address, Guard string }
	Renew    bool
	Check    string
	Margin   int64 `json:"margin_ns"`
	Timeout  int64 `json:"timeout_ns"`
	Record   bool
	TTL      int64 `json:"ttl_ns"`
}

type order struct {
	ID, User, Lock          int
	Do, Mode, Point, Action string
	Value                   int64
	Timeout                 int64 `json:"timeout_ns"`
}

type result struct {
	ID      int    `json:"id"`
	Outcome string `json:"outcome"`
	Error   string `json:"error,omitempty"`
	Value   int64  `json:"value,omitempty"`
	Grant   string `json:"grant,omitempty"`
}

// session is a client between its start and its end.
type session struct {
	connect func(*Access) (Lock, error)
	stream  *stream
	start   *start
	timeout time.Duration
	load    context.Context // ends at the stop
	halt    context.CancelFunc
	running sync.WaitGroup
	goTime  int64
	cpu     int64 // at the go frame

	mu      sync.Mutex // guards users, errors and longest
	users   map[int]*user
	errors  map[string]int
	longest int64 // longest stall, in ns

	turn    sync.Mutex // of the open loop: its users take turns to wait for the next arrival
	random  *rand.Rand
	gap     float64 // ns between arrivals of this process; 0: no open loop
	arrival float64
	skipped int64
}

// serve reads frames until the stop. The end of the input ends the process at once.
func (s *session) serve(in io.Reader, hello map[string]interface{}) {
	s.load, s.halt = context.WithCancel(context.Background())
	s.stream.send("hello", hello)
	frames := make(chan frame, 4096)
	go func() {
		r := bufio.NewReader(in)
		for {
			line, err := r.ReadBytes('\n')
			if err != nil {
				os.Exit(1) // the supervisor is gone
			}
			var f frame
			if err := json.Unmarshal(line, &f); err != nil {
				s.fail(fmt.Errorf("frame: %w", err))
			}
			if f.Type == "ping" {
				t := time.Now()
				s.stream.send("pong", map[string]int64{
					"id": int64(f.Ping.ID), "now": Now(), "wall": t.UnixNano(),
					"mono": began + int64(t.Sub(origin)),
				})
				continue
			}
			frames <- f
		}
	}()
	for f := range frames {
		switch f.Type {
		case "start":
			if err := s.begin(f.Start); err != nil {
				s.fail(err)
			}
			s.stream.send("ready", struct{}{})
		case "go":
			s.letGo(f.Go.Time)
		case "command":
			if err := s.command(f.Command); err != nil {
				s.answer(result{ID: f.Command.ID}, err)
			}
		case "stop":
			s.finish()
		default:
			s.fail(fmt.Errorf("frame %q is not expected here", f.Type))
		}
	}
}

// began and origin are the same moment on two clocks: that of the run, and Go's.
var began, origin = Now(), time.Now()

// fail reports why the client cannot go on, and ends the process.
func (s *session) fail(err error) {
	s.stream.send("failed", map[string]string{"error": err.Error()})
	os.Exit(1)
}

// greeting returns the hello, with the versions of the modules in the build.
func greeting(name string, points []string) map[string]interface{} {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // without them the clock is measured
	space, _ := os.Readlink("/proc/self/ns/time")
	libraries := map[string]string{}
	if b, ok := debug.ReadBuildInfo(); ok {
		for _, m := range b.Deps {
			version := m.Version
			if m.Replace != nil {
				version = m.Replace.Version
			}
			if version != "" && m.Path != module {
				libraries[m.Path] = version
			}
		}
	}
	return map[string]interface{}{
		"version": protocol, "process": name, "software": runtime.Version(), "libraries": libraries,
		"boot_id": strings.TrimSpace(string(boot)),
		"time_ns": space, "now": Now(), "formats": []string{"records"}, "pid": os.Getpid(), "points": points,
	}
}

// begin prepares what the start frame describes.
func (s *session) begin(st *start) error {
	w, r := st.Workload, st.Resource
	switch {
	case st.Version != protocol:
		return fmt.Errorf("version %d of the protocol; this program speaks %d", st.Version, protocol)
	case st.Format != "records":
		return fmt.Errorf("format is %q: want records", st.Format)
	case w != nil && workloads[w.Use] == nil:
		return fmt.Errorf("there is no workload %s", w.Use)
	case w != nil && w.Params.Shared > 0:
		return errShared
	case r != nil && (r.Use != "register" || r.Guard == "sequencer"):
		return fmt.Errorf("resource %s with guard %s: this client supports only the register, without its sequencer", r.Use,
			r.Guard)
	}
	if s.start, s.timeout = st, time.Duration(st.Timeout); s.timeout <= 0 {
		s.timeout = 10 * time.Second
	}
	if st.Access.Permits == 0 {
		st.Access.Permits = 1
	}
	if st.Access.TTLNanoseconds == 0 {
		st.Access.TTLNanoseconds = st.TTL
	}
	s.stream.recording = st.Record
	go s.stream.keepFlushing()
	go s.watchSelf()
	n := 1
	if w != nil {
		n = w.Users
	}
	for i := 0; i < n; i++ {
		if err := s.person(i).join(); err != nil {
			return err
		}
	}
	_, renews := s.users[0].lock.(Renewer)
	_, tells := s.users[0].lock.(Watcher)
	switch {
	case st.Renew && !renews:
		return errors.New("grants of this lock cannot be extended")
	case st.Check == "signal" && !tells && !st.Renew:
		return errors.New("check is signal, but this lock reports no loss")
	}
	return nil
}

func (s *session) person(number int) *user {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.users[number] == nil {
		s.users[number] = newUser(s, number)
	}
	return s.users[number]
}

func (s *session) letGo(at int64) {
	s.goTime, s.cpu = at, cpu()
	if w := s.start.Workload; w != nil {
		for i := 0; i < w.Users; i++ {
			u := s.person(i)
			s.run(func() {
				s.sleepUntil(at)
				u.free = Now()
				workloads[w.Use](s, u, &w.Params)
			})
		}
	}
}

func (s *session) run(life func()) {
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		life()
	}()
}

// command passes an order to its user. Arm, continue, cancel and close do not queue: they are for a user in the middle
// of an operation.
func (s *session) command(o order) error {
	switch o.Do {
	case "acquire", "reenter", "release", "renew", "check", "read", "write", "arm", "continue", "cancel", "close",
		"release-unheld":
	default:
		return refuse("unknown order %s", o.Do)
	}
	if o.Lock < 0 || o.Lock >= len(s.start.Locks) || o.User < 0 || o.User >= 1<<16 {
		return refuse("there is no lock %d or no user %d", o.Lock, o.User)
	}
	u := s.person(o.User)
	w := s.start.Workload
	switch {
	case o.Do == "arm" || o.Do == "continue":
		err := u.proceed
		if o.Do == "arm" {
			err = func(point string) error { return u.arm(point, o.Action) }
		}
		s.answer(result{ID: o.ID}, err(o.Point))
		return nil
	case o.Do == "cancel":
		s.answer(result{ID: o.ID}, u.giveUp())
		return nil
	case w != nil && o.User < w.Users:
		return refuse("user %d runs a workload: it can only be armed and continued", o.User)
	case o.Do == "close":
		s.run(func() { u.closeNow(o) })
		return nil
	case u.orders == nil:
		u.orders = make(chan order, 256)
		s.run(u.obey)
	}
	select {
	case u.orders <- o:
		return nil
	default:
		return refuse("too many orders of user %d are already waiting", o.User)
	}
}

// answer sends a result after all events recorded so far.
func (s *session) answer(r result, err error) {
	r.Outcome = "ok"
	if err != nil {
		r.Outcome, r.Error = "info", err.Error()
		if phase, _ := outcome(err); phase == failed {
			r.Outcome = "fail"
		}
	}
	s.stream.send("result", r)
}

// changing matches the parts of an error text that differ each time: the local addresses of connections.
var changing = regexp.MustCompile(`[0-9a-fA-F.:\[\]]+:\d+->`)

func (s *session) tally(err error) {
	text := changing.ReplaceAllString(err.Error(), "")
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.errors[text] == 0 && len(s.errors) >= 19 {
		text = "other errors"
	}
	s.errors[text]++
}

// sleep waits for d, or until the stop.
func (s *session) sleep(d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-s.load.Done():
	}
}

// sleepUntil reports whether the time came before the stop.
func (s *session) sleepUntil(at int64) bool {
	s.sleep(time.Duration(at - Now()))
	return s.load.Err() == nil
}

// watchSelf records when the process did not run.
func (s *session) watchSelf() {
	for last := Now(); ; {
		time.Sleep(beat)
		t := Now()
		s.mu.Lock()
		s.longest = larger(s.longest, t-last)
		s.mu.Unlock()
		if t-last > stalled {
			s.stream.still(uint32(s.start.Index)<<16, last, t)
		}
		last = t
	}
}

// cpu returns the user and system time of this process in ns.
func cpu() int64 {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r) // it cannot fail for oneself
	return r.Utime.Nano() + r.Stime.Nano()
}

// finish ends the users, sends what is left, and says goodbye.
func (s *session) finish() {
	ended := Now()
	s.halt()
	s.mu.Lock()
	var users []*user
	for _, u := range s.users {
		users = append(users, u)
	}
	s.mu.Unlock()
	for _, u := range users {
		_ = u.proceed("") // most users wait at no point
		if u.orders != nil {
			close(u.orders)
		}
	}
	s.running.Wait()
	closed := make(chan struct{})
	go func() {
		for _, u := range users {
			if c, ok := u.lock.(io.Closer); ok && !u.closed {
				if err := c.Close(); err != nil {
					s.tally(err)
				}
			}
			u.register.close()
		}
		close(closed)
	}()
	select {
	case <-closed:
	case <-time.After(3 * time.Second):
	}
	for s.gap > 0 && int64(s.arrival) <= ended {
		s.step()
		s.skipped++
	}
	var cycles, lag int64
	for _, u := range users {
		cycles += u.cycles
		lag = larger(lag, u.lag)
	}
	recorded, dropped := s.stream.end()
	s.mu.Lock()
	s.stream.send("done", map[string]interface{}{
		"recorded": recorded, "dropped": dropped, "stall_ns": s.longest, "cycles": cycles, "errors": s.errors,
		"lag_ns": lag, "unstarted": s.skipped, "cpu_ns": cpu() - s.cpu,
	})
	os.Exit(0)
}
