package service

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// refuseWrites makes servers refuse writes while they stay up and answer, as with a full disk or too few replicas.
type refuseWrites struct {
	patience time.Duration // for the first write that is refused, and for the first that passes
}

// writesTime is how long a setting may take to reach all sessions of a server.
const writesTime = 4 * time.Second

func refuseWritesKind() chaos.Kind {
	return chaos.Kind{
		Name: "refuse-writes", Place: 23,
		Doc: "Makes a live server refuse writes, by a setting of its own, until the heal. Receipt: its refusal of a " +
			"write of lockquake; then a write that it accepts.",
		Servers: true,
		Lasting: true,
		Began:   "refuses writes", Ended: "accepts writes again",
		New: func(decode func(any) error) (chaos.Fault, error) {
			return refuseWrites{patience: writesTime}, decode(&struct{}{})
		},
	}
}

// Wants returns an error for a service that cannot do it.
func (refuseWrites) Wants(service chaos.Observer) error {
	_, err := refuser(service)
	return err
}

func refuser(service chaos.Observer) (chaos.WriteRefuser, error) {
	return able[chaos.WriteRefuser](service, chaos.Unavailable{
		What:   "refusal of writes",
		Reason: "the service has no setting that makes a live server refuse writes",
	})
}

// Inject makes all targets refuse writes, concurrently.
func (f refuseWrites) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	r, err := refuser(s.Service)
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	var hits chaos.Hits[*refusing]
	receipt, err := chaos.OnEach(s.On, func(n chaos.Node) (history.Receipt, error) {
		x := &refusing{Node: n, fault: f, refuser: r, service: s.Service}
		return x.inject(ctx, &hits)
	})
	return func(ctx context.Context) (history.Receipt, error) {
		return hits.Heal(ctx, func(x *refusing) (history.Receipt, error) { return x.heal(ctx) })
	}, receipt, err
}

// refusing is one target.
type refusing struct {
	chaos.Node
	fault   refuseWrites
	refuser chaos.WriteRefuser
	service chaos.Observer
	allow   func(context.Context) error
}

func (x *refusing) inject(ctx context.Context, hits *chaos.Hits[*refusing]) (history.Receipt, error) {
	waited := clock.Waits(ctx, chaos.AskTimeout)
	taken, said := x.writes(ctx)
	waited()
	if !taken {
		return chaos.Seen(history.NotInstalled, 0, fmt.Sprintf("%s accepted no write before: %s", x.Name(), said)), nil
	}
	hits.Note(x)
	acting, done := clock.Act(ctx)
	how, allow, err := x.refuser.RefuseWrites(acting, x.Name())
	done()
	if x.allow = allow; err != nil {
		return history.Receipt{}, fmt.Errorf("%s: %w", how, err)
	}
	taken, said = x.until(ctx, false)
	evidence := fmt.Sprintf("%s: %s; a write: %s", x.Name(), how, said)
	switch {
	case taken:
		return chaos.Seen(history.NotInstalled, 0, evidence), nil
	case !x.answers(ctx):
		return chaos.Seen(history.Indeterminate, 0, evidence+"; but it does not answer at all"), nil
	}
	return chaos.Seen(history.Installed, 0, evidence), nil
}

// writes sends a write to the server and returns its answer.
func (x *refusing) writes(ctx context.Context) (taken bool, said string) {
	answer, err := writes(ctx, x.service, x.Name())
	if err != nil {
		return false, err.Error()
	}
	return answer == "true", "taken: " + answer
}

// until sends writes until one is accepted, or refused, as wanted.
func (x *refusing) until(ctx context.Context, want bool) (taken bool, said string) {
	defer clock.Waits(ctx, x.fault.patience)()
	for deadline := clock.Now() + int64(x.fault.patience); ; {
		taken, said = x.writes(ctx)
		if taken == want || clock.Now() > deadline || clock.Sleep(ctx, chaos.PollEvery) != nil {
			return taken, said
		}
	}
}

func (x *refusing) answers(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
	defer cancel()
	answer, err := x.service.Ask(ctx, x.Name(), chaos.FactServes)
	return err == nil && answer == "true"
}

// heal reverts the setting, and checks that the server takes a write. A server that is down cannot be checked.
func (x *refusing) heal(ctx context.Context) (history.Receipt, error) {
	acting, done := clock.Act(ctx)
	failed := x.allow(acting)
	done()
	taken, said := x.until(ctx, true)
	evidence := fmt.Sprintf("%s: a write: %s", x.Name(), said)
	switch {
	case taken:
		return chaos.Seen(history.Installed, 0, evidence), nil
	case !x.answers(ctx):
		return chaos.Seen(history.Indeterminate, 0, evidence+"; it does not answer"), nil
	}
	return chaos.Seen(history.NotInstalled, 0, evidence), errors.Join(failed, errors.New("it still accepts no write"))
}
