package chaos

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// Promoter is an Observer of a service that can hand its lead over in order, while everybody is well.
type Promoter interface {
	// Promotes returns nil where the service can do it, else an Unavailable with the reason. It is asked before anything starts.
	Promotes() error
	// Promote has the service begin: away from the node where it leads, to it where it follows. It need not wait for the effect.
	Promote(ctx context.Context, node string) (Promotion, error)
	// Settle takes back what a handover needs only while it goes on, when the new leader is known or nobody leads. It may be called again.
	Settle(ctx context.Context, p Promotion) error
}

// Promotion is a handover as it was asked for.
type Promotion struct {
	From, To string // To is "" where the service chooses
	How      string // what was asked of whom, for a receipt
}

// Wanting is a fault that needs something of the service itself, beside what it needs of nodes.
type Wanting interface {
	// Wants returns nil where the service has it, else an Unavailable with the reason. It is asked before anything starts.
	Wants(service Observer) error
}

// failover has a service hand its lead over in order: the planned one, as for maintenance. The rude ones are kill, pause and
// partition.
type failover struct {
	led, noticed time.Duration // how long each is waited for
}

// How long a handover may take to be seen, and then until the node that led says so itself. A Sentinel turns an old primary into a
// replica within a second of the promotion; the servers of ZooKeeper elect in between.
const (
	ledTime    = 8 * time.Second
	noticeTime = 4 * time.Second // after settling, which has the rest of Timeout
)

func failoverKind() Kind {
	return Kind{
		Name: "failover",
		Doc: "Has the service hand its lead over in order, away from a target that leads, or to one that follows; receipt: another node leads, " +
			"its epoch, and when the old leader says that it does not.",
		Servers: true,
		Single:  true,
		New: func(decode func(any) error) (Fault, error) {
			return failover{led: ledTime, noticed: noticeTime}, decode(&struct{}{})
		},
	}
}

// Wants refuses a service that cannot do it.
func (failover) Wants(service Observer) error {
	_, err := promoter(service)
	return err
}

// promoter returns the Promoter that an Observer is, or wraps.
func promoter(service Observer) (Promoter, error) {
	for o := service; o != nil; {
		if p, ok := o.(Promoter); ok {
			return p, p.Promotes()
		}
		if p, ok := o.(interface{ Promotes() error }); ok { // which has a reason of its own why it cannot
			if err := p.Promotes(); err != nil {
				return nil, err
			}
		}
		wrapped, ok := o.(interface{ Unwrap() Observer })
		if !ok {
			break
		}
		o = wrapped.Unwrap()
	}
	return nil, Unavailable{What: "a failover in order", Reason: "the service knows no lead that could be handed over"}
}

// Inject asks for the handover and waits until it is seen.
func (f failover) Inject(ctx context.Context, s Scope) (Heal, history.Receipt, error) {
	p, err := promoter(s.Service)
	if err == nil && len(s.On) != 1 {
		err = fmt.Errorf("the lead is handed over away from one node, or to one; the target is %d", len(s.On))
	}
	if err == nil && !slices.Contains(s.Servers, s.On[0].Name()) {
		err = Unavailable{What: "a failover in order", Reason: s.On[0].Name() + " is no server"}
	}
	if err != nil {
		return nothingToHeal, nothingDone(err), err
	}
	h := handover{Promoter: p, scope: s}
	receipt, err := h.do(ctx, s.On[0].Name(), f)
	return h.heal, receipt, err
}

// handover is one use of failover.
type handover struct {
	Promoter
	scope Scope
	asked Promotion
	begun bool
}

func (h *handover) do(ctx context.Context, target string, f failover) (history.Receipt, error) {
	led := h.leaders(ctx)
	epoch := ""
	if slices.Contains(led, target) {
		epoch = askEpoch(ctx, h.scope.Service, target)
	}
	var err error
	h.begun = true
	if h.asked, err = h.Promote(ctx, target); err != nil {
		return history.Receipt{}, fmt.Errorf("the handover was refused: %w", err)
	}
	also := slices.DeleteFunc(led, func(n string) bool { return n == h.asked.From })
	lead := h.scope.follow(ctx, Following{Old: h.asked.From, Also: also})
	if h.scope.Follow != nil {
		h.scope.Follow(lead)
	} else {
		defer lead.Stop()
	}
	lead.Wait(ctx, f.led, f.led)
	if err = h.Settle(ctx, h.asked); err != nil {
		err = fmt.Errorf("after the handover: %w", err)
	}
	lead.Wait(ctx, 0, f.noticed)
	return h.receipt(lead.Seen(), epoch), err
}

// receipt judges what was seen of a handover.
func (h *handover) receipt(s history.Lead, before string) history.Receipt {
	evidence := h.asked.How + ": " + leadText(s)
	if before != "" {
		evidence += ", whose epoch was " + before
	}
	later, known := grew(before, s.Epoch)
	switch {
	case s.New == "":
		return seen(history.NotInstalled, 0, evidence)
	case h.asked.To != "" && s.New != h.asked.To:
		return seen(history.NotInstalled, s.Led, evidence+"; it was to be "+h.asked.To)
	case known && !later:
		return seen(history.Indeterminate, s.Led, evidence+": the epoch did not grow")
	}
	return seen(history.Installed, s.Led, evidence)
}

// leaders asks all servers at once who leads.
func (h *handover) leaders(ctx context.Context) []string {
	roles := make([]string, len(h.scope.Servers))
	var all sync.WaitGroup
	for i, name := range h.scope.Servers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, askTimeout)
			defer cancel()
			roles[i], _ = h.scope.Service.Ask(ctx, name, h.scope.role())
		})
	}
	all.Wait()
	var out []string
	for i, name := range h.scope.Servers {
		if Leads(roles[i]) {
			out = append(out, name)
		}
	}
	return out
}

// heal takes back what a handover that was cut short left, and sees that somebody leads. Who leads then stays.
func (h *handover) heal(ctx context.Context) (history.Receipt, error) {
	if !h.begun {
		return nothingToHeal(ctx)
	}
	if err := h.Settle(ctx, h.asked); err != nil {
		return history.Receipt{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, reviveTimeout)
	defer cancel()
	for {
		if led := h.leaders(ctx); len(led) > 0 {
			return seen(history.Installed, 0, strings.Join(led, ", ")+" leads"), nil
		}
		if clock.Sleep(ctx, pollEvery) != nil {
			return seen(history.NotInstalled, 0, "nobody leads"), errors.New("nobody leads")
		}
	}
}
