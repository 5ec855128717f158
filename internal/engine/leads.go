package engine

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/engine/rundir"
)

// leads follows which server leads the service after faults at its leader.
type leads struct {
	faults *rundir.Faults
	asking sync.WaitGroup // goroutines that ask for the leader after a heal
}

// How long after a heal the servers are asked for the leader, and the old leader whether it has noticed.
const (
	leadTime   = time.Second
	noticeTime = 5 * time.Second
)

// follow begins to follow the lead after a fault that hits a leader, alone or with clients, unless the fault follows
// it itself.
func (l *leads) follow(ctx context.Context, f *rundir.Injected, s chaos.Scope) {
	hit := serversHit(s)
	if _, own := f.Inj.Fault.(chaos.Wanting); own || len(hit) != 1 {
		return
	}
	if _, ok := f.Inj.Selector.Leader(s.Service); ok {
		s.Run.Follow(s.Follow(ctx, chaos.Following{Old: hit[0]}))
	}
}

// await waits until another node was seen to lead since an injection hit the leader.
func (l *leads) await(ctx context.Context, f *rundir.Injected) error {
	var lead *chaos.Lead
	l.faults.Change(func() { lead = f.Follows })
	if lead == nil {
		return fmt.Errorf("%s on %s was not made at a leader", f.Name, f.Target)
	}
	for lead.Seen().New == "" {
		if err := clock.Sleep(ctx, 5*time.Millisecond); err != nil {
			return fmt.Errorf("%w; %s", err, lead.Text())
		}
	}
	return nil
}

// healed adds to the receipt of a heal which server led while the fault was active, and goes on asking in the
// background.
func (l *leads) healed(f *rundir.Injected) {
	var lead *chaos.Lead
	l.faults.Change(func() { lead = f.Follows })
	if lead == nil {
		return
	}
	without := f.Healed.Evidence
	l.tell(f, without, lead)
	l.asking.Go(func() {
		lead.Wait(context.Background(), leadTime, noticeTime)
		lead.Stop()
		l.tell(f, without, lead)
		l.faults.Write()
	})
}

// tell writes what is known of the lead into the record of a fault.
func (l *leads) tell(f *rundir.Injected, evidence string, lead *chaos.Lead) {
	l.faults.Change(func() {
		healed, seen := *f.Healed, lead.Seen()
		healed.Evidence = strings.TrimPrefix(evidence+"; the lead: "+lead.Text(), "; ")
		f.Healed, f.Lead = &healed, &seen
	})
}

// stop ends the asking, whatever is still awaited.
func (l *leads) stop() {
	for _, lead := range l.faults.Following() {
		lead.Stop()
	}
	l.asking.Wait()
}
