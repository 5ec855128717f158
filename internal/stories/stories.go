// Package stories has the default suite of a lock: scenarios, as templates, that every lock is put to which offers what they are about.
// `lockquake suite` and package locktest both take them from here.
package stories

import (
	"fmt"
	"slices"
	"strings"
	"text/template"
	"time"

	"github.com/lockquake/lockquake/backends"
)

// Subject is a lock that is put to stories.
type Subject struct {
	Backend string        // as scenarios write it
	Lock    backends.Lock // its name, what it offers, and what it announces
	TTL     time.Duration
	Clients int // client processes that fight, where many do
	Users   int // of each
	// InProcess says that clients are goroutines, which cannot be paused.
	InProcess bool
	// NoTokens says that the judge expects tokens of a lock of that name, and this one has none.
	NoTokens bool
	// Keeps says that a grant does not end while its client lives, though its holder asks for nothing.
	Keeps bool
	// Elsewhere says that the clients may keep their locks where the service is not asked for them.
	Elsewhere bool
	// Quick makes runs shorter whose length is free.
	Quick bool
}

// Long is for how long an acquire may wait that must succeed once another grant has ended: longer than the bound after which the judge
// says that a lock is stuck.
func (s Subject) Long() time.Duration {
	const slack = 3 * time.Second
	return max(4*s.TTL+5*time.Second, 2*s.TTL+s.Lock.Bound(s.TTL, nil)+slack)
}

// Patience is for how long a lock may stay that nobody holds: as long as a dead holder's, and a bit.
func (s Subject) Patience() time.Duration {
	const slack = 500 * time.Millisecond
	bound := s.Lock.Bound(s.TTL, nil)
	if bound == 0 {
		bound = s.TTL
	}
	return bound + slack
}

// PatienceAfter is Patience with a service that answers nobody for a while: a request that waited for it is granted then, when its user has given up.
func (s Subject) PatienceAfter(silence time.Duration) time.Duration { return silence + s.Patience() }

// halves are the points of an acquire and those of a release. Each begins with a point "before-...". Those that the lock comes to only
// where a scenario asks for it are left out.
func (s Subject) halves() (acquire, release []string) {
	points := slices.DeleteFunc(slices.Clone(s.Lock.Points), func(p string) bool { return s.Lock.Waits && p == "wait-done" })
	for i, p := range points {
		if i > 0 && strings.HasPrefix(p, "before-") {
			return points[:i], points[i:]
		}
	}
	return points, nil
}

// within are the points in the middle of an acquire: the service was asked, and the lock has not yet been handed out.
func (s Subject) within() []string {
	acquire, _ := s.halves()
	if len(acquire) < 3 {
		return nil
	}
	return acquire[1 : len(acquire)-1]
}

// Story is a scenario that a lock is put to. It expects what is true of every lock, whatever breaks: no grants that meet, no release
// that frees another's grant, no tokens that fall (which are lockquake's defaults), no lock that stays taken.
type Story struct {
	Name   string
	Claim  string
	Quick  bool                 // it takes seconds, and belongs to a quick suite
	Grants int64                // how many it is about; 0: it is not about a number
	needs  func(Subject) string // "" or why it does not apply; nil: it always does
	lasts  float64              // about how many TTLs; 0: its steps wait for one grant to end
	fixed  time.Duration        // beside lasts, in a suite that is not quick
	point  string               // at which something happens; "": none
	free   []string             // counts that may be anything, whatever the lock does; what text names goes first
	text   string               // the rest, a template
}

// Short says what a run is worth that found nothing, and has fewer grants than its story is about; "": it has as many.
func Short(judged, about int64) string {
	if judged >= about {
		return ""
	}
	return fmt.Sprintf("%d grants were judged, and the story is about %d: what needs more than those was not seen, and of what comes by chance the rate is below 3/%d with 95 %% confidence",
		judged, about, judged)
}

// Why says why the story does not apply to the lock; "": it does.
func (t Story) Why(s Subject) string {
	if t.needs == nil {
		return ""
	}
	return t.needs(s)
}

// Estimate is about how long a run of the story takes, without the start of servers.
func (t Story) Estimate(s Subject) time.Duration {
	around, lasts := 3*time.Second, t.lasts // clients start, and what was broken settles
	if lasts == 0 && t.fixed == 0 {         // steps wait for a grant to end
		around, lasts = 1500*time.Millisecond, 1
	}
	out := around + time.Duration(lasts*float64(s.TTL))
	if !s.Quick {
		out += t.fixed
	}
	return out
}

// Scenario is the story as a scenario, whose name begins with the prefix.
func (t Story) Scenario(prefix string, s Subject) (string, error) {
	tmpl, err := template.New(t.Name).Funcs(template.FuncMap{
		"ttl": func(n float64) time.Duration { return time.Duration(n * float64(s.TTL)).Round(time.Millisecond) },
	}).Parse(`name: {{.Prefix}}{{.Name}}
claim: {{.Claim}}
backend: {use: {{.Backend}}, lock: {{.Lock.Name}}, ttl: {{ttl 1}}}
` + t.text)
	if err != nil {
		return "", err
	}
	var out strings.Builder
	err = tmpl.Execute(&out, struct {
		Subject
		Prefix, Name, Claim, Point string
		Bound                      time.Duration
		Troubled, OddNames         []string
	}{s, prefix, t.Name, t.Claim, t.point, s.Lock.Bound(s.TTL, nil), []string{"A", "B", "C"}, oddNames})
	text := out.String()
	free := slices.Clone(t.free)
	if s.NoTokens { // or the run were unknown: the judge waits for those of the lock that stands in
		free = append(free, "token_regressions")
	}
	for _, count := range free {
		if !strings.Contains(text, count+":") {
			text = strings.Replace(text, "expect: {", "expect: {"+count+`: ">=0", `, 1)
		}
	}
	return text, err
}

// Of lists the stories of a lock in the order in which they are run, also those that do not apply. Those about its points have a
// point of this lock in their name.
func Of(s Subject) []Story {
	out := slices.Clone(always)
	_, release := s.halves()
	for _, p := range release[:max(0, len(release)-1)] {
		out = append(out, Story{
			Name: "late-release-" + p, Quick: true, free: outlived, needs: expiring, point: p, text: lateAt,
			Claim: "A release is held at " + p + " until another user has the lock, and then goes on.",
		})
	}
	for _, p := range s.within() {
		out = append(out, Story{
			Name: "crash-" + p, Quick: true, needs: both(processes, expiring), point: p, text: dieAt,
			Claim: "A user dies in an acquire, at " + p + ", and another one gets the lock in time.",
		}, Story{
			Name: "late-token-" + p, Quick: true, free: outlived, needs: fenced, point: p, text: lateToken,
			Claim: "An acquire is held at " + p + " until another user has the lock. A fence must not refuse the one who has it.",
		})
	}
	out = append(out, waits...)
	slices.SortStableFunc(out, func(a, b Story) int {
		if a.Quick == b.Quick {
			return 0
		}
		if a.Quick {
			return -1
		}
		return 1
	})
	return out
}

// Names lists the stories that Of has for some lock; those about points once, with POINT in the place of one.
func Names() []string {
	var out []string
	for _, t := range slices.Concat(always, waits) {
		out = append(out, t.Name)
	}
	return append(out, "late-release-POINT", "crash-POINT", "late-token-POINT")
}

// What a service does when it loses a server.
var (
	leads = []string{"etcd", "zookeeper"}        // another one leads, and no grant is lost
	loses = []string{"sentinel", "rediscluster"} // another one leads that may not know all grants
)

// unasked are services that nobody can ask what they have of a lock, and what they were asked for.
var unasked = []string{"external"}

// CountsCalls tells whether the service counts requests at once, so that it can be told what one call costs.
func (s Subject) CountsCalls() bool { return s.Backend != "postgres" }

// CountsConnections tells whether the service counts the connections that it took.
func (s Subject) CountsConnections() bool {
	return !slices.Contains([]string{"memory", "etcd", "zookeeper"}, s.Backend)
}

// Asked tells whether the service can be asked who has the lock.
func (s Subject) Asked() bool { return !s.Elsewhere && counted(s) == "" }

// counted needs a service that tells how much it was asked for.
func counted(s Subject) string {
	if slices.Contains(unasked, s.Backend) {
		return "nobody can ask the service how many requests it had"
	}
	return ""
}

// asked needs that.
func asked(s Subject) string {
	if !s.Asked() {
		return "nobody can ask the service what it has of the lock"
	}
	return ""
}

// expiring, renewable and the like are what stories need.
func expiring(s Subject) string {
	if !s.Lock.Offers.Expires {
		return "the lock's grants name no end"
	}
	return ""
}

func renewable(s Subject) string {
	if s.Lock.Offers.Renewal != "call" {
		return "the lock is no lock.Renewer"
	}
	return expiring(s)
}

// idle says that a holder who does nothing outlives its grant.
func idle(s Subject) string {
	switch {
	case s.Keeps, s.Lock.Offers.Renewal == "background":
		return "the lock renews grants by itself"
	case s.Lock.Bound(s.TTL, nil) == 0:
		return "the lock names no bound for its recovery"
	}
	return expiring(s)
}

func fenced(s Subject) string {
	if s.Lock.Offers.Token == backends.TokenNone {
		return "the lock has no fencing tokens"
	}
	return expiring(s)
}

func fair(s Subject) string {
	if !s.Lock.Offers.Fair {
		return "the lock does not promise to serve users in order"
	}
	return ""
}

func majority(s Subject) string {
	if !slices.Contains(s.within(), "replies-in") {
		return "the lock asks no majority of servers"
	}
	return ""
}

// alone is the other way round: who asks a majority gives each server so little time that it cannot clean up through a slow link either.
func alone(s Subject) string {
	if majority(s) == "" {
		return "the lock asks a majority of servers, and gives each little time"
	}
	return ""
}

func processes(s Subject) string {
	if s.InProcess {
		return fmt.Sprintf("the clients of %s are no processes, which could be broken", s.Backend)
	}
	return ""
}

// both joins two needs.
func both(a, b func(Subject) string) func(Subject) string {
	return func(s Subject) string {
		if why := a(s); why != "" {
			return why
		}
		return b(s)
	}
}
