package chaos

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
)

// lagTime is how long an injection waits to learn the replication lag, or which locks a leader has: one that hangs must
// not delay it.
const lagTime = 100 * time.Millisecond

// Leads tells whether an answer to FactRole is that of a node that leads.
func Leads(role string) bool { return slices.Contains(leading, role) }

// Lead asks the servers for their roles, to learn which one leads after another did, and when the old leader says that
// it does not lead any more. Every server is asked by a goroutine of its own, so that one that does not answer delays
// no other.
type Lead struct {
	service Observer
	fact    string
	done    <-chan struct{}
	stop    context.CancelFunc
	// numbered tells whether the service counts its terms.
	numbered bool
	asking   sync.WaitGroup

	mu   sync.Mutex
	seen history.Lead
}

// Following says after whom a new leader is looked for.
type Following struct {
	Old  string   // the node that leads now; "" where nobody is known to
	Also []string // nodes that lead besides: something else than what Old does
}

// Follow reads how far the followers of the node that leads are behind, and begins to ask who leads. It goes on until
// Stop.
func (s Scope) Follow(ctx context.Context, f Following) *Lead {
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	lag := askLag(ctx, s.Service, f.Old)
	l := &Lead{
		service: s.Service, fact: s.RoleFact(), done: ctx.Done(), stop: stop,
		seen: history.Lead{Old: f.Old, From: clock.Now(), Lag: lag},
	}
	_, l.numbered = s.Service.Facts()[FactEpoch]
	for _, name := range s.Servers {
		switch {
		case name == f.Old:
			l.asking.Go(func() { l.await(ctx, name, l.noticed) })
		case !slices.Contains(f.Also, name):
			l.asking.Go(func() { l.await(ctx, name, l.leads) })
		}
	}
	return l
}

// RoleFact is the fact by which it is known who leads.
func (s Scope) RoleFact() string {
	if s.Role == "" {
		return FactRole
	}
	return s.Role
}

// await asks a node until take has what it wants.
func (l *Lead) await(ctx context.Context, node string, take func(ctx context.Context, node, role string) bool) {
	for {
		asking, cancel := context.WithTimeout(ctx, AskTimeout)
		role, err := l.service.Ask(asking, node, l.fact)
		cancel()
		if err == nil && take(ctx, node, role) || clock.Sleep(ctx, PollEvery) != nil {
			return
		}
	}
}

// noticed takes the answer of the node that led.
func (l *Lead) noticed(_ context.Context, _, role string) bool {
	if Leads(role) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.Noticed = clock.Now()
	return true
}

// leads takes the answer of another node. When one of them leads, the others need not be asked any more.
func (l *Lead) leads(ctx context.Context, node, role string) bool {
	if l.Seen().New != "" {
		return true
	}
	if !Leads(role) {
		return false
	}
	l.mu.Lock()
	first := l.seen.New == ""
	if first {
		l.seen.New, l.seen.Led = node, clock.Now()
	}
	l.mu.Unlock()
	if first {
		l.number(ctx, node)
	}
	return true
}

// number asks for the new leader's epoch until it is a number: a Sentinel tells it some time after the promotion.
func (l *Lead) number(ctx context.Context, node string) {
	if !l.numbered {
		return
	}
	for {
		epoch := AskEpoch(ctx, l.service, node)
		if _, err := strconv.ParseUint(epoch, 10, 64); err == nil {
			l.mu.Lock()
			l.seen.Epoch = epoch
			l.mu.Unlock()
			return
		}
		if clock.Sleep(ctx, PollEvery) != nil {
			return
		}
	}
}

// askLag returns the replication lag of a node that leads; nil where it is not known.
func askLag(ctx context.Context, service Observer, node string) *int64 {
	if _, known := service.Facts()[FactLag]; !known || node == "" {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lagTime)
	defer cancel()
	lag, err := service.Ask(ctx, node, FactLag)
	if err != nil {
		return nil
	}
	n, err := strconv.ParseInt(lag, 10, 64)
	if err != nil {
		return nil
	}
	return &n
}

// AskShard asks which of the locks the nodes lead; nil where the service does not spread them.
func AskShard(ctx context.Context, service Observer, nodes, locks []string) *history.Shard {
	sharder, ok := As[Sharder](service)
	if !ok {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, lagTime)
	defer cancel()
	shard := history.Shard{Locks: []string{}}
	for _, node := range nodes {
		led, err := sharder.Leads(ctx, node, locks)
		if err != nil {
			return &history.Shard{Unknown: err.Error()}
		}
		shard.Locks = append(shard.Locks, led...)
	}
	return &shard
}

// AskEpoch returns the node's epoch, or "" where it does not tell one.
func AskEpoch(ctx context.Context, service Observer, node string) string {
	ctx, cancel := context.WithTimeout(ctx, AskTimeout)
	defer cancel()
	epoch, err := service.Ask(ctx, node, FactEpoch)
	if err != nil {
		return ""
	}
	return epoch
}

// Seen returns what has been seen so far.
func (l *Lead) Seen() history.Lead {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.seen
}

// complete tells whether there is nothing left to wait for.
func (l *Lead) complete() bool {
	s := l.Seen()
	return s.New != "" && (s.Noticed != 0 || s.Old == "") && (s.Epoch != "" || !l.numbered)
}

// Wait returns when a new leader is known and the old one has noticed, after Stop, or when its time is over: led bounds
// the wait for the new leader, both the wait for everything.
func (l *Lead) Wait(ctx context.Context, led, both time.Duration) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	go func() {
		select {
		case <-l.done:
			cancel()
		case <-ctx.Done():
		}
	}()
	begun := clock.Now()
	for {
		limit := both
		if l.Seen().New == "" {
			limit = led
		}
		over := time.Duration(clock.Now()-begun) >= limit
		if over || l.complete() || clock.Sleep(ctx, PollEvery) != nil {
			return
		}
	}
}

// Stop ends the asking.
func (l *Lead) Stop() {
	l.stop()
	l.asking.Wait()
}

// LeadText says in words what was seen, with times since the following began.
func LeadText(s history.Lead) string {
	since := func(t int64) time.Duration { return time.Duration(t - s.From).Round(time.Millisecond) }
	text := "nobody else was seen to lead"
	if s.New != "" {
		text = fmt.Sprintf("%s led after %s", s.New, since(s.Led))
		if s.Epoch != "" {
			text += ", in epoch " + s.Epoch
		}
	}
	switch {
	case s.Old == "":
	case s.Noticed != 0:
		text += fmt.Sprintf("; %s said after %s that it does not lead", s.Old, since(s.Noticed))
	case s.New != "":
		text += fmt.Sprintf("; %s was not heard to say that it does not lead", s.Old)
	}
	if s.Lag != nil {
		text += fmt.Sprintf("; before that its best follower was %d bytes behind", *s.Lag)
	}
	return text
}

// Text says in words what has been seen so far.
func (l *Lead) Text() string { return LeadText(l.Seen()) }
