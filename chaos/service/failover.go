package service

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// failover makes a service hand over its leadership, as for maintenance. Unplanned failovers come from kill, pause and
// partition.
type failover struct {
	led, noticed time.Duration // how long to wait for each
}

// How long a handover may take to be seen, and after that until the old leader itself reports it. A Sentinel turns an
// old primary into a replica within a second of the promotion; the servers of ZooKeeper elect in between.
const (
	ledTime    = 8 * time.Second
	noticeTime = 4 * time.Second // after settling, which gets the rest of Timeout
)

func failoverKind() chaos.Kind {
	return chaos.Kind{
		Name: "failover", Place: 11,
		Doc: "Makes the service hand over its lead in an orderly way, away from a target that leads, or to one that " +
			"follows. Receipt: another node leads, its epoch, and when the old leader reports that it is not the " +
			"leader.",
		Servers: true,
		Single:  true,
		Began:   "asked to hand over the lead",
		New: func(decode func(any) error) (chaos.Fault, error) {
			return failover{led: ledTime, noticed: noticeTime}, decode(&struct{}{})
		},
	}
}

// Wants returns an error for a service that cannot do it.
func (failover) Wants(service chaos.Observer) error {
	_, err := promoter(service)
	return err
}

// promoter returns the Promoter that an Observer is, or wraps.
func promoter(service chaos.Observer) (chaos.Promoter, error) {
	if p, ok := chaos.As[chaos.Promoter](service); ok {
		return p, p.Promotes()
	}
	if p, ok := chaos.As[interface{ Promotes() error }](service); ok { // it returns its own reason
		if err := p.Promotes(); err != nil {
			return nil, err
		}
	}
	return nil, chaos.Unavailable{
		What:   "an orderly failover",
		Reason: "the service has no lead to hand over",
	}
}

// Inject asks for the handover and waits until it is seen.
func (f failover) Inject(ctx context.Context, s chaos.Scope) (chaos.Heal, history.Receipt, error) {
	p, err := promoter(s.Service)
	if err == nil && len(s.On) != 1 {
		err = fmt.Errorf("the lead is handed over from or to one node, but there are %d targets", len(s.On))
	}
	if err == nil && !slices.Contains(s.Servers, s.On[0].Name()) {
		err = chaos.Unavailable{What: "an orderly failover", Reason: s.On[0].Name() + " is no server"}
	}
	if err != nil {
		return chaos.NothingToHeal, chaos.NothingDone(err), err
	}
	h := handover{Promoter: p, scope: s}
	receipt, err := h.do(ctx, s.On[0].Name(), f)
	return h.heal, receipt, err
}

// handover is one injection of failover.
type handover struct {
	chaos.Promoter
	scope chaos.Scope
	asked chaos.Promotion
	begun bool
}

func (h *handover) do(ctx context.Context, target string, f failover) (history.Receipt, error) {
	waited := clock.Waits(ctx, 2*chaos.AskTimeout)
	led := h.leaders(ctx)
	epoch := ""
	if slices.Contains(led, target) {
		epoch = chaos.AskEpoch(ctx, h.scope.Service, target)
	}
	waited()
	_, done := clock.Act(ctx)
	done() // the time until the service obeys is its own, and not a delay of the injection
	ctx = clock.WithoutActs(ctx)
	var err error
	h.begun = true
	if h.asked, err = h.Promote(ctx, target); err != nil {
		return history.Receipt{}, fmt.Errorf("the handover was refused: %w", err)
	}
	also := slices.DeleteFunc(led, func(n string) bool { return n == h.asked.From })
	lead := h.scope.Follow(ctx, chaos.Following{Old: h.asked.From, Also: also})
	if h.scope.Run != nil {
		h.scope.Run.Follow(lead)
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

// receipt judges the observations of a handover.
func (h *handover) receipt(s history.Lead, before string) history.Receipt {
	evidence := h.asked.How + ": " + chaos.LeadText(s)
	if before != "" {
		evidence += ", whose epoch was " + before
	}
	later, known := grew(before, s.Epoch)
	switch {
	case s.New == "":
		return chaos.Seen(history.NotInstalled, 0, evidence)
	case h.asked.To != "" && s.New != h.asked.To:
		return chaos.Seen(history.NotInstalled, s.Led, evidence+"; it should have been "+h.asked.To)
	case known && !later:
		return chaos.Seen(history.Indeterminate, s.Led, evidence+": the epoch did not grow")
	}
	return chaos.Seen(history.Installed, s.Led, evidence)
}

// grew reports whether an epoch is later than another; ok is false if they cannot be compared.
func grew(before, after string) (later, ok bool) {
	b, err1 := strconv.ParseUint(before, 10, 64)
	a, err2 := strconv.ParseUint(after, 10, 64)
	return a > b, err1 == nil && err2 == nil
}

// leaders asks all servers concurrently who leads.
func (h *handover) leaders(ctx context.Context) []string {
	roles := make([]string, len(h.scope.Servers))
	var all sync.WaitGroup
	for i, name := range h.scope.Servers {
		all.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, chaos.AskTimeout)
			defer cancel()
			roles[i], _ = h.scope.Service.Ask(ctx, name, h.scope.RoleFact())
		})
	}
	all.Wait()
	var out []string
	for i, name := range h.scope.Servers {
		if chaos.Leads(roles[i]) {
			out = append(out, name)
		}
	}
	return out
}

// heal undoes the rest of an interrupted handover, and checks that some node leads. The leadership is not handed back.
func (h *handover) heal(ctx context.Context) (history.Receipt, error) {
	if !h.begun {
		return chaos.NothingToHeal(ctx)
	}
	if err := h.Settle(ctx, h.asked); err != nil {
		return history.Receipt{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, chaos.ReviveTimeout)
	defer cancel()
	for {
		if led := h.leaders(ctx); len(led) > 0 {
			return chaos.Seen(history.Installed, 0, strings.Join(led, ", ")+" leads"), nil
		}
		if clock.Sleep(ctx, chaos.PollEvery) != nil {
			return chaos.Seen(history.NotInstalled, 0, "nobody leads"), errors.New("nobody leads")
		}
	}
}
