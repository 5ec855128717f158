package history

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
)

// Clocks is the name of the file, within the history folder, that holds the measurements of clocks that are not the
// run's. There is none where all clocks are one.
const Clocks = "clocks.jsonl"

// Measurement is one comparison of a process's own clock with the run's: a line of the file Clocks.
type Measurement struct {
	Process  string `json:"process"`
	At       int64  `json:"at"`        // ns of the process's own clock
	OffsetNS int64  `json:"offset_ns"` // what has to be added to it to get the run's clock
	ErrorNS  int64  `json:"error_ns"`  // how wrong that may be
}

// RateShare bounds the difference of two clocks' rates: a nanosecond in so many, which is 500 ppm. Crystals differ by
// some 100 ppm, and the kernel lets NTP discipline a clock by at most 500 ppm. Measurements that contradict the bound
// are seen: see Clock.Step.
const RateShare = 2000

// drift is how far two clocks can move against each other within d, rounded up.
func drift(d int64) int64 { return (d + RateShare - 1) / RateShare }

// Clock converts times of a process's own clock to the run's, by measurements. It is linear between two of them.
//
// Each measurement bounds the offset by an interval. At another moment that interval is wider by 500 ppm of the
// distance. The offset lies in the intervals of all measurements, so in their intersection.
//
// Example: at 10 s of the process's clock the offset is measured as 7.0 ms, right to 0.1 ms, and at 12 s as 7.2 ms,
// likewise.
//   - At 11 s the line says 7.1 ms. By the first measurement the offset is 6.9 to 7.1 ms there, give or take 0.5 ms:
//     6.4 to 7.6 ms. By the second it is 6.6 to 7.8 ms. So it is 6.6 to 7.6 ms, and the line errs by 0.5 ms at most.
//   - At 14 s, with no later measurement, it is 7.2 ms, give or take 0.1 ms and the 1 ms of two seconds.
//   - Had the second been 9 ms, no offset would fit both: 7.1 ms can become 8.1 ms in two seconds, and no more. The
//     clock was set.
//
// A paused process answers late, and its clock is measured to 40 ms. That does no harm: its neighbours two seconds away
// say more.
type Clock struct {
	points []point
	step   *Measurement
	first  int64 // offset of the first measurement
}

// point is what all measurements together say of the moment of one of them.
type point struct {
	own    int64
	lo, hi int64 // the offset lies between them
}

func (p point) offset() int64 { return p.lo + (p.hi-p.lo)/2 }

// run is the moment by the run's clock.
func (p point) run() int64 { return p.own + p.offset() }

// NewClock makes a clock of measurements, at least one, in the order in which they were made.
func NewClock(ms []Measurement) (*Clock, error) {
	if len(ms) == 0 {
		return nil, errors.New("no measurement")
	}
	c := &Clock{first: ms[0].OffsetNS}
	for i, m := range ms {
		switch {
		case m.At < 0 || m.At > maxTime:
			return nil, fmt.Errorf("at is %d: no time of CLOCK_MONOTONIC", m.At)
		case m.OffsetNS > maxTime || m.OffsetNS < -maxTime:
			return nil, fmt.Errorf("offset_ns is %d", m.OffsetNS)
		case m.ErrorNS < 0 || m.ErrorNS > maxError:
			return nil, fmt.Errorf("error_ns is %d: want 0 to %d", m.ErrorNS, int64(maxError))
		}
		p := point{m.At, m.OffsetNS - m.ErrorNS, m.OffsetNS + m.ErrorNS}
		if i > 0 {
			p = p.within(c.points[i-1])
		}
		if back := i > 0 && m.At < ms[i-1].At; c.step == nil && (back || p.lo > p.hi) {
			c.step = &ms[i]
		}
		c.points = append(c.points, p)
	}
	for i := len(c.points) - 2; i >= 0 && c.step == nil; i-- {
		c.points[i] = c.points[i].within(c.points[i+1])
	}
	return c, nil
}

// within narrows a point by what its neighbour allows.
func (p point) within(o point) point {
	d := drift(max(p.own-o.own, o.own-p.own))
	p.lo, p.hi = max(p.lo, o.lo-d), min(p.hi, o.hi+d)
	return p
}

// Step returns the first measurement that contradicts those before it, or nil. The clock was set then, or stood still:
// nothing is known of its times, and its error is an hour.
func (c *Clock) Step() *Measurement { return c.step }

// Run turns a time of the process's clock into one of the run's. Later times never become earlier ones.
func (c *Clock) Run(own int64) int64 {
	if c.step != nil {
		return own + c.first
	}
	n := len(c.points)
	i := sort.Search(n, func(i int) bool { return c.points[i].own > own })
	switch i {
	case 0:
		return own + c.points[0].offset()
	case n:
		return own + c.points[n-1].offset()
	}
	a, b := c.points[i-1], c.points[i]
	return own + a.offset() + share(b.offset()-a.offset(), own-a.own, b.own-a.own)
}

// Own turns a time of the run's clock into one of the process's.
func (c *Clock) Own(run int64) int64 {
	if c.step != nil {
		return run - c.first
	}
	n := len(c.points)
	i := sort.Search(n, func(i int) bool { return c.points[i].run() > run })
	switch i {
	case 0:
		return run - c.points[0].offset()
	case n:
		return run - c.points[n-1].offset()
	}
	a, b := c.points[i-1], c.points[i]
	return a.own + share(b.own-a.own, run-a.run(), b.run()-a.run())
}

// share is the part of whole that lies at d of length.
func share(whole, d, length int64) int64 {
	return int64(float64(whole) * (float64(d) / float64(length)))
}

// rounding is by how many ns the arithmetic of Run and Own may err.
const rounding = 2

// Error returns how wrong a time that Run returned may be.
func (c *Clock) Error(run int64) int64 {
	if c.step != nil {
		return maxError
	}
	own, n := c.Own(run), len(c.points)
	i := sort.Search(n, func(i int) bool { return c.points[i].own > own })
	at := point{own: own, lo: -maxTime, hi: maxTime}
	if i > 0 {
		at = point{own, c.points[i-1].lo, c.points[i-1].hi}
		d := drift(own - c.points[i-1].own)
		at.lo, at.hi = at.lo-d, at.hi+d
	}
	if i < n {
		b, d := c.points[i], drift(c.points[i].own-own)
		at.lo, at.hi = max(at.lo, b.lo-d), min(at.hi, b.hi+d)
	}
	offset := run - own
	return min(max(at.hi-offset, offset-at.lo)+rounding, maxError)
}

// Error returns how wrong a time of the process may be, in ns: a time of the run's clock, as a Reader returned it.
func (h *Header) Error(t int64) int64 {
	if h.Clock == nil {
		return h.ErrorNS
	}
	return h.Clock.Error(t)
}

// Exact tells whether the times of the process are right: its clock is the run's.
func (h *Header) Exact() bool { return h.Clock == nil && h.ErrorNS == 0 }

// Run turns a time of the process's own clock into one of the run's.
func (h *Header) Run(own int64) int64 {
	if h.Clock == nil {
		return own + h.OffsetNS
	}
	return h.Clock.Run(own)
}

// readClocks reads the measurements of a history folder, and makes a clock of those of each process.
func readClocks(dir string) (map[string]*Clock, error) {
	path := filepath.Join(dir, Clocks)
	b, err := ReadOwn(path, MostText)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	measured := map[string][]Measurement{}
	lines := bufio.NewScanner(bytes.NewReader(b))
	for n := 1; lines.Scan(); n++ {
		var m Measurement
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%w: %s: line %d: %v", ErrCorrupt, path, n, err)
		}
		measured[m.Process] = append(measured[m.Process], m)
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("%w: %s: %v", ErrCorrupt, path, err)
	}
	out := map[string]*Clock{}
	for process, ms := range measured {
		if out[process], err = NewClock(ms); err != nil {
			return nil, fmt.Errorf("%w: %s: clock of %s: %v", ErrCorrupt, path, process, err)
		}
	}
	return out, nil
}
