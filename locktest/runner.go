package locktest

import (
	"cmp"
	"context"
	"debug/elf"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/conformance"
	"github.com/lockquake/lockquake/internal/stories/ask"
	"github.com/lockquake/lockquake/lock"
)

// runner is one Run: a lock and its tests.
type runner struct {
	settings
	service Service
	me      run
	program program
	folder  string // of all runs
	access  backends.Access
	end     func() // ends the service that access reaches
	lock    backends.Lock
	jobs    *jobs
	made    int // runs that have a verdict
	judged  int // those of them whose verdict is not unknown
}

// newRunner starts the service and detects the lock's capabilities.
func newRunner(t *testing.T, set settings, s Service, connect Connect, me run) (*runner, error) {
	t.Helper()
	r := &runner{settings: set, service: s, me: me}
	var err error
	if r.program, err = findProgram(); err != nil {
		return nil, err
	}
	if err := r.makeFolder(t); err != nil {
		return nil, err
	}
	args := append([]string{s.backend, "--provider", r.provider, "--set", "ttl=" + r.ttl.String()}, r.sets("")...)
	access, end, err := r.program.up(t.Context(), args)
	if err != nil {
		return nil, err
	}
	r.access, r.end = access, sync.OnceFunc(func() {
		if err := end(); err != nil {
			t.Errorf("end the service: %v", err)
		}
	})
	t.Cleanup(r.end)
	r.lock = backends.Lock{
		Recovery: backends.RecoversIn(r.bound().Bound),
		Dial:     s.dial(connect),
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := r.look(ctx); err != nil {
		return nil, fmt.Errorf("one grant on a healthy service: %w", err)
	}
	r.access.Lock = r.lock.Name
	return r, nil
}

// bound returns the bound of the lock's recovery.
func (s settings) bound() ask.Recovery {
	if s.recovery != 0 {
		return ask.Recovery{Plus: s.recovery}
	}
	return ask.Recovery{TTLs: 2, Plus: 5 * time.Second}
}

// sets returns the settings of the service as --set flags, with section as prefix of the keys.
func (r *runner) sets(section string) []string {
	var out []string
	for _, pair := range r.service.pairs() {
		out = append(out, "--set", section+pair)
	}
	return out
}

// makeFolder makes the directory of the runs, which is removed at the end if it is a default one and no check failed.
func (r *runner) makeFolder(t *testing.T) (err error) {
	t.Helper()
	if r.folder, err = filepath.Abs(r.out); err != nil {
		return err
	}
	if r.out == "" {
		if r.folder, err = os.MkdirTemp("", "locktest-"); err != nil {
			return err
		}
		t.Cleanup(func() {
			if !t.Failed() {
				_ = os.RemoveAll(r.folder)
			}
		})
	}
	return os.MkdirAll(r.folder, 0o755)
}

// look takes and releases one grant, to detect the lock's points and capabilities.
func (r *runner) look(ctx context.Context) error {
	conn, err := r.lock.Dial(ctx, r.access)
	if err != nil {
		return err
	}
	u, err := conn.Locker(ctx, 0)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer func() { _ = u.Close() }() // a check of its own tests whether Close frees the lock
	armed := lock.Arm(ctx, func(_ context.Context, point string) { r.lock.Points = append(r.lock.Points, point) })
	g, err := u.Acquire(armed, lock.Request{Lock: "locktest-look", TTL: r.ttl})
	if err != nil {
		return fmt.Errorf("acquire: %w", err)
	}
	if err := u.Release(armed, g); err != nil {
		return fmt.Errorf("release: %w", err)
	}
	o := backends.Offers{Renewal: "none", Token: backends.TokenNone, Reentrant: "no"}
	_, o.Expires = g.ValidUntil.Time()
	_, o.Try = u.(lock.TryAcquirer)
	if _, o.LossSignal = u.(lock.Watcher); o.LossSignal && o.Expires {
		o.Renewal = "background"
	}
	if _, ok := u.(lock.Renewer); ok {
		o.Renewal = "call"
	}
	if g.Token != lock.NoToken {
		o.Token = backends.TokenService
	}
	for _, change := range r.offers {
		change(&o)
	}
	r.lock.Offers, r.lock.Name = o, r.service.standIn(o.Token != backends.TokenNone)
	return nil
}

// conformance runs the conformance suite on the lock.
func (r *runner) conformance(t *testing.T) {
	conformance.Run(t, conformance.Options{
		Backend: backends.Backend{Name: r.service.backend, Locks: []backends.Lock{r.lock}},
		Access:  r.access, Voters: r.service.voters, Again: r.me.arguments(announced{}), Direct: r.service.direct,
		Foreign: true,
	})
}

// runAll runs the scenarios, each as a subtest.
func (r *runner) runAll(t *testing.T) {
	t.Helper()
	dir, err := os.MkdirTemp(r.folder, "test-")
	if err != nil {
		t.Fatal(err)
	}
	client, err := r.client(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx := t.Context()
	if end, ok := t.Deadline(); ok { // leave time to heal
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, end.Add(-2*patience))
		defer cancel()
	}
	common := append([]string{
		"--provider", r.provider, "--out", r.folder, "--seed", fmt.Sprint(r.seed), "--budget",
		r.budget.String(),
	}, client...)
	if r.jobs, err = r.program.jobs(ctx, append(common, r.sets("backend.")...)); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := r.jobs.end(); err != nil {
			t.Error(err)
		}
	}()
	list, err := r.program.stories(ctx, r.subject(testing.Short()))
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range list {
		if testing.Short() && !s.Quick {
			continue
		}
		t.Run(s.Name, func(t *testing.T) {
			switch {
			case s.Why != "":
				t.Skip(s.Why)
			case s.Error != "":
				t.Fatal(s.Error)
			}
			// The file is kept if the run fails: the command that repeats it names the file.
			file := filepath.Join(dir, s.Name+".yaml")
			if err := os.WriteFile(file, []byte(s.Scenario), 0o644); err != nil {
				t.Fatal(err)
			}
			r.run(t, file, nil, s.Grants)
		})
	}
	for _, name := range r.scenarios {
		t.Run(filepath.Base(name), func(t *testing.T) {
			r.run(t, name, []string{"backend.use=" + r.service.backend, "backend.lock=" + r.lock.Name}, 0)
		})
	}
	if r.made > 0 && r.judged == 0 {
		t.Error("no run could be judged; go test -v shows the reasons")
	}
}

// subject describes the lock for the choice of its stories.
func (r *runner) subject(quick bool) ask.Lock {
	return ask.Lock{
		Backend: r.service.backend, StandIn: r.lock.Name, Set: r.service.pairs(), TTL: r.ttl, Recovery: r.bound(),
		Offers: r.lock.Offers, Points: r.lock.Points, Clients: r.clients, Users: r.users, Quick: quick,
		Elsewhere: !r.service.named, Hung: r.hung,
	}
}

// clientName is the copy of this program that lockquake starts as clients. Its directory holds little else, because
// all of it is copied into containers.
const clientName = "client"

// client copies this program, and returns the arguments that make lockquake use it as client.
func (r *runner) client(dir string) ([]string, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	program, err := os.ReadFile(self)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, clientName), program, 0o755)
	}
	if err != nil {
		return nil, fmt.Errorf("copy the test's program: %w", err)
	}
	key, err := json.Marshal(map[string]any{"run": append([]string{"./" + clientName},
		r.me.arguments(announced{r.lock.Points, r.lock.Offers.LossSignal})...), "dir": dir})
	return []string{"--set", "workload.client=" + string(key)}, err
}

// run runs a scenario, or all that match a pattern, with keys replaced, and passes the verdicts on. If about is not 0,
// it is the expected number of grants.
func (r *runner) run(t *testing.T, scenario string, set []string, about int64) {
	t.Helper()
	verdicts, err := r.jobs.do(scenario, set)
	switch {
	case errors.Is(err, errMissing), errors.Is(err, errSpent):
		t.Skip(err)
	case err != nil && linked():
		t.Fatalf("%v\nThe test binary needs shared libraries, which containers lack: CGO_ENABLED=0 go test",
			err)
	case err != nil:
		t.Fatal(err)
	case len(verdicts) == 1:
		r.judge(t, verdicts[0], about)
		return
	}
	for _, v := range verdicts {
		t.Run(v.Scenario, func(t *testing.T) { r.judge(t, v, about) })
	}
}

// linked reports whether this program needs shared libraries.
func linked() bool {
	f, err := elf.Open("/proc/self/exe")
	if err != nil {
		return false // not on Linux, where it does not matter
	}
	defer func() { _ = f.Close() }()
	return slices.ContainsFunc(f.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP })
}

// judge turns a verdict into the result of a test.
func (r *runner) judge(t *testing.T, v verdict, about int64) {
	t.Helper()
	r.made++
	switch v.Verdict {
	case unknown:
		t.Skipf("unknown: %s", strings.Join(v.Reasons, "; "))
	case pass:
		t.Log(cmp.Or(ask.Short(v.Judged.Grants, about), fmt.Sprintf("%d grants judged", v.Judged.Grants)))
	default:
		t.Errorf("%s\n\nWhat happened, and the report:\n%s\n\nagain: %s", v.text(),
			r.program.explain(t.Context(), v.RunDir), v.Replay)
	}
	r.judged++
}
