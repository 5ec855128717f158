// Double bookings: a seat acknowledged to a client belongs to it at the end.
//
// Each write gives the lock's seat to the booking that its value names, and at the end a seat has one booking. Every
// other acknowledged booking of that seat is a double booking, even if the final booking was never acknowledged.
//
// It cannot see a booking that was made and never acknowledged, unless it replaced another one.

package harm

import (
	"fmt"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/results"
)

type doubleBookings struct {
	run    results.Run
	seats  map[uint16][]history.Event // acknowledged bookings
	finals finals
	made   int
}

// DoubleBookings judges bookings of seats.
var DoubleBookings = results.CheckerKind{
	Name: "double_bookings", New: newDoubleBookings,
	Doc: "A seat has one acknowledged booking, the one that stands at the end.",
	Counts: []results.Quantity{
		{
			Name: "double_bookings", Doc: "workload `booking`: acknowledged bookings of a seat that another booking has at the end",
			Tone: results.Violation, Of: acknowledgedWrites, Outlived: true,
		},
	},
	Witnesses: results.Aside("double_booking"),
}

func newDoubleBookings(run results.Run) results.Checker {
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
func (c *doubleBookings) Finish() results.Finding {
	f, ok := applies(c.run, writesSeats, c.made, c.finals)
	if !ok {
		return f
	}
	var double int64
	for i := range c.run.Locks {
		seat := uint16(i)
		bookings := c.seats[seat]
		final, read := c.finals[seat]
		if !read && len(bookings) > 0 {
			return f.Lacking(notRead(c.run, seat))
		}
		var lost []history.Event
		for _, b := range bookings {
			if b.Value != final.Value {
				lost = append(lost, b)
			}
		}
		double += int64(len(lost))
		f.Found(seat, int64(len(lost)))
		if len(lost) > 0 {
			f.Prove(results.Witness{
				Kind: "double_booking", Lock: c.run.LockName(seat), From: bookings[0].Time, To: final.Time,
				Text: fmt.Sprintf("the seat of %s went to %d bookings; the one by %v at %s does not stand at the end",
					c.run.LockName(seat), len(bookings), lost[0].User, c.run.MS(lost[0].Time)),
				Events: append(bookings[:min(len(bookings), 4):min(len(bookings), 4)], final),
			})
		}
	}
	return f.Judged("double_bookings", double, int64(c.made))
}
