package chaos

import (
	"errors"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
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
	Lasting           bool // if false, the times are ignored
	Linked            bool // its reach is unknown until its peers are resolved
}

// Drawn is one injection of a random schedule.
type Drawn struct {
	Fault  int // index of the fault
	At     time.Duration
	For    time.Duration // 0 for what does not last
	On     Selector      // random picks are settled; leader, followers and holder are resolved at the injection
	Chosen Selector      // as the scenario has it
}

// Tries before giving up: for one injection that would break the promise, for a schedule without any injection, and for
// all injections together.
const (
	pickTries = 20
	planTries = 100
	maxDraws  = 2 * maxPlanned
)

// Draw makes the injections of a run from its seed. The gaps are exponential with mean MeanGap, from one start to the
// next. If injections must not overlap, a gap counts from the end of the last. Each injection lies within the run, its
// end included, in whole milliseconds. Draw depends on its arguments alone and uses integers only, so it returns the
// same on any machine.
//
// The promise is kept as far as it can be checked beforehand. Who leads or holds a lock, and how long a heal takes,
// cannot.
func (r Random) Draw(runFor time.Duration, runSeed uint64) ([]Drawn, error) {
	if len(r.Faults) == 0 || r.MeanGap <= 0 {
		return nil, errors.New("a random schedule needs faults, and a mean gap above 0s")
	}
	if !r.Promise.Serial && runFor/max(r.MeanGap, time.Millisecond) > maxPlanned {
		return nil, r.tooMany(runFor)
	}
	for try, left := 0, maxDraws; try < planTries && left > 0; try++ {
		name := "chaos-random"
		if try > 0 { // an empty schedule is drawn again
			name = fmt.Sprintf("%s-%d", name, try)
		}
		out, err := r.draw(runFor, seed.Rand(runSeed, name), &left)
		if err != nil || len(out) > 0 {
			return out, err
		}
	}
	return nil, fmt.Errorf("no injection fits into the run (%s) with a mean gap of %s and the promises of the schedule", runFor,
		r.MeanGap)
}

func (r Random) tooMany(runFor time.Duration) error {
	return fmt.Errorf("a mean gap of %s in %s is more than %d injections", r.MeanGap, runFor, maxPlanned)
}

// standingUntil is an active injection.
type standingUntil struct {
	until time.Duration
	reach Reach
}

func (r Random) draw(runFor time.Duration, random *rand.Rand, left *int) ([]Drawn, error) {
	var out []Drawn
	var standing []standingUntil
	now := time.Duration(0)
	for ; *left > 0 && len(out) <= maxPlanned; *left-- {
		now += max(exponential(r.MeanGap, random), time.Millisecond).Truncate(time.Millisecond)
		if now >= runFor {
			return out, nil
		}
		standing = slices.DeleteFunc(standing, func(s standingUntil) bool { return s.until <= now })
		d, ok := r.one(now, standing, random)
		if !ok || d.At+d.For > runFor {
			continue
		}
		out, standing = append(out, d), append(standing, standingUntil{d.At + d.For, r.reach(d)})
		if r.Promise.Serial {
			now += d.For
		}
	}
	if len(out) == 0 {
		return nil, nil
	}
	return nil, r.tooMany(runFor)
}

// one draws an injection at the given time. It returns false if none was found that keeps the promise.
func (r Random) one(at time.Duration, standing []standingUntil, random *rand.Rand) (Drawn, bool) {
	var beside []Reach
	for _, s := range standing {
		beside = append(beside, s.reach)
	}
	for range pickTries {
		d := Drawn{At: at, Fault: random.IntN(len(r.Faults))}
		f := r.Faults[d.Fault]
		d.Chosen = f.On[random.IntN(len(f.On))]
		d.On = d.Chosen.Settle(r.Servers, random)
		if f.Lasting {
			d.For = f.Shortest + time.Duration(random.Int64N(int64((f.Longest-f.Shortest)/time.Millisecond)+
				1))*time.Millisecond
		}
		if r.Promise.Broken(r.Servers, beside, r.reach(d)) == "" {
			return d, true
		}
	}
	return Drawn{}, false
}

// reach returns the reach of an injection as it is known beforehand. The peers of a link fault are unknown, so the
// fault counts against its targets, unless these alone would break the promise.
func (r Random) reach(d Drawn) Reach {
	names := d.On.Named()
	out := NewReach(names, nil, r.Servers, r.Clients)
	if r.Faults[d.Fault].Linked && r.Promise.Broken(r.Servers, nil, out) != "" {
		out.Servers = nil
	}
	return out
}

// Never returns why no injection on these targets can keep the promise even if nothing else is active, or "".
func (p Promise) Never(on Selector, servers []string, random *rand.Rand) string {
	why := ""
	for range pickTries {
		settled := on.Settle(servers, random)
		var hit []string
		for _, p := range settled.parts {
			hit = append(hit, p.certain(servers, nil)...)
		}
		if why = p.Broken(servers, nil, NewReach(hit, nil, servers, nil)); why == "" {
			return ""
		}
	}
	return why
}

// exponential draws from the exponential distribution by von Neumann's method. It only compares random numbers;
// processors differ in the last bit of a logarithm.
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
