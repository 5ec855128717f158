package all

import (
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

// The lock, or the version of the servers, declares which clock ends a grant.
func TestGrantsThatEndByAWallClock(t *testing.T) {
	for _, b := range All() {
		for _, l := range b.Locks {
			want := l.Offers.Expires && (Folder(b) == "redis" || b.Name == "postgres")
			top, err := b.New(topology.Common{TTL: 10 * time.Second, Lock: l.Name}, func(any) error { return nil })
			if err != nil {
				t.Errorf("%s of %s: %v", l.Name, b.Name, err)
				continue
			}
			if got := listed.WallClock(l, top); got != want {
				t.Errorf("grants of %s of %s end by a wall clock: %t; if so it is, name the service in this test", l.Name, b.Name, got)
			}
		}
	}
}

// fileOf returns the file in a backend's folder that contains a lock's name.
func fileOf(t *testing.T, folder, lock string) string {
	t.Helper()
	files, err := filepath.Glob("../" + folder + "/*.go")
	below, wrong := filepath.Glob("../" + folder + "/*/*.go")
	if err = errors.Join(err, wrong); err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`(?i)name:? *=? *` + strconv.Quote(lock))
	for _, f := range slices.Concat(files, below) {
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.HasSuffix(f, "_test.go") && named.Match(text) {
			return "backends/" + strings.TrimPrefix(f, "../")
		}
	}
	return "backends/" + folder
}

// TestList checks every backend's data against the contract.
func TestList(t *testing.T) {
	list := All()
	if !slices.IsSortedFunc(list, func(a, b listed.Backend) int { return strings.Compare(a.Name, b.Name) }) {
		t.Error("the list is not sorted by name")
	}
	for _, b := range list {
		if b.Name == "" || b.Doc == "" || b.New == nil || len(b.Locks) == 0 {
			t.Errorf("backend %q lacks a name, a doc, a topology or locks", b.Name)
			continue
		}
		if b.Locks[0].Wrong != "" {
			t.Errorf("the default lock of %s is a wrong one: %s", b.Name, b.Locks[0].Wrong)
		}
		for _, l := range b.Locks {
			if l.Name == "" || l.Doc == "" || l.Dial == nil || len(l.Points) == 0 || l.Offers.Token == "" || l.Offers.Renewal == "" {
				t.Errorf("%s/%s lacks a name, a doc, a dial, points, or what it offers", b.Name, l.Name)
			}
			if l.Recovery == nil || l.Bound(10*time.Second, nil) <= 0 {
				file := fileOf(t, Folder(b), l.Name)
				t.Errorf("%s: lock %s of %s has no Recovery, or one that is not above 0", file, l.Name, b.Name)
			}
			if !inHalves(l.Points) {
				t.Errorf("%s/%s: points %q: those of the acquire come first, those of the release behind them, and the name of the first of "+
					"each half, and of no other, begins with before-: the default suite finds the release by that", b.Name, l.Name, l.Points)
			}
			if got, ok := b.Lock(l.Name); !ok || got.Name != l.Name {
				t.Errorf("%s does not find its lock %s", b.Name, l.Name)
			}
		}
	}
}

// inHalves reports whether two points begin with "before-": the first, and a later one that is not the last.
func inHalves(points []string) bool {
	var halves []int
	for i, p := range points {
		if strings.HasPrefix(p, "before-") {
			halves = append(halves, i)
		}
	}
	return len(halves) == 2 && halves[0] == 0 && halves[1] < len(points)-1
}

// TestServiceWithoutNodes asks each service what it offers before any node runs, as the engine does when it plans a run.
func TestServiceWithoutNodes(t *testing.T) {
	for _, b := range All() {
		top, err := b.New(topology.Common{TTL: 10 * time.Second, Lock: b.Locks[0].Name}, func(any) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		t.Run(b.Name, func(t *testing.T) {
			defer func() {
				if r := recover(); r != nil {
					t.Errorf("Service(nil) of its topology panics: %v", r)
				}
			}()
			if top.Service(nil).Facts()[chaos.FactServes] == "" {
				t.Errorf("Facts does not have %q", chaos.FactServes)
			}
		})
	}
}

// TestEveryServiceHasAConformanceTest requires, for each service, the test through which make conformance finds its
// locks.
func TestEveryServiceHasAConformanceTest(t *testing.T) {
	for _, b := range All() {
		files, err := filepath.Glob("../" + Folder(b) + "/*_test.go")
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(files, func(f string) bool {
			text, err := os.ReadFile(f)
			return err == nil && strings.Contains(string(text), "\nfunc TestConformance(")
		}) {
			t.Errorf("backends/%s has no TestConformance; backends/postgres/integration_test.go has a short one", Folder(b))
		}
	}
}
