package stories_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"flag"
	"fmt"
	"hash"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/all"
	"github.com/lockquake/lockquake/backends/external"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/stories"
)

var (
	update = flag.Bool("update", false, "write the golden file anew")
	dump   = flag.String("dump", "", "a folder to write every scenario of the catalog into, for a diff with those of another commit")
)

// TestScenariosStay compares the exact bytes of the scenario of each lock and story: the results of a suite must be
// comparable from release to release. The golden file has a line for each lock and story. The line has a hash of its
// scenarios and one of the other texts of a suite about it. After them come lines, each for a story or its family,
// with external clients that offer what no lock of the catalog does.
func TestScenariosStay(t *testing.T) {
	t.Parallel()
	const file = "testdata/scenarios.txt"
	var got bytes.Buffer
	for _, b := range all.All() {
		for _, l := range b.Locks {
			goldenOfLock(t, &got, b.Backend, l)
		}
	}
	goldenOfOffers(t, &got)
	goldenOfRandom(t, &got)
	if *update {
		if err := os.WriteFile(file, got.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	was := map[string]bool{}
	for line := range strings.Lines(string(want)) {
		was[line] = true
	}
	for line := range strings.Lines(got.String()) {
		if !was[line] {
			t.Errorf("it is another scenario, or said of it is something else: %s", line)
		}
	}
	if !t.Failed() && !bytes.Equal(got.Bytes(), want) {
		t.Error("stories are gone, or come in another order")
	}
	if t.Failed() {
		t.Logf("-dump DIR writes the scenarios down, for a diff; where they are meant to differ: make generate")
	}
}

// goldenOfLock writes the stories of a lock in their order, in a suite and in a quick one.
func goldenOfLock(t *testing.T, out *bytes.Buffer, b backends.Backend, l backends.Lock) {
	t.Helper()
	s := stories.Subject{
		Backend: b.Name, Servers: b.Servers, Lock: l, TTL: max(2*time.Second, l.MinTTL), Clients: 3, Users: 4, InProcess: b.InProcess,
	}
	quick := s
	quick.Quick, quick.Users = true, 2
	for _, x := range stories.Of(s) {
		text, rest := sha256.New(), sha256.New()
		whole, short := render(t, x, "suite-", s), render(t, x, "suite-", quick)
		fmt.Fprint(text, whole, short)
		fmt.Fprintln(rest, x.Claim, x.Quick, x.Grants, x.Why(s), x.Estimate(s))
		fmt.Fprintf(out, "%s/%s %s %s %s\n", b.Name, l.Name, x.Name, sum(text), sum(rest))
		if *dump != "" {
			save(t, filepath.Join(*dump, b.Name, l.Name, x.Name+".yaml"), whole)
			save(t, filepath.Join(*dump, b.Name, l.Name, "quick", x.Name+".yaml"), short)
		}
	}
}

// goldenOfOffers writes which stories apply to each combination of the traits that select them, and scenarios of
// drawn locks.
func goldenOfOffers(t *testing.T, out *bytes.Buffer) {
	t.Helper()
	texts, reasons := map[string]hash.Hash{}, map[string]hash.Hash{}
	for _, name := range stories.Names() {
		texts[name], reasons[name] = sha256.New(), sha256.New()
	}
	for _, s := range eachOffer() {
		for _, x := range stories.Of(s) {
			fmt.Fprintln(reasons[x.Family], x.Name, x.Why(s))
		}
	}
	const drawn = 300
	r := rand.New(rand.NewPCG(1, 2))
	for range drawn {
		s := drawnSubject(r)
		for _, x := range stories.Of(s) {
			fmt.Fprint(texts[x.Family], render(t, x, "locktest-", s), x.Claim)
		}
	}
	for _, name := range stories.Names() {
		fmt.Fprintf(out, "* %s %s %s\n", name, sum(texts[name]), sum(reasons[name]))
	}
}

// services lists the services that external clients may lock on.
var services = append(all.All(), external.Backend())

// serversOf returns a service's description of its servers.
func serversOf(name string) backends.Servers {
	return services[slices.IndexFunc(services, func(b listed.Backend) bool { return b.Name == name })].Servers
}

// eachOffer returns every combination of what an external client can announce.
func eachOffer() []stories.Subject {
	out := []stories.Subject{{TTL: 2 * time.Second, Clients: 3, Users: 4}}
	vary := func(n int, change func(s *stories.Subject, i int)) {
		var more []stories.Subject
		for _, s := range out {
			for i := range n {
				x := s
				change(&x, i)
				more = append(more, x)
			}
		}
		out = more
	}
	vary(len(services), func(s *stories.Subject, i int) {
		s.Backend, s.Servers, s.InProcess = services[i].Name, services[i].Servers, services[i].InProcess
	})
	vary(3, func(s *stories.Subject, i int) { s.Lock.Offers.Renewal = []string{"none", "call", "background"}[i] })
	vary(3, func(s *stories.Subject, i int) { s.Lock.Points = strings.Fields(points[i]) })
	for _, flag := range []func(s *stories.Subject){
		func(s *stories.Subject) { s.Lock.Offers.Expires = true },
		func(s *stories.Subject) { s.Lock.Offers.LossSignal = true },
		func(s *stories.Subject) { s.Lock.Offers.Token = backends.TokenService },
		func(s *stories.Subject) { s.Lock.Offers.Fair = true },
		func(s *stories.Subject) { s.Lock.Recovery = twice },
		func(s *stories.Subject) { s.Keeps = true },
		func(s *stories.Subject) { s.Elsewhere = true },
	} {
		vary(2, func(s *stories.Subject, i int) {
			if i == 0 {
				s.Lock.Offers.Token = max(s.Lock.Offers.Token, backends.TokenNone)
			} else {
				flag(s)
			}
		})
	}
	return out
}

var points = []string{"", "before-lock half-way lock-done before-unlock between unlock-done", "before-set asked replies-in set-done before-del del-done"}

func twice(ttl time.Duration, _ json.RawMessage) time.Duration { return 2 * ttl }

// drawnSubject varies everything that a scenario can depend on.
func drawnSubject(r *rand.Rand) stories.Subject {
	coin := func() bool { return r.IntN(2) == 0 }
	service := services[r.IntN(len(services))]
	s := stories.Subject{
		Backend: service.Name, Servers: service.Servers, TTL: []time.Duration{100, 970, 1000, 2000, 5001}[r.IntN(5)] * time.Millisecond, Clients: 1 + r.IntN(5), Users: 1 + r.IntN(5),
		InProcess: coin(), NoTokens: coin(), Keeps: coin(), Elsewhere: coin(), Quick: coin(),
	}
	s.Lock = backends.Lock{Name: "mine", Points: strings.Fields(points[r.IntN(3)]), YesToGone: coin(), Waits: coin(), Offers: backends.Offers{
		Blocking: coin(), Renewal: []string{"none", "call", "background"}[r.IntN(3)], LossSignal: coin(), Expires: coin(), WallClock: coin(), Fair: coin(),
		Token: []backends.TokenSource{backends.TokenNone, backends.TokenService}[r.IntN(2)],
	}}
	if coin() {
		s.Lock.Recovery = twice
	}
	return s
}

func goldenOfRandom(t *testing.T, out *bytes.Buffer) {
	t.Helper()
	s := stories.Subject{Backend: "redis", TTL: 970 * time.Millisecond, Clients: 3, Users: 4, NoTokens: true}
	for i, d := range []stories.Draw{
		{},
		{Faults: []string{"kill", "{use: delay, to: all, by: 5ms}"}, On: []string{"holder(lock-1)", "leader"}, For: 7 * time.Second},
		{Expect: map[string]string{"stale_writes": "0", "judged": ">=3"}},
	} {
		x := stories.Random(uint64(i+5), d)
		text := sha256.New()
		fmt.Fprint(text, render(t, x, "suite-", s))
		fmt.Fprintf(out, "* random-%d %s %v\n", i, sum(text), x.Estimate(s))
	}
}

func render(t *testing.T, x stories.Story, prefix string, s stories.Subject) string {
	t.Helper()
	text, err := x.Scenario(prefix, s)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func sum(h hash.Hash) string { return fmt.Sprintf("%x", h.Sum(nil)[:6]) }

func save(t *testing.T, file, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
