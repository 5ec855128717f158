package service

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/faulttest"
	"github.com/lockquake/lockquake/history"
)

// realm is a service with a handover: who leads, in which epoch, and the result of a request.
type realm struct {
	mu     sync.Mutex
	leader string
	epoch  string
	lag    string // of the leader's followers
	// becomes and epochs are the leader and the epoch after a requested handover; "" changes nothing.
	becomes, epochs string
	to              string // the node that was to lead
	refuses         error
	stubborn        bool // the old one never says that it does not lead
	settled         int
	numbered        func() // called when the epoch of the new leader is asked for
}

func (r *realm) Facts() map[string]string {
	return map[string]string{chaos.FactRole: "", chaos.FactEpoch: "", chaos.FactLag: ""}
}

func (r *realm) Ask(_ context.Context, node, fact string) (string, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case fact == chaos.FactEpoch:
		if r.numbered != nil && r.leader == r.becomes {
			r.numbered()
		}
		return r.epoch, nil
	case fact == chaos.FactLag && node == r.leader:
		return r.lag, nil
	case node == r.leader, node == "a" && r.stubborn:
		return "leader", nil
	}
	return "follower", nil
}

func (r *realm) Promotes() error { return r.refuses }

func (r *realm) Promote(_ context.Context, node string) (chaos.Promotion, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := chaos.Promotion{From: r.leader, To: r.to, How: "asked of " + node}
	if r.becomes != "" {
		r.leader, r.epoch = r.becomes, r.epochs
	}
	return p, nil
}

func (r *realm) Settle(context.Context, chaos.Promotion) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settled++
	return nil
}

func newRealm() *realm { return &realm{leader: "a", epoch: "1", becomes: "b", epochs: "2"} }

// wrapper is an Observer around another.
type wrapper struct{ chaos.Observer }

func (w wrapper) Unwrap() chaos.Observer { return w.Observer }

// A failover that happens is awaited until it is seen; one that does not happen is given little time.
var (
	patient = failover{led: time.Minute, noticed: time.Minute}
	hasty   = failover{led: 100 * time.Millisecond, noticed: 200 * time.Millisecond}
)

func (f failover) handOver(ctx context.Context, service chaos.Observer, on ...string) (chaos.Heal, history.Receipt, error) {
	s := chaos.Scope{Service: service, Servers: []string{"a", "b", "c"}}
	for _, n := range on {
		s.On = append(s.On, faulttest.Node(n))
	}
	return f.Inject(ctx, s)
}

func TestFailover(t *testing.T) {
	r := newRealm()
	heal, receipt, err := patient.handOver(t.Context(), wrapper{wrapper{r}}, "a")
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "failover", receipt, history.Installed)
	for _, want := range []string{"b led after", "in epoch 2", "a reported after", "whose epoch was 1"} {
		if !strings.Contains(receipt.Evidence, want) {
			t.Errorf("evidence %q does not say %q", receipt.Evidence, want)
		}
	}
	receipt, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "heal", receipt, history.Installed)
	if r.leader != "b" || r.settled != 2 {
		t.Errorf("after the heal %s leads, and the service was settled %d times", r.leader, r.settled)
	}
}

// TestFailoverThatDidNotBite: in each case the service answers that it did what it was asked to.
func TestFailoverThatDidNotBite(t *testing.T) {
	for name, c := range map[string]struct {
		failover
		sabotage func(*realm)
		want     history.ReceiptStatus
	}{
		"nothing was done":       {hasty, func(r *realm) { r.becomes = "" }, history.NotInstalled},
		"another than asked for": {patient, func(r *realm) { r.to = "c" }, history.NotInstalled},
		"in the same epoch":      {patient, func(r *realm) { r.epochs = "1" }, history.Indeterminate},
		"nobody leads":           {hasty, func(r *realm) { r.becomes = "nobody" }, history.NotInstalled},
	} {
		r := newRealm()
		c.sabotage(r)
		heal, receipt, err := c.handOver(t.Context(), r, "a")
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		faulttest.WantStatus(t, name, receipt, c.want)
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, err = heal(ctx)
		cancel()
		if (err != nil) != (r.leader == "nobody") {
			t.Errorf("heal of %s: %v", name, err)
		}
	}
}

func TestFailoverReportsAnUnawareOldLeader(t *testing.T) {
	r := newRealm()
	r.stubborn = true
	ctx, over := context.WithCancel(t.Context())
	r.numbered = over // the new leader is known by then, and the old one notices nothing
	_, receipt, err := patient.handOver(ctx, r, "a")
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "failover", receipt, history.Installed)
	if !strings.Contains(receipt.Evidence, "a never reported that it is not the leader") {
		t.Error(receipt.Evidence)
	}
}

func TestFailoverIsRefused(t *testing.T) {
	alone := newRealm()
	alone.refuses = chaos.Unavailable{What: "an orderly failover", Reason: "it is alone"}
	var u chaos.Unavailable
	for name, c := range map[string]struct {
		service chaos.Observer
		on      []string
	}{
		"a service without a lead": {struct{ chaos.Observer }{}, []string{"a"}},
		"no service":               {nil, []string{"a"}},
		"one server":               {wrapper{alone}, []string{"a"}},
		"a client":                 {newRealm(), []string{"client-1"}},
		"two targets":              {newRealm(), []string{"a", "b"}},
	} {
		heal, receipt, err := hasty.handOver(t.Context(), c.service, c.on...)
		if err == nil || heal == nil || len(c.on) == 1 && !errors.As(err, &u) {
			t.Errorf("%s: error %v", name, err)
		}
		faulttest.WantStatus(t, name, receipt, history.NotInstalled)
	}
	if err := hasty.Wants(wrapper{alone}); !errors.As(err, &u) || u.Reason != "it is alone" {
		t.Errorf("before the run: %v", err)
	}
	if err := hasty.Wants(newRealm()); err != nil {
		t.Error(err)
	}
}

// TestLeadAfterARudeFault follows the lead as a run does when a fault is aimed at the leader.
func TestLeadAfterARudeFault(t *testing.T) {
	r := newRealm()
	r.lag = "120"
	lead := chaos.Scope{Service: r, Servers: []string{"a", "b", "c"}}.Follow(t.Context(), chaos.Following{Old: "a"})
	defer lead.Stop()
	lead.Wait(t.Context(), 20*time.Millisecond, time.Minute)
	if s := lead.Seen(); s.New != "" || s.Noticed != 0 {
		t.Errorf("before anything has happened: %+v", s)
	}
	r.mu.Lock()
	r.leader, r.epoch = "c", "7"
	r.mu.Unlock()
	lead.Wait(t.Context(), time.Minute, time.Minute)
	if s := lead.Seen(); s.New != "c" || s.Epoch != "7" || s.Led < s.From || s.Noticed < s.From || s.Lag == nil || *s.Lag != 120 {
		t.Errorf("%+v", s)
	}
	if text := lead.Text(); !strings.HasSuffix(text, "; before that its best follower was 120 bytes behind") {
		t.Error(text)
	}
}

func TestNoop(t *testing.T) {
	heal, r, err := faulttest.New(t, Kinds(), "noop", "").Inject(t.Context(), chaos.Scope{On: []chaos.Node{faulttest.Node("x")}})
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "noop", r, history.Installed)
	r, err = heal(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	faulttest.WantStatus(t, "noop's heal", r, history.Installed)
	if !faulttest.Kind(t, Kinds(), "failover").Single {
		t.Error("failover may be aimed at several")
	}
}
