package links

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
)

// Marks are datagrams that are sent behind the held packets of a link, right before these are released. The order in
// which the marks arrive shows in which order the queue was emptied.
const (
	markCount = 20 // on each link
	markEvery = time.Millisecond
	// markWait is how long the kernel may take to show that they are queued, and markPatience how long they may take to
	// arrive.
	markWait     = 500 * time.Millisecond
	markPatience = 4 * time.Second
)

// order is the observation of the marks of one heal.
type order struct {
	why    string        // why there are no marks
	others func() string // link faults that were active on the same lanes since the heal began; "" if none
	held   int           // packets queued since the marks were sent, by the kernel's count
	seen   <-chan []Flow // of all links, once they have arrived or timed out
}

// mark sends the marks and waits until the kernel shows them as queued.
func (b *block) mark(ctx context.Context, begun int64) order {
	others := func() string {
		for _, l := range b.lanes {
			if others := b.scope.LinkFaults.Others(b.noted, l, begun); len(others) > 0 {
				return others.String()
			}
		}
		return ""
	}
	if who := others(); who != "" {
		return order{why: "their order was not checked: " + who}
	}
	before, err := b.sum(ctx, nil)
	if err != nil {
		return order{why: "their order is unknown: " + err.Error()}
	}
	seen := make(chan []Flow, 1)
	go func() { seen <- b.measureMarks(ctx) }()
	o := order{seen: seen, others: others}
	for end := clock.Now() + int64(markWait); clock.Now() < end && o.held < markCount*len(b.lanes); {
		if clock.Sleep(ctx, chaos.PollEvery) != nil {
			break
		}
		now, err := b.sum(ctx, nil)
		if err != nil {
			break
		}
		o.held = max(0, now.Held-before.Held)
	}
	return o
}

// measureMarks sends the marks of all links, and returns when they have arrived.
func (b *block) measureMarks(ctx context.Context) []Flow {
	all := make(chan []MeasuredLink, len(b.targets))
	_ = chaos.AtAll(b.targets, func(t linked) error {
		var seen []MeasuredLink
		if s, ok := chaos.As[Shaper](t); ok {
			m := MeasureArgs{Count: markCount, Every: markEvery, Out: true, Patience: markPatience}
			m.ProbeEnd, m.Peers = b.ends(t)
			seen, _ = s.MeasureLinks(ctx, b.scope.Peers, m) // a target that has ended cannot send
		}
		all <- seen
		return nil
	})
	close(all)
	var flows []Flow
	for seen := range all {
		for _, l := range seen {
			if !l.Missing {
				flows = append(flows, l.Out)
			}
		}
	}
	return flows
}

// told describes in which order the queue was emptied, as shown by the marks. It returns an error if that was not the
// order of arrival.
func (o order) told() (string, error) {
	if o.seen == nil {
		return o.why, nil
	}
	var sent, arrived, leapt int
	for _, f := range <-o.seen {
		sent, arrived, leapt = sent+f.Sent, arrived+f.Arrived, leapt+f.Leapt
	}
	text := fmt.Sprintf("%d datagrams were sent right after them: %d waited as well, and %d arrived",
		sent, min(sent, o.held), arrived)
	switch who := o.others(); {
	case who != "":
		return text + ", which is not judged: " + who, nil
	case sent == 0:
		return "their order could not be checked: no sender and receiver are left", nil
	case leapt > 0:
		return fmt.Sprintf("%s, %d of them before an earlier one", text, leapt),
			errors.New("packets were released in a different order")
	case arrived < sent:
		return text, fmt.Errorf("%d of %d held packets did not arrive", sent-arrived, sent)
	}
	return text + ", in order", nil
}
