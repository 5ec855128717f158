package chaos

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/internal/seed"
)

// Entry is one line of a schedule. Times count from the start of the workload.
type Entry struct {
	At     time.Duration // of the first injection
	For    time.Duration // until its heal; 0: until the end of the run
	Every  time.Duration // from one to the next; 0: once
	Jitter time.Duration // each comes up to this much later, from the seed
}

// Planned is one injection of a schedule.
type Planned struct {
	Entry int           // index of its entry
	At    time.Duration // when it is due
	For   time.Duration // as in its entry
}

// maxPlanned bounds a schedule: more than that is a slip in a unit.
const maxPlanned = 10000

// Plan returns the injections of a run in order. It depends on its arguments alone, and an entry's jitter does not
// depend on the other entries.
func Plan(entries []Entry, runFor time.Duration, runSeed uint64) ([]Planned, error) {
	var out []Planned
	for i, e := range entries {
		if err := e.check(runFor); err != nil {
			return nil, fmt.Errorf("entry %d: %w", i, err)
		}
		random := seed.Rand(runSeed, "chaos-"+strconv.Itoa(i))
		for due := e.At; due < runFor; due += e.Every {
			at := due
			if e.Jitter > 0 {
				at += time.Duration(random.Int64N(int64(e.Jitter) + 1))
			}
			if at < runFor {
				out = append(out, Planned{Entry: i, At: at, For: e.For})
			}
			if len(out) > maxPlanned {
				return nil, fmt.Errorf("entry %d: every %s for %s is more than %d injections", i, e.Every, runFor,
					maxPlanned)
			}
			if e.Every == 0 {
				break
			}
		}
	}
	slices.SortStableFunc(out, func(a, b Planned) int { return cmp.Compare(a.At, b.At) })
	return out, nil
}

func (e Entry) check(runFor time.Duration) error {
	switch {
	case min(e.At, e.For, e.Every, e.Jitter) < 0:
		return fmt.Errorf("at %s, for %s, every %s, jitter %s: none may be negative", e.At, e.For, e.Every, e.Jitter)
	case e.At+e.Jitter >= runFor:
		return fmt.Errorf("at %s is not before the end of the run (%s)", e.At+e.Jitter, runFor)
	case e.Every > 0 && e.For+e.Jitter >= e.Every:
		return fmt.Errorf("every %s is too soon: the previous one may last until %s after it was due", e.Every,
			e.For+e.Jitter)
	}
	return nil
}
