package capacity

import (
	"fmt"
	"math"
	"strings"

	"github.com/lockquake/lockquake/results/figure"
)

// Cause is the limit of a point.
type Cause string

// The causes, in the order in which they are named if several are near: first those that make the point worthless,
// then the specific before the general.
const (
	Generator Cause = "the load generator"
	Emulation Cause = "the emulation of the network"
	Processor Cause = "the servers' CPU"
	Fsync     Cause = "the servers' fsync"
	Serial    Cause = "the per-lock ceiling"
	Distance  Cause = "the network's distance"
	Users     Cause = "the number of users"
	Machine   Cause = "the machine's CPU"
	Offered   Cause = "the rate that was offered"
	Others    Cause = "other programs on the machine"
	Unknown   Cause = notKnown
)

// How near its ceiling a candidate must be to be named.
const (
	cpuFull = 0.90 // of the machine's cores
	// generatorPart is the share of clients and supervisor in the used CPU above which the generator limits a full
	// machine.
	generatorPart = 0.50
	serverFull    = 0.90 // of the maximum of one server: its limit, or one core
	othersPart    = 0.25 // share of the cores that other programs must use to be the limit
	// queuePackets is the lowest throughput a second observed for the packet queue that replaces netem, on a machine
	// with other load. At its best it is twice as high (docs/internals/measurements.md). A false mark only drops a
	// point from the fit; a missed mark distorts it.
	queuePackets = 22_000
	queueFull    = 0.90
	fsyncPart    = 0.50 // of the time that waits for a sync
	busy         = 0.85 // of the time in which locks are held or handed over
	distancePart = 0.80 // of a cycle without the hold
	maxTrips     = 3
	noDistance   = 0.1  // ms: a faster connect is the machines' work, not the network's
	alone        = 0.90 // of the throughput of that many users without contention
	aloneMost    = 1.25 // far above it, the single user was slowed by something else
	servedPart   = 0.97 // of the arrivals offered
	// lateMost is the permitted p99 delay of a generator's starts, as a part of the objective's time. Without an
	// objective lateMS applies.
	lateMost = 0.10
	lateMS   = 10
)

// Candidate is one cause with its evidence.
type Candidate struct {
	Cause    Cause
	Known    bool    // it was measured
	Share    float64 // of its ceiling
	Bound    float64 // share from which the cause can be named; 0: never on this point
	Of       string  // the whole of the share
	Reached  bool
	Evidence string
}

// Limit is the named cause, Unknown if none is near, with all candidates.
type Limit struct {
	Cause      Cause
	Evidence   string
	Candidates []Candidate
}

// limitOf names the limit of a reading. one is the cycles a second of a single user on the same setting; 0 if not
// measured.
func limitOf(r Reading, one float64, o *Objective) Limit {
	l := Limit{Cause: Unknown, Evidence: "no candidate is near its ceiling"}
	if r.Cycles.N == 0 {
		l.Evidence = "nothing was measured"
		return l
	}
	generator, processor := r.processors(o)
	users := r.users(one)
	l.Candidates = []Candidate{
		generator, r.emulation(), processor, r.fsync(), r.serial(), r.distance(users.Reached),
		users, r.others(),
	}
	for _, c := range l.Candidates {
		if c.Reached {
			l.Cause, l.Evidence = c.Cause, c.Evidence
			return l
		}
	}
	if _, n := l.nearest(); n != "" {
		l.Evidence = n
	}
	return l
}

// nearest describes the candidate that is closest to its bound; "" if no distance is known.
func (l Limit) nearest() (cause Cause, said string) {
	most := 0.0
	for _, c := range l.Candidates {
		if c.Known && c.Share < c.Bound && c.Share/c.Bound > most {
			cause, most = c.Cause, c.Share/c.Bound
			said = fmt.Sprintf("nearest: %s, %s of %s", c.Cause, percent(c.Share), c.Of)
		}
	}
	return cause, said
}

// String names the limit. If no cause was reached, it names the nearest one and what would show it.
func (l Limit) String() string {
	if l.Cause != Unknown {
		return string(l.Cause)
	}
	s := string(Unknown)
	cause, near := l.nearest()
	if near != "" {
		s += " (" + near + ")"
	}
	switch cause {
	case Generator, Emulation, Machine, Others:
		return s + ": " + lessToDo
	}
	return s + ": more --users would show it"
}

// processors checks the CPU. On a full machine every program slows the others: the generator is the limit if clients
// and supervisor use most of it.
func (r Reading) processors(o *Objective) (generator, servers Candidate) {
	generator, servers = Candidate{Cause: Generator}, Candidate{Cause: Processor}
	if late, most := r.Late.Mid, lateAllowed(o); r.Rate > 0 && late > most {
		generator = Candidate{
			Cause: Generator, Known: true, Share: late / most, Reached: true,
			Evidence: fmt.Sprintf("it began arrivals %s late (p99); %s is allowed", figure.Milli(late),
				figure.Milli(most)),
		}
	}
	if r.Cores == 0 || len(r.CPU) == 0 {
		return generator, servers
	}
	sum := 0.0
	var parts []string
	for _, name := range processes {
		if i, ok := r.CPU[name]; ok {
			sum += i.Mid
			parts = append(parts, fmt.Sprintf("%.2f by %s", i.Mid, name))
		}
	}
	on := ""
	if r.Host != "" {
		on = " on " + r.Host
	}
	said := fmt.Sprintf("%.2f of %d cores used%s: %s", sum, r.Cores, on, strings.Join(parts, ", "))
	// other programs and the kernel's own work fill the machine too; see others for a large share of them
	used := sum
	if rest := r.Machine.Mid - sum; r.Machine.N > 0 && rest > 0 && rest < othersPart*float64(r.Cores) {
		used = r.Machine.Mid
		said += fmt.Sprintf("; %.2f in use on the whole machine", r.Machine.Mid)
	}
	share := used / float64(r.Cores)
	if r.CPU["servers"].N+r.CPU["clients"].N == 0 && r.Host == "" { // all of them are one process
		return generator, Candidate{
			Machine, true, share, cpuFull, ofCores, share >= cpuFull,
			said + ", whose process contains the servers and clients",
		}
	}
	load := sum - r.CPU["servers"].Mid // a resource belongs to the load, not to the lock
	byLoad := load >= generatorPart*sum
	servers.Known, servers.Share, servers.Evidence = true, share, said
	servers.Reached = share >= cpuFull && !byLoad
	if !byLoad {
		servers.Bound, servers.Of = cpuFull, ofCores
	}
	one := r.Busiest.Mid / r.ServerCores
	serverIs := r.ServerCores > 0 && one >= serverFull // no server can do more, whatever else is busy
	if serverIs || r.ServerCores > 0 && (byLoad || one > share) {
		servers.Share, servers.Bound, servers.Of, servers.Reached = one, serverFull, "capacity of one server", serverIs
		servers.Evidence = fmt.Sprintf("the busiest server used %.2f of at most %.2g cores", r.Busiest.Mid,
			r.ServerCores)
	}
	if !generator.Reached {
		generator.Known, generator.Share, generator.Evidence = true, load/float64(r.Cores), said
		generator.Reached = share >= cpuFull && byLoad && !serverIs
		if byLoad {
			generator.Share, generator.Bound, generator.Of = share, cpuFull, ofCores
		}
	}
	return generator, servers
}

// ofCores is the whole of a share of the CPU.
const ofCores = "the cores"

// processes are the users of CPU.
var processes = []string{"servers", "clients", "supervisor", "resource"}

// others checks the other programs of the machine. They are named last: a full machine slows nothing that waits for
// something else.
func (r Reading) others() Candidate {
	c := Candidate{Cause: Others}
	if r.Machine.N == 0 || r.Cores == 0 || len(r.CPU) == 0 {
		return c
	}
	own := 0.0
	for _, i := range r.CPU {
		own += i.Mid
	}
	c.Known, c.Share, c.Of = true, r.Machine.Mid/float64(r.Cores), ofCores
	if r.Machine.Mid-own >= othersPart*float64(r.Cores) {
		c.Bound = cpuFull
	}
	c.Reached = c.Share >= cpuFull // below othersPart, processors has named one of the run's own
	c.Evidence = fmt.Sprintf("%.2f of %d cores in use, %.2f of them by programs outside of the runs",
		r.Machine.Mid, r.Cores, max(0, r.Machine.Mid-own))
	return c
}

// lateAllowed returns the permitted delay of a generator in ms.
func lateAllowed(o *Objective) float64 {
	if o == nil {
		return lateMS
	}
	return lateMost * float64(o.Most) / 1e6
}

func (r Reading) emulation() Candidate {
	c := Candidate{Cause: Emulation}
	if r.Packets.N == 0 {
		return c
	}
	c.Known, c.Share, c.Bound, c.Of = true, r.Packets.Mid/queuePackets, queueFull, "its certain capacity"
	c.Reached = c.Share >= queueFull
	c.Evidence = fmt.Sprintf("%s packets/s; the packet queue certainly handles %s",
		figure.Number(r.Packets.Mid), figure.Number(queuePackets))
	return c
}

// serial checks the locks. Each has one holder at a time, so all of them together cannot exceed Locks/(hold +
// handoff). The handoff is its mean, if that was measured: locks in permanent use then have a share of 1. A median is
// less precise.
func (r Reading) serial() Candidate {
	c := Candidate{Cause: Serial}
	handoff := r.handoff()
	if r.Handoff.N == 0 || r.Hold.N == 0 || r.Hold.Mid+handoff.Mid <= 0 {
		return c
	}
	locks := r.Locks
	if r.Own {
		locks = r.Users
	}
	ceiling := float64(locks) * 1e3 / (r.Hold.Mid + handoff.Mid)
	c.Known, c.Share, c.Bound, c.Of = true, r.Cycles.Mid/ceiling, busy, "it"
	c.Reached = c.Share >= busy && c.Share <= 1/busy // far above it, the median of the handoffs is not their mean
	c.Evidence = fmt.Sprintf("%s cycles/s of at most %s: %s / (hold %s + handoff %s)", figure.Number(r.Cycles.Mid),
		figure.Number(ceiling), figure.Of(locks, "lock"), figure.Milli(r.Hold.Mid), figure.Milli(handoff.Mid))
	return c
}

// handoff returns the mean of the handoffs, or their median if only that was measured.
func (r Reading) handoff() Interval {
	if r.HandoffMean.N > 0 {
		return r.HandoffMean
	}
	return r.Handoff
}

// fsync checks the time that waits for a write to disk. With locks always busy that is one write per handoff.
// Otherwise it is two per cycle, one for the acquire and one for the release.
func (r Reading) fsync() Candidate {
	c := Candidate{Cause: Fsync}
	if r.Fsync.N == 0 {
		return c
	}
	of, n, what := r.Cycle.Mid-r.Hold.Mid, 2.0, "the cycle without the hold"
	if r.serial().Reached {
		of, n, what = r.handoff().Mid, 1.0, "the handoff"
	}
	if !(of > 0) {
		return c
	}
	c.Known, c.Share, c.Bound, c.Of = true, n*r.Fsync.Mid/of, fsyncPart, what
	c.Reached = c.Share >= fsyncPart && c.Share <= 1.5 // above it, other waiting is included
	c.Evidence = fmt.Sprintf("%g × fsync of %s is %s of %s, %s", n, figure.Milli(r.Fsync.Mid), percent(c.Share), what,
		figure.Milli(of))
	return c
}

// distance compares a cycle, without its hold, with the travel time of its messages. A server may count more requests
// than round trips, because some are parallel or made by a script. The share then exceeds 1/distancePart, or the
// trips exceed maxTrips. In that case, without contention, it takes as many round trips as fit into the cycle, up to
// maxTrips: with more, some number of trips fits into any cycle. Without a count of requests, as on an attached
// service, it takes two: a single user's cycle has no fewer.
func (r Reading) distance(alone bool) Candidate {
	c := Candidate{Cause: Distance}
	away := r.Trip.Mid
	if r.Trip.N == 0 {
		away = float64(r.RTT) / 1e6
	}
	of := r.Cycle.Mid - r.Hold.Mid
	counted := r.Requests.N > 0
	if away <= 0 || !counted && (!alone || away < noDistance) || !(of > 0) {
		return c
	}
	trips, said := r.Requests.Mid, ""
	many := trips >= maxTrips+0.5
	if !counted { // without contention
		trips, said = 2, " (one for the acquire and one for the release: requests were not counted)"
	} else if fit := math.Floor(of / away); (many || trips*away/of > 1/distancePart) && alone && fit >= 1 &&
		fit <= maxTrips {
		many, trips = false, fit
		said = fmt.Sprintf(" (the servers counted %s requests)", figure.Number(r.Requests.Mid))
	}
	c.Known, c.Share, c.Of = true, away*trips/of, "the cycle without the hold"
	if !many {
		c.Bound = distancePart
	}
	c.Reached = c.Share >= distancePart && c.Share <= 1/distancePart && !many
	c.Evidence = fmt.Sprintf("%s of %s are %s of the cycle without the hold, %s%s", roundTrips(trips),
		figure.Milli(away), percent(c.Share), figure.Milli(of), said)
	return c
}

func roundTrips(n float64) string {
	if n == 1 {
		return "1 round trip"
	}
	return figure.Number(n) + " round trips"
}

// users checks for contention: without it, more users do more.
func (r Reading) users(one float64) Candidate {
	if r.Rate > 0 {
		c := Candidate{Cause: Offered, Known: true, Share: r.Cycles.Mid / r.Rate, Bound: servedPart, Of: "it"}
		c.Reached = c.Share >= servedPart
		c.Evidence = fmt.Sprintf("%s of %s offered per second were served", figure.Number(r.Cycles.Mid),
			figure.Number(r.Rate))
		return c
	}
	c := Candidate{Cause: Users}
	if one <= 0 {
		return c
	}
	free := float64(r.Users) * one
	c.Known, c.Share, c.Bound, c.Of = true, r.Cycles.Mid/free, alone, "their rates alone"
	c.Reached = c.Share >= alone && c.Share <= aloneMost
	c.Evidence = fmt.Sprintf("%s cycles/s, compared with %s if %s were each as fast as one alone (%s/s)",
		figure.Number(r.Cycles.Mid), figure.Number(free), figure.Of(r.Users, "user"), figure.Number(one))
	return c
}

// littleMost is the permitted deviation of a point from Little's law, as a fraction.
const littleMost = 0.10

// Little compares a reading with Little's law, L = λW: the mean number in service is the throughput times the time of
// each. Source: J. D. C. Little, A Proof for the Queuing Formula L = λW, Operations Research 9 (1961).
type Little struct {
	Known   bool
	Within  float64 // throughput × mean cycle
	Counted float64 // users counted in service; without a count, all users of a closed loop
	Off     float64 // |Counted/Within - 1|
	// part of the users that were in no cycle: Within and Counted come from the same events, and do not include them
	Outside  float64
	Violated bool
}

// littleOf applies the law sample by sample: the product of two medians is not the median of products.
func littleOf(r Reading) Little {
	l := Little{Within: r.Within.Mid, Counted: r.Counted.Mid, Outside: r.Outside.Mid}
	if r.Ratio.N == 0 {
		return l
	}
	l.Known, l.Off = true, math.Abs(r.Ratio.Mid-1)
	l.Violated = l.Off > littleMost || r.Rate == 0 && l.Counted > float64(r.Users)*(1+littleMost)
	return l
}

// within returns the number of users in service by Little's law.
func (s Sample) within() float64 { return s.Cycles * s.Cycle / 1e3 }

// counted returns the number of users counted in service; without a count, all users of a closed loop. Nil: unknown.
func (s Sample) counted(of Setting) *float64 {
	n := s.InService
	if n == 0 && of.Rate == 0 {
		n = float64(of.Users)
	}
	if n <= 0 {
		return nil
	}
	return &n
}

// String formats the law with its figures.
func (l Little) String() string {
	if !l.Known {
		return notKnown
	}
	said := fmt.Sprintf("%s users counted, but throughput × cycle gives %s: off by %s, %s is allowed",
		figure.Number(l.Counted), figure.Number(l.Within), percent(l.Off), percent(littleMost))
	if l.Outside > littleMost {
		said += fmt.Sprintf("; %s of the users were inside the generator", percent(l.Outside))
	}
	return said
}
