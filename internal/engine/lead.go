package engine

import (
	"context"
	"strings"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// How long after a heal it is asked on who leads now, and whether the one that led before has noticed.
const (
	leadTime   = time.Second
	noticeTime = 5 * time.Second
)

// follow keeps what follows the lead since an injection, until the run ends.
func (r *run) follow(f *history.Fault, lead *chaos.Lead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.leads[f.ID] = lead
}

// followLead begins to follow who leads in the place of the target, where a fault is aimed at a leader and does not follow by
// itself.
func (r *run) followLead(ctx context.Context, inj injection, f *history.Fault, s chaos.Scope) {
	if _, own := inj.fault.(chaos.Wanting); own || len(s.On) != 1 {
		return
	}
	if _, ok := inj.selector.Leader(s.Service); ok {
		r.follow(f, chaos.FollowLead(ctx, s, s.On[0].Name()))
	}
}

// leadAtHeal adds to the receipt of a heal what was seen of the lead while the fault stood, and asks on beside what comes next.
func (r *run) leadAtHeal(f *history.Fault) {
	r.mu.Lock()
	lead := r.leads[f.ID]
	r.mu.Unlock()
	if lead == nil {
		return
	}
	without := f.Healed.Evidence
	r.tellLead(f, without, lead)
	r.leading.Go(func() {
		lead.Wait(context.Background(), leadTime, noticeTime)
		lead.Stop()
		r.tellLead(f, without, lead)
		r.writeFaults()
	})
}

// tellLead writes what is known of the lead into the record of a fault.
func (r *run) tellLead(f *history.Fault, evidence string, lead *chaos.Lead) {
	r.mu.Lock()
	defer r.mu.Unlock()
	healed, seen := *f.Healed, lead.Seen()
	healed.Evidence = strings.TrimPrefix(evidence+"; the lead: "+lead.Text(), "; ")
	f.Healed, f.Lead = &healed, &seen
}

// stopLeads ends the asking, whatever is still awaited.
func (r *run) stopLeads() {
	r.mu.Lock()
	all := make([]*chaos.Lead, 0, len(r.leads))
	for _, lead := range r.leads {
		all = append(all, lead)
	}
	r.mu.Unlock()
	for _, lead := range all {
		lead.Stop()
	}
	r.leading.Wait()
}
