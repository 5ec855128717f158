package links

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// throttle limits the bits per second of each link and direction. Excess packets wait in a queue of 200 ms; when it is
// full they are dropped.
type throttle struct {
	OnLinks `yaml:",inline"`
	// Limit is the rate of each link in each affected direction, packet headers included.
	Limit Bits `yaml:"limit"`
}

// Bits is a rate in bits per second.
type Bits uint64

// UnmarshalYAML takes "500kbit" and "1.5mbit".
func (b *Bits) UnmarshalYAML(unmarshal func(any) error) error {
	var text string
	if err := unmarshal(&text); err == nil {
		for _, u := range bitUnits {
			number, ok := strings.CutSuffix(text, u.name)
			v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
			if ok && err == nil && v > 0 && v <= math.MaxUint32 {
				*b = Bits(v * u.size)
				return nil
			}
		}
	}
	return errors.New("want bits per second, such as 500kbit or 1.5mbit")
}

var bitUnits = []struct {
	name string
	size float64
}{{"kbit", 1e3}, {"mbit", 1e6}}

func (b Bits) String() string {
	for _, u := range []int{1, 0} {
		if v := float64(b) / bitUnits[u].size; v >= 1 {
			return strconv.FormatFloat(v, 'g', 3, 64) + bitUnits[u].name
		}
	}
	return strconv.FormatUint(uint64(b), 10) + "bit"
}

const (
	leastRate Bits = 64_000      // slower, and a receipt takes too long
	mostRate  Bits = 100_000_000 // faster, and the agent cannot send enough to see it
	// rateSize is the payload of the datagrams that measure a rate.
	rateSize = 1200
	rateWire = rateSize + 42
	// rateFor is the duration of a measurement, at twice the rate.
	rateFor = 1500 * time.Millisecond
	// rateMore and rateLess are multiples of the limit: a link carries at least the first without the limit, and at
	// most the second with it.
	rateMore, rateLess = 1.5, 1.3
)

func rateKind() chaos.Kind {
	return chaos.Kind{
		Name: "rate", Place: 17,
		Doc: "Limits the links between the targets and others to `limit` in each direction, by the kernel's token " +
			"bucket. Receipt: of datagrams sent at twice that rate, at most that rate arrives.",
		Try:   []string{"limit: 1mbit"},
		Needs: []chaos.Capability{CanThrottle}, PeerNeeds: []chaos.Capability{CanThrottle}, Lasting: true, Counts: true,
		Sample: "{limit: 200kbit..2000kbit}",
		New: func(decode func(any) error) (chaos.Fault, error) {
			f := throttle{OnLinks: everyLink()}
			if err := decode(&f); err != nil {
				return nil, err
			}
			if f.Limit < leastRate || f.Limit > mostRate {
				return nil, fmt.Errorf("limit of rate is %v: want %v to %v", f.Limit, leastRate, mostRate)
			}
			if f.Engine != anyEngine {
				return nil, errors.New("rate has no choice of engine: it uses the kernel's token bucket")
			}
			return f.shapeFault(), f.check()
		},
	}
}

func (f throttle) shapeFault() shapeFault {
	every := time.Duration(float64(time.Second) * rateWire * 8 / (2 * float64(f.Limit)))
	return shapeFault{
		OnLinks: f.OnLinks, kind: "rate", by: []Engine{TBF}, needs: []chaos.Capability{CanThrottle},
		longest: 250 * time.Millisecond,
		shaping: Shaping{Rate: uint64(f.Limit)},
		gauge:   MeasureArgs{Count: max(int(rateFor/every), 10), Every: every, Size: rateSize, Burst: f.burst()},
		effect:  effect{shows: f.shows, text: f.text, noisy: f.noisy},
	}
}

// behindBurst is how long the limit holds up packets behind a burst.
const behindBurst = 150 * time.Millisecond

// burst returns how many bytes are sent before a connection to an external server is opened. It is what the token
// bucket passes at once, plus what then takes behindBurst. All of it fits into the bucket's queue.
func (f throttle) burst() int {
	return int(TBFBurst(uint64(f.Limit)/8)) + int(behindBurst.Seconds()*float64(f.Limit)/8)
}

// shows requires a link that carried more before.
func (f throttle) shows(l shapedLane) history.ReceiptStatus {
	if l.ways > 0 {
		return f.showsBehindBurst(l)
	}
	switch limit := float64(f.Limit); {
	case l.is.Bits > rateLess*limit:
		return history.NotInstalled
	case l.was.Bits < rateMore*limit || l.is.Arrived < 2:
		return history.Indeterminate
	}
	return history.Installed
}

// showsBehindBurst judges connections that were opened behind a burst.
func (f throttle) showsBehindBurst(l shapedLane) history.ReceiptStatus {
	least := time.Duration(float64(behindBurst.Nanoseconds()) / rateLess)
	switch {
	case l.is.Arrived == 0:
		return history.Indeterminate
	case l.is.OneWay.Low < least:
		return history.NotInstalled
	case l.was.OneWay.Low > least:
		return history.Indeterminate
	}
	return history.Installed
}

// noisy: if arrivals are read late by some tenths of the measured time, the rate seems higher than it is. If sending
// stalled for as long, the link seems to have carried too little before to show a limit.
func (f throttle) noisy(was Flow) bool {
	if was.Bits == 0 { // measured by connections
		return was.OneWay.High > behindBurst/2
	}
	return was.OneWay.High-was.OneWay.Low > rateFor/10 || was.Arrived > 1 && was.Bits < rateMore*float64(f.Limit)
}

func (f throttle) text(lanes []shapedLane) string {
	if lanes[0].ways > 0 {
		mid := func(of func(shapedLane) Flow) string {
			return over(lanes, func(l shapedLane) time.Duration { return of(l).OneWay.Mid })
		}
		return fmt.Sprintf("after a burst of %d bytes an answer takes %s now, %s before (requested: %v, at which the burst alone takes %v); %s", f.burst(),
			mid(func(l shapedLane) Flow { return l.is }), mid(func(l shapedLane) Flow { return l.was }), f.Limit,
			behindBurst, arrived(lanes))
	}
	bits := func(f func(shapedLane) float64) string {
		low, high := math.Inf(1), 0.0
		for _, l := range lanes {
			low, high = min(low, f(l)), max(high, f(l))
		}
		if Bits(low).String() == Bits(high).String() {
			return Bits(low).String()
		}
		return fmt.Sprintf("%v to %v", Bits(low), Bits(high))
	}
	return fmt.Sprintf("%s arrive per second now (requested: at most %v), %s before; %s",
		bits(func(l shapedLane) float64 { return l.is.Bits }), f.Limit,
		bits(func(l shapedLane) float64 { return l.was.Bits }), arrived(lanes))
}
