package chaos

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"time"

	"github.com/lockquake/lockquake/internal/seed"
)

// Random is a schedule to be drawn.
type Random struct {
	Faults  []Drawable // each is as likely as the others
	MeanGap time.Duration
	Promise Promise
	Servers []string // names
	Clients []string
}

// Drawable is a fault that may be drawn.
type Drawable struct {
	On                []Selector // one of them is chosen
	Shortest, Longest time.Duration
	Lasting           bool // else the times are not looked at
	Linked            bool // whom it hits is known only when its other ends are
}

// Drawn is one injection of a random schedule.
type Drawn struct {
	Fault  int // index of the fault
	At     time.Duration
	For    time.Duration // 0 for what does not last
	On     Selector      // random picks are settled; leader, followers and holder are found when it is injected
	Chosen Selector      // as the scenario has it
}

// Tries before giving up: of one injection that would break the promise, and of a schedule without any.
const (
	pickTries = 20
	planTries = 100
)

// Draw makes the injections of a run from its seed. The gaps are exponential around MeanGap: from the start of one to the
// start of the next, or, where none may overlap, from the end of one. Each lies within the run, its end included, in whole
// milliseconds. It is a function of its arguments alone and uses whole numbers only: the same on any machine.
//
// What is known beforehand is drawn so that the promise holds; who leads or holds a lock, and how long a heal takes, is not.
func (r Random) Draw(runFor time.Duration, runSeed uint64) ([]Drawn, error) {
	if len(r.Faults) == 0 || r.MeanGap <= 0 {
		return nil, errors.New("a random schedule needs faults, and a mean gap above 0s")
	}
	for try := range planTries {
		name := "chaos-random"
		if try > 0 { // a run in which nothing goes wrong is not what was asked for
			name = fmt.Sprintf("%s-%d", name, try)
		}
		out, err := r.draw(runFor, seed.Rand(runSeed, name))
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, fmt.Errorf("no injection fits into the run (%s) with a mean gap of %s and what is promised", runFor, r.MeanGap)
}

func (r Random) draw(runFor time.Duration, random *rand.Rand) ([]Drawn, error) {
	var out []Drawn
	now := time.Duration(0)
	for len(out) <= maxPlanned {
		now += max(exponential(r.MeanGap, random), time.Millisecond).Truncate(time.Millisecond)
		if now >= runFor {
			return out, nil
		}
		d, ok := r.one(now, out, random)
		if !ok || d.At+d.For > runFor {
			continue
		}
		out = append(out, d)
		if r.Promise.Serial {
			now += d.For
		}
	}
	return nil, fmt.Errorf("a mean gap of %s in %s is more than %d injections", r.MeanGap, runFor, maxPlanned)
}

// one draws an injection that comes at a time; ok is false where none was found that keeps the promise.
func (r Random) one(at time.Duration, before []Drawn, random *rand.Rand) (Drawn, bool) {
	for range pickTries {
		d := Drawn{At: at, Fault: random.IntN(len(r.Faults))}
		f := r.Faults[d.Fault]
		d.Chosen = f.On[random.IntN(len(f.On))]
		d.On = d.Chosen.Settle(r.Servers, random)
		if f.Lasting {
			d.For = f.Shortest + time.Duration(random.Int64N(int64((f.Longest-f.Shortest)/time.Millisecond)+1))*time.Millisecond
		}
		var standing []Reach
		for _, b := range before {
			if b.At+b.For > at {
				standing = append(standing, r.reach(b))
			}
		}
		if r.Promise.Broken(r.Servers, standing, r.reach(d)) == "" {
			return d, true
		}
	}
	return Drawn{}, false
}

// reach is whom an injection hits, as far as it is known beforehand: of a link fault, whose other ends are not, the targets, if
// these alone could be spared.
func (r Random) reach(d Drawn) Reach {
	names := d.On.Named()
	out := NewReach(names, nil, r.Servers, r.Clients)
	if r.Faults[d.Fault].Linked && r.Promise.Broken(r.Servers, nil, out) != "" {
		out.Servers = nil
	}
	return out
}

// Never says why no injection of a fault on these targets could keep the promise, even with nothing else standing, or "".
func (p Promise) Never(on Selector, servers []string, random *rand.Rand) string {
	why := ""
	for range pickTries {
		settled := on.Settle(servers, random)
		hit := settled.Named()
		for _, word := range settled.Parts() {
			switch {
			case word == "all":
				hit = servers
			case word == "followers" && len(servers) > 1 && serverKind(servers[0]) == serverKind(servers[len(servers)-1]):
				hit = append(hit, servers[1:]...) // one of them leads, whichever
			case word == "leader" && len(servers) == 1:
				hit = servers
			}
		}
		if why = p.Broken(servers, nil, NewReach(hit, nil, servers, nil)); why == "" {
			return ""
		}
	}
	return why
}

// exponential draws from the exponential distribution by von Neumann's method, which compares random numbers and needs no
// logarithm: processors differ in the last bit of one.
func exponential(mean time.Duration, random *rand.Rand) time.Duration {
	for whole := time.Duration(0); ; whole++ {
		first := random.Uint64()
		odd, last := true, first
		for next := random.Uint64(); next < last; next = random.Uint64() {
			odd, last = !odd, next
		}
		if odd { // the first run of falling numbers has odd length
			part, _ := bits.Mul64(uint64(mean), first)
			return whole*mean + time.Duration(part)
		}
	}
}
