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

// reading is what a server reported of its disk at one moment.
type reading struct {
	syncing   bool
	spent     time.Duration // in syncs, since it started
	hasSpent  bool
	write     time.Duration // duration of a write
	hasWrites bool
}

// knows reports whether the service has a fact.
func (g gauge) knows(fact string) bool {
	if g.service == nil {
		return false
	}
	_, ok := g.service.Facts()[fact]
	return ok
}

// ask asks for one fact, if the service has it.
func (g gauge) ask(ctx context.Context, fact string) (string, bool) {
	if !g.knows(fact) {
		return "", false
	}
	ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
	defer cancel()
	answer, err := g.service.Ask(ctx, g.node, fact)
	return answer, err == nil
}

// look reads the facts that change nothing.
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

// read also times a write to the server.
func (g gauge) read(ctx context.Context) reading {
	took, err := g.writeTime(ctx)
	r := g.look(ctx)
	r.write, r.hasWrites = took, err == nil
	return r
}

var errNoWrites = errors.New("the service has no fact " + chaos.FactWrites)

// writeTime writes to the server and returns how long that took.
func (g gauge) writeTime(ctx context.Context) (time.Duration, error) {
	if !g.knows(chaos.FactWrites) {
		return 0, errNoWrites
	}
	from := clock.Now()
	answer, err := g.service.Ask(ctx, g.node, chaos.FactWrites)
	if err == nil && answer != "true" {
		err = fmt.Errorf("it accepts no write: %s", answer)
	}
	return time.Duration(clock.Now() - from), err
}

// writeLoad is a sequence of writes to a server, so that it has something to sync.
type writeLoad struct {
	cancel func()
	took   <-chan written
}

// written is the result of one write.
type written struct {
	took time.Duration
	err  error
}

// keepWriting sends writes to the server, one after the other, until it is cancelled. It does nothing if the service
// has no FactWrites.
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

// proof is the evidence that a disk is slow.
type proof struct {
	before reading
	was    Syncs
	write  <-chan written

	held   Syncs
	status history.ReceiptStatus
	text   string
}

// proveTime is how long a server has to sync something, besides the delay itself. A server that syncs once a second
// syncs twice in it.
const proveTime = 3 * time.Second

// prove waits until calls were delayed and the server was seen waiting for them.
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
		p.text = fmt.Sprintf("it made no call to delay within %v", proveTime+2*t.by)
	case !t.knows(chaos.FactSyncing) && !t.knows(chaos.FactSyncTime) && !t.knows(chaos.FactWrites):
		p.status, p.text = history.Indeterminate, "calls were delayed, but the service has no measure of its disk"
	default:
		p.text = "calls were delayed, but the server was not seen to wait for its disk"
	}
	return p, nil
}

// met judges one reading; during means that it was taken while a call was delayed.
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
		p.text = "it reports a wait for a sync of its log, while one of its calls is delayed"
	case now.hasSpent && p.before.hasSpent && now.spent-p.before.spent >= nearly:
		p.text = fmt.Sprintf("it reports %v more in syncs of its log",
			(now.spent - p.before.spent).Round(time.Millisecond))
	case w.took >= min(nearly, chaos.AskTimeout/2) && w.err != nil && during && p.before.hasWrites &&
		p.before.write < by/2:
		p.text = fmt.Sprintf("a write was not done within %v, previously in %v", w.took.Round(time.Millisecond),
			p.before.write.Round(100*time.Microsecond))
	case w.took >= nearly && w.err == nil && p.before.hasWrites && p.before.write < by/2:
		p.text = fmt.Sprintf("a write took %v, previously %v", w.took.Round(time.Millisecond),
			p.before.write.Round(100*time.Microsecond))
	default:
		return false
	}
	p.status = history.Installed
	return true
}
