package disk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// gauge asks a server about its disk.
type gauge struct {
	service chaos.Observer
	node    string
}

// reading is what a server told of its disk at one moment.
type reading struct {
	syncing   bool
	spent     time.Duration // in syncs, since it started
	hasSpent  bool
	write     time.Duration // that it took to take a write
	hasWrites bool
}

// knows tells whether the service can be asked for a fact.
func (g gauge) knows(fact string) bool {
	if g.service == nil {
		return false
	}
	_, ok := g.service.Facts()[fact]
	return ok
}

// ask asks for one fact, where the service knows it.
func (g gauge) ask(ctx context.Context, fact string) (string, bool) {
	if !g.knows(fact) {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
	defer cancel()
	answer, err := g.service.Ask(ctx, g.node, fact)
	return answer, err == nil
}

// look asks for what can be asked without doing anything.
func (g gauge) look(ctx context.Context) (r reading) {
	if a, ok := g.ask(ctx, chaos.FactSyncing); ok {
		r.syncing = a == "true"
	}
	if a, ok := g.ask(ctx, chaos.FactSyncTime); ok {
		ms, err := strconv.ParseFloat(a, 64)
		r.spent, r.hasSpent = time.Duration(ms*float64(time.Millisecond)), err == nil
	}
	return r
}

// read also has the server take a write.
func (g gauge) read(ctx context.Context) reading {
	took, err := g.writeTime(ctx)
	r := g.look(ctx)
	r.write, r.hasWrites = took, err == nil
	return r
}

var errNoWrites = errors.New("the service has no fact " + chaos.FactWrites)

// writeTime has the server take a write, and tells how long that took.
func (g gauge) writeTime(ctx context.Context) (time.Duration, error) {
	if !g.knows(chaos.FactWrites) {
		return 0, errNoWrites
	}
	from := clock.Now()
	answer, err := g.service.Ask(ctx, g.node, chaos.FactWrites)
	if err == nil && answer != "true" {
		err = fmt.Errorf("it does not take a write: %s", answer)
	}
	return time.Duration(clock.Now() - from), err
}

// writeLoad is a sequence of writes to a server, so that it has something to sync.
type writeLoad struct {
	cancel func()
	took   <-chan written
}

// written is what came of one write.
type written struct {
	took time.Duration
	err  error
}

// keepWriting has the server take one write after the other until it is cancelled, where it can be asked to.
func (g gauge) keepWriting(ctx context.Context) writeLoad {
	ctx, cancel := context.WithCancel(ctx)
	took, ended := make(chan written, 1), make(chan struct{})
	go func() {
		defer close(ended)
		for g.knows(chaos.FactWrites) && ctx.Err() == nil {
			d, err := g.writeTime(ctx)
			select {
			case took <- written{d, err}:
			default:
			}
			_ = clock.Sleep(ctx, 10*chaos.PollEvery)
		}
	}()
	return writeLoad{took: took, cancel: func() { cancel(); <-ended }}
}

// proof is what is known of a disk that is to be slow.
type proof struct {
	before reading
	was    Syncs
	write  <-chan written

	held   Syncs
	status history.ReceiptStatus
	text   string
}

// proveTime is how long a server is given to sync something, beside the time for which that is held: those that sync
// once a second, twice.
const proveTime = 3 * time.Second

// prove waits until calls were held and the server was seen to wait for them.
func (t *slowed) prove(ctx context.Context, p proof) (proof, error) {
	for end := clock.Now() + int64(proveTime+2*t.by); ; {
		var err error
		if p.held, err = t.SyncsHeld(ctx); err != nil {
			return p, err
		}
		now := t.look(ctx)
		again, err := t.SyncsHeld(ctx)
		if err != nil {
			return p, err
		}
		if p.met(t.by, now, p.held.Holding > 0 && again.Calls == p.held.Calls) {
			return p, nil
		}
		if clock.Now() > end || clock.Sleep(ctx, chaos.PollEvery) != nil {
			break
		}
	}
	p.status = history.NotInstalled
	switch {
	case p.held.Calls == p.was.Calls:
		p.text = fmt.Sprintf("it made no call that could be held within %v", proveTime+2*t.by)
	case !t.knows(chaos.FactSyncing) && !t.knows(chaos.FactSyncTime) && !t.knows(chaos.FactWrites):
		p.status, p.text = history.Indeterminate, "calls were held, but the service tells nothing of its disk"
	default:
		p.text = "calls were held, but the server was not seen to wait for its disk"
	}
	return p, nil
}

// met judges one look; during says that it was taken while a call was held.
func (p *proof) met(by time.Duration, now reading, during bool) bool {
	var w written
	select {
	case w = <-p.write:
	default:
	}
	nearly := by - by/10
	switch {
	case p.held.Calls <= p.was.Calls:
		return false
	case now.syncing && during:
		p.text = "by its own account it waits for a sync of its log, while a call of it is held"
	case now.hasSpent && p.before.hasSpent && now.spent-p.before.spent >= nearly:
		p.text = fmt.Sprintf("by its own account it has spent %v more in syncs of its log",
			(now.spent - p.before.spent).Round(time.Millisecond))
	case w.took >= min(nearly, chaos.AskTimeout/2) && w.err != nil && during && p.before.hasWrites &&
		p.before.write < by/2:
		p.text = fmt.Sprintf("it took no write within %v, before in %v", w.took.Round(time.Millisecond),
			p.before.write.Round(100*time.Microsecond))
	case w.took >= nearly && w.err == nil && p.before.hasWrites && p.before.write < by/2:
		p.text = fmt.Sprintf("it took a write in %v, before in %v", w.took.Round(time.Millisecond),
			p.before.write.Round(100*time.Microsecond))
	default:
		return false
	}
	p.status = history.Installed
	return true
}
