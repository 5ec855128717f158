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

// lagTime bounds the questions for the replication lag and for the locks of a leader, so that a server that hangs does
// not delay the injection.
const lagTime = 100 * time.Millisecond

// Leads reports whether an answer to FactRole is that of a leader.
func Leads(role string) bool { return slices.Contains(leading, role) }

// Lead polls the roles of the servers to learn which one takes the lead, and when the old leader says that it no longer
// leads. Each server has its own goroutine, so that a silent one delays no other.
type Lead struct {
	service Observer
	fact    string
	done    <-chan struct{}
	stop    context.CancelFunc
	// numbered reports whether the service numbers its terms.
	numbered bool
	asking   sync.WaitGroup

	mu   sync.Mutex
	seen history.Lead
}

// Following names the leaders known before a new one is looked for.
type Following struct {
	Old  string   // the node that leads now; "" if unknown
	Also []string // other leaders, of something else than what Old leads
}

// Follow reads the leader's replication lag once and starts to poll who leads, until Stop.
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

// RoleFact returns the fact by which leaders are found.
func (s Scope) RoleFact() string {
	if s.Role == "" {
		return FactRole
	}
	return s.Role
}

// await polls a node until take returns true.
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

// noticed takes an answer of the old leader. It returns true once that node no longer leads.
func (l *Lead) noticed(_ context.Context, _, role string) bool {
	if Leads(role) {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.seen.Noticed = clock.Now()
	return true
}

// leads takes an answer of another node. It returns true once any of them leads.
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

// number asks for the new leader's epoch until it is a number; a Sentinel reports it some time after the promotion.
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

// askLag returns the replication lag of a leader; nil if unknown.
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

// AskShard asks which of the locks the nodes lead. It returns nil if the service does not shard its locks.
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

// AskEpoch returns the node's epoch, or "" if the node has none to report.
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

// complete reports whether there is nothing left to wait for.
func (l *Lead) complete() bool {
	s := l.Seen()
	return s.New != "" && (s.Noticed != 0 || s.Old == "") && (s.Epoch != "" || !l.numbered)
}

// Wait returns when a new leader is known and the old one has noticed, or after Stop. led bounds the wait for the new
// leader, both the whole wait.
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

// Stop ends the polling.
func (l *Lead) Stop() {
	l.stop()
	l.asking.Wait()
}

// LeadText describes what was seen, with times since Follow.
func LeadText(s history.Lead) string {
	since := func(t int64) time.Duration { return time.Duration(t - s.From).Round(time.Millisecond) }
	text := "no other node was seen to lead"
	if s.New != "" {
		text = fmt.Sprintf("%s led after %s", s.New, since(s.Led))
		if s.Epoch != "" {
			text += ", in epoch " + s.Epoch
		}
	}
	switch {
	case s.Old == "":
	case s.Noticed != 0:
		text += fmt.Sprintf("; %s reported after %s that it is not the leader", s.Old, since(s.Noticed))
	case s.New != "":
		text += fmt.Sprintf("; %s never reported that it is not the leader", s.Old)
	}
	if s.Lag != nil {
		text += fmt.Sprintf("; before that its best follower was %d bytes behind", *s.Lag)
	}
	return text
}

// Text describes what has been seen so far.
func (l *Lead) Text() string { return LeadText(l.Seen()) }
