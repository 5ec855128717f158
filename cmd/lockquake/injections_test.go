//go:build soak && linux

package main

import (
	"bytes"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	faults "github.com/lockquake/lockquake/chaos/all"
	"github.com/lockquake/lockquake/cmd/lockquake/compose"
	"github.com/lockquake/lockquake/cmd/lockquake/nodes"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/internal/cluster"
	"github.com/lockquake/lockquake/internal/engine"
	"github.com/lockquake/lockquake/results"
	"github.com/lockquake/lockquake/scenarios"
)

// allOver runs a backend with as many random faults as the machine can inject, next to and on top of each other.
const allOver = `
name: all-over-BACKEND
claim: Whatever can be broken is broken, and nothing of it is left behind.
backend: {use: BACKEND, ttl: 3s}
workload: {use: counter, clients: 8, hold: 20ms, timeout: 3s, resource: {use: register}}
chaos:
  random: [FAULTS]
  for: 300ms..1500ms
  mean_gap: 700ms
  overlap: OVERLAP
run: {for: LENGTH, settle: 100ms}
expect: {double_grants: ">=0", token_regressions: ">=0", foreign_releases: ">=0", stale_writes: ">=0", lost_updates: ">=0", stuck_locks: ">=0", wedges: ">=0", judged: ">=1"}
`

// scores counts the receipts of a fault by status.
type scores map[history.ReceiptStatus]int

// injectionsSoak is one soak of random injections.
type injectionsSoak struct {
	t        *testing.T
	provider cluster.Provider
	offered  map[string][]string // by backend: the faults for a random schedule
	refused  map[string][]string // by fault: backends, with the reason
	by       map[string]scores   // by fault
	made     int
	unhealed []string
	unbitten []string
	untaken  []string // heals that had no effect
	out      string
}

// TestRandomInjections makes 200 random injections of every fault, over all backends, with Ctrl-C and kills of the
// supervisor among them. Afterwards clean has nothing to do, and the machine is as before. A fault without effect is
// no failure here; it is counted and printed.
//
// LOCKQUAKE_INJECTIONS sets the number, LOCKQUAKE_BACKENDS the backends (default: all with servers),
// LOCKQUAKE_TEST_PROVIDER the provider (default: docker), LOCKQUAKE_LENGTH the length of a run (30s).
// LOCKQUAKE_PATIENCE is how long other activity on this machine may disturb the comparison (10s).
func TestRandomInjections(t *testing.T) {
	want, err := strconv.Atoi(setting("LOCKQUAKE_INJECTIONS", "200"))
	if err != nil {
		t.Fatal(err)
	}
	patience, err := time.ParseDuration(setting("LOCKQUAKE_PATIENCE", "10s"))
	if err != nil {
		t.Fatal(err)
	}
	p, why, err := nodes.Choose(t.Context(), setting("LOCKQUAKE_TEST_PROVIDER", "docker"))
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("provider %s: %s\n", p.Name(), why)
	s := &injectionsSoak{t: t, provider: p, offered: map[string][]string{}, refused: map[string][]string{}, by: map[string]scores{}, out: t.TempDir()}
	if dir := os.Getenv("LOCKQUAKE_OUT"); dir != "" {
		s.out = dir
	}
	backends := compose.Backends()
	if list := os.Getenv("LOCKQUAKE_BACKENDS"); list != "" {
		backends = strings.Split(list, ",")
	}
	for _, b := range backends {
		s.ask(b)
	}
	s.clean() // leftovers of earlier runs do not count
	before, ahead, load := lookAround(t), clocks(t), loadNow()
	for n := 0; s.made < want && n < want && !t.Failed(); n++ {
		seed, err := strconv.Atoi(setting("LOCKQUAKE_SEED", "1"))
		if err != nil {
			t.Fatal(err)
		}
		s.run(backends[n%len(backends)], seed+n, n)
	}
	if !t.Failed() && os.Getenv("LOCKQUAKE_END") != "none" {
		s.end(backends[0], os.Interrupt)
		s.end(backends[len(backends)-1], syscall.SIGKILL)
	}
	for _, heal := range s.untaken {
		t.Errorf("a heal that did not take: %s", heal)
	}
	if left := s.clean(); left != "" {
		t.Errorf("clean had something to do:\n%s", left)
	}
	asBefore(t, before, ahead, patience)
	s.tell()
	fmt.Printf("load before %s; after %s\n", load, loadNow())
}

// whole is the output of a process, which may be read during writes.
type whole struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write appends.
func (w *whole) Write(b []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.Write(b)
}

// String returns the output so far.
func (w *whole) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.b.String()
}

func loadNow() string {
	b, _ := os.ReadFile("/proc/loadavg") // printed beside the figures, nothing else
	return strings.TrimSpace(string(b))
}

// ask determines which faults the machine can inject on which targets of a backend.
func (s *injectionsSoak) ask(backend string) {
	for _, k := range faults.Kinds() {
		var targets []string
		for _, on := range []string{"one", "leader", "leader(lock-0)", "minority", "holder"} {
			text := s.scenario(backend, fmt.Sprintf("{use: %s, on: %s}", k.Name, on))
			parsed, err := scenarios.Parse([]byte(text), backend)
			if err != nil {
				s.t.Fatal(err)
			}
			plan, err := engine.Check(engine.Options{Request: engine.Request{Scenario: parsed, Provider: s.provider, Catalog: nodes.Catalog()}})
			if err != nil {
				first, _, _ := strings.Cut(err.Error(), "\n")
				s.refused[k.Name] = append(s.refused[k.Name], fmt.Sprintf("%s of %s: %s", on, backend, first))
				continue
			}
			if on == "leader(lock-0)" && backend != "rediscluster" {
				continue // the leader leads for every lock
			}
			if (on == "leader" || on == "minority") && plan.Facts().Servers == 1 {
				continue
			}
			if k.Single && on != "leader" && slices.Contains([]string{"sentinel", "zookeeper"}, backend) {
				continue // only the leader can step down
			}
			targets = append(targets, on)
		}
		if len(targets) > 0 && k.Name != "noop" {
			s.offered[backend] = append(s.offered[backend], fmt.Sprintf("{use: %s, on: [%s]}", k.Name, strings.Join(targets, ", ")))
		}
	}
}

func (s *injectionsSoak) scenario(backend, faults string) string {
	return strings.NewReplacer("BACKEND", backend, "FAULTS", faults, "OVERLAP", setting("LOCKQUAKE_OVERLAP", "other-nodes"), "LENGTH", setting("LOCKQUAKE_LENGTH", "30s")).Replace(allOver)
}

// command writes the backend's scenario and returns the command that runs it.
func (s *injectionsSoak) command(backend string, seed int) (*exec.Cmd, *whole) {
	file := filepath.Join(s.out, "all-over-"+backend+".yaml")
	if err := os.WriteFile(file, []byte(s.scenario(backend, strings.Join(s.offered[backend], ", "))), 0o644); err != nil {
		s.t.Fatal(err)
	}
	bin := os.Getenv("LOCKQUAKE_BIN")
	if bin == "" {
		s.t.Fatal("LOCKQUAKE_BIN names no program")
	}
	cmd := exec.Command(bin, "run", file, "--provider", s.provider.Name(), "--seed", strconv.Itoa(seed), "--out", s.out)
	said := &whole{}
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return cmd, said
}

// run makes one run and counts its receipts.
func (s *injectionsSoak) run(backend string, seed, n int) {
	cmd, said := s.command(backend, seed)
	err := cmd.Run()
	code := cmd.ProcessState.ExitCode()
	if code != cli.CodeMet && code != cli.CodeFailed && code != cli.CodeInconclusive {
		s.t.Errorf("%s, seed %d: %v\n%s", backend, seed, err, said.String())
		return
	}
	made := s.count(backend, seed)
	fmt.Printf("run %d: %s, seed %d: exit code %d, %d injections, %d in all\n", n+1, backend, seed, code, made, s.made)
}

// count reads the receipts of a backend's latest run.
func (s *injectionsSoak) count(backend string, seed int) int {
	faults, err := results.ReadFaults(filepath.Join(s.out, "all-over-"+backend, "latest"))
	if err != nil {
		s.t.Fatal(err)
	}
	made := 0
	for _, f := range faults {
		if s.by[f.Name] == nil {
			s.by[f.Name] = scores{}
		}
		s.by[f.Name][f.Receipt.Status]++
		what := fmt.Sprintf("%s, seed %d: %s on %s = %s", backend, seed, f.Name, f.Selector, f.Target)
		if f.Receipt.Status == history.NotMade {
			continue
		}
		if len(f.Targets) > 0 { // otherwise no target was found
			made++
		}
		if f.Receipt.Status != history.Installed {
			s.unbitten = append(s.unbitten, fmt.Sprintf("%s: %s: %s", what, f.Receipt.Status, f.Receipt.Evidence))
		}
		if f.Healed != nil && f.Healed.Status != history.Installed {
			s.unhealed = append(s.unhealed, fmt.Sprintf("%s: heal %s: %s", what, f.Healed.Status, f.Healed.Evidence))
		}
		if f.Healed != nil && f.Healed.Status == history.NotInstalled {
			s.untaken = append(s.untaken, what)
		}
	}
	s.made += made
	return made
}

// end sends a signal to a run while at least one fault stands. After SIGKILL clean has to remove what is left.
func (s *injectionsSoak) end(backend string, signal os.Signal) {
	cmd, said := s.command(backend, 99)
	if err := cmd.Start(); err != nil {
		s.t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	for deadline := time.Now().Add(2 * time.Minute); !strings.Contains(said.String(), ": installed"); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Errorf("%s: no fault was seen to bite within 2 min\n%s", backend, said.String())
			break
		}
	}
	if err := cmd.Process.Signal(signal); err != nil {
		s.t.Error(err)
	}
	<-ended
	fmt.Printf("%s on %s: exit code %d\n", signal, backend, cmd.ProcessState.ExitCode())
	if signal == syscall.SIGKILL {
		time.Sleep(2 * time.Second) // the agent heals by itself
		fmt.Printf("clean after it removed %d things\n", len(lines(s.clean())))
	}
}

// clean runs the verb, and returns what it removed, except images of earlier builds, which no fault leaves.
func (s *injectionsSoak) clean() string {
	var out, said bytes.Buffer
	if code := execute([]string{"clean"}, cli.Streams{In: strings.NewReader(""), Out: &out, Err: &said}); code != cli.CodeMet {
		s.t.Errorf("clean: exit code %d: %s", code, said.String())
	}
	return regexp.MustCompile(`(?m)^image .*\n`).ReplaceAllString(out.String(), "")
}

// tell prints the result of each fault.
func (s *injectionsSoak) tell() {
	fmt.Printf("%d injections were made\n%-14s %9s %13s %13s %8s\n", s.made, "fault", "installed", "not-installed", "indeterminate", "not-made")
	for _, k := range faults.Kinds() {
		by := s.by[k.Name]
		fmt.Printf("%-14s %9d %13d %13d %8d\n", k.Name, by[history.Installed], by[history.NotInstalled], by[history.Indeterminate], by[history.NotMade])
	}
	for _, list := range []struct {
		what string
		all  []string
	}{{"did not bite", s.unbitten}, {"did not heal", s.unhealed}} {
		for _, x := range list.all {
			fmt.Printf("%s: %s\n", list.what, x)
		}
	}
	for _, fault := range slices.Sorted(maps.Keys(s.refused)) {
		for _, why := range s.refused[fault] {
			fmt.Printf("not offered: %s on %s\n", fault, why)
		}
	}
}
