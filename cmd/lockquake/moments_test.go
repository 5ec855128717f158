//go:build integration

package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/lockquake/lockquake/internal/cli"
	"github.com/lockquake/lockquake/results"
)

// TestAloneRandomMoments ends runs at random moments, by Ctrl-C, SIGTERM, SIGHUP and SIGKILL in turn. Nothing may be
// left, and the files on disk must be readable. LOCKQUAKE_MOMENTS sets the number of rounds of the four with each
// provider, LOCKQUAKE_SEED the moments, LOCKQUAKE_TEST_PROVIDER the provider.
func TestAloneRandomMoments(t *testing.T) {
	rounds, err := strconv.Atoi(setting("LOCKQUAKE_MOMENTS", "0"))
	if err != nil {
		t.Fatal(err)
	}
	if rounds == 0 {
		t.Skip("it takes minutes: make test-all sets LOCKQUAKE_MOMENTS")
	}
	number, err := strconv.ParseUint(setting("LOCKQUAKE_SEED", strconv.FormatInt(time.Now().UnixNano()>>20, 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("LOCKQUAKE_SEED=%d repeats the moments\n", number)
	random := rand.New(rand.NewPCG(number, 0))
	providers := []string{"docker", "local"}
	if p := os.Getenv("LOCKQUAKE_TEST_PROVIDER"); p != "" {
		providers = []string{p}
	}
	for range rounds {
		for _, provider := range providers {
			for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGKILL} {
				after := time.Duration(random.Int64N(int64(15 * time.Second)))
				t.Run(fmt.Sprintf("%s-%v-%v", provider, s, after.Round(time.Millisecond)), func(t *testing.T) { atMoment(t, provider, s, after) })
			}
		}
	}
}

// TestAloneInterruptedWhilePrepared ends docker runs during their preparation, by each signal at a random moment. They
// must end as interrupted, and leave no container, network or file. LOCKQUAKE_MOMENTS sets the number of rounds of the
// three, LOCKQUAKE_SEED the moments.
func TestAloneInterruptedWhilePrepared(t *testing.T) {
	rounds, err := strconv.Atoi(setting("LOCKQUAKE_MOMENTS", "1"))
	if err != nil {
		t.Fatal(err)
	}
	number, err := strconv.ParseUint(setting("LOCKQUAKE_SEED", strconv.FormatInt(time.Now().UnixNano()>>20, 10)), 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Printf("LOCKQUAKE_SEED=%d repeats the moments\n", number)
	random := rand.New(rand.NewPCG(number, 1))
	for range max(rounds, 1) {
		for _, s := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
			after := 200*time.Millisecond + time.Duration(random.Int64N(int64(5800*time.Millisecond)))
			t.Run(fmt.Sprintf("%v-%v", s, after.Round(time.Millisecond)), func(t *testing.T) { interruptedAt(t, s, after) })
		}
	}
}

// interruptedAt sends a signal to a run some time after its start.
func interruptedAt(t *testing.T, s syscall.Signal, after time.Duration) {
	t.Setenv("TMPDIR", t.TempDir()) // only this run leaves anything there
	p := begin(t, "run", "etcd-holder-pause", "--provider", "docker")
	time.Sleep(after)
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	switch code := p.wait(t); {
	case code == -1 && after < time.Second && p.stderr.String() == "":
		t.Log("it came before the program had begun")
	case code != cli.CodeInterrupted:
		t.Errorf("exit code %d, should be %d\n%s", code, cli.CodeInterrupted, p.stderr.String())
	}
	gone(t, p)
	emptied(t)
}

// emptied demands that the directory for temporary files has only the state directory, empty.
func emptied(t *testing.T) {
	t.Helper()
	for _, pattern := range []string{"*", "*/*"} {
		left, err := filepath.Glob(filepath.Join(os.TempDir(), pattern))
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range left {
			if filepath.Base(path) != fmt.Sprintf("lockquake-%d", os.Getuid()) {
				t.Errorf("left behind: %s", path)
			}
		}
	}
}

// atMoment sends a signal to a run some time after its start, and checks what is left of it.
func atMoment(t *testing.T, provider string, s syscall.Signal, after time.Duration) {
	p := begin(t, "run", "etcd-holder-pause", "--provider", provider)
	time.Sleep(after)
	if err := p.cmd.Process.Signal(s); err != nil {
		t.Fatal(err)
	}
	code := p.wait(t)
	begun, err := filepath.Glob(filepath.Join(p.dir, "runs", "etcd-holder-pause", "2*")) // latest never links to an interrupted run
	if err != nil {
		t.Fatal(err)
	}
	switch {
	case s == syscall.SIGKILL:
		t.Logf("left, and cleaned: %s", clean(t))
	case code == -1 && len(begun) > 0:
		t.Errorf("%v ended a run that had begun, before it healed\n%s", s, p.stderr.String())
	case code == -1: // the signal came before anything had begun
	case code != cli.CodeInterrupted:
		t.Errorf("exit code %d, should be %d\n%s", code, cli.CodeInterrupted, p.stderr.String())
	case len(begun) > 0:
		readable(t, begun[0])
	}
	gone(t, p)
}

// readable demands that an interrupted run was finished and reported.
func readable(t *testing.T, dir string) {
	t.Helper()
	env, err := results.ReadEnv(dir)
	if err != nil || !env.Interrupted || !env.Finished {
		t.Errorf("env.json does not say that the run was interrupted and brought to its end: %v", err)
	}
	r, err := results.ReadReport(dir)
	if err != nil || r.Verdict == results.Pass {
		t.Errorf("its verdict is %q, %v", r.Verdict, err)
	}
	if _, err := os.Stat(filepath.Join(dir, results.FileReport)); err != nil {
		t.Error(err)
	}
	for _, f := range r.Faults {
		if f.Receipt.Status == "installed" && (f.Healed == nil || f.Healed.Status != "installed") {
			t.Errorf("a fault was not seen to be healed: %+v", f)
		}
	}
}
