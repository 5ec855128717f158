// Double bookings: a seat that a client was told is its own is its own at the end.
//
// Where each write gives the lock's seat to the booking that its value names, of all bookings of a seat that were
// acknowledged one may stand at the end; every other one is a double booking. So is one that stands no more because a
// booking that nobody acknowledged took its place.
//
// It cannot see a booking that was made and never acknowledged, where it stands in nobody's place.

package results

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
)

type doubleBookings struct {
	run    Run
	seats  map[uint16][]history.Event // acknowledged bookings
	finals finals
	made   int
}

func newDoubleBookings(run Run) Checker {
	return &doubleBookings{run: run, seats: map[uint16][]history.Event{}, finals: finals{}}
}

// Observe takes the next event.
func (c *doubleBookings) Observe(e *history.Event) {
	c.finals.observe(e)
	if c.run.Writes == writesSeats && e.Kind == history.Write && e.Phase == history.Ok {
		c.made++
		c.seats[e.Lock] = append(c.seats[e.Lock], *e)
	}
}

// Finish returns the finding.
func (c *doubleBookings) Finish() Finding {
	f, ok := c.run.applies("double_bookings", []string{"double_bookings"}, writesSeats, c.made, c.finals)
	if !ok {
		return f
	}
	var double int64
	for i := range c.run.Locks {
		seat := uint16(i)
		bookings, final := c.seats[seat], c.finals[seat]
		var lost []history.Event
		for _, b := range bookings {
			if b.Value != final.Value {
				lost = append(lost, b)
			}
		}
		double += int64(len(lost))
		f.found(seat, int64(len(lost)))
		if len(lost) > 0 && len(f.Witnesses) < MaxWitnesses {
			f.Witnesses = append(f.Witnesses, Witness{
				Kind: "double_booking", Lock: lockName(c.run, seat), From: bookings[0].Time, To: final.Time,
				Text: fmt.Sprintf("the seat of %s was given to %d bookings, that of %v at %s among them, which does not stand at the end",
					lockName(c.run, seat), len(bookings), lost[0].User, c.run.ms(lost[0].Time)),
				Events: append(bookings[:min(len(bookings), 4):min(len(bookings), 4)], final),
			})
		}
	}
	f.Verdict = verdictOf(double)
	f.Counts = map[string]*int64{"double_bookings": count(double)}
	f.Chances = map[string]Chances{"double_bookings": {int64(c.made), acknowledgedWrites}}
	return f
}
