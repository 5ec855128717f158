package engine

import (
	"maps"
	"slices"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster"
)

// promised holds an injection whose targets are found against what the schedule promises, and says why it may not be made,
// or "": then it counts as standing until its heal is done. A node whose heal did not take counts to the end.
func (r *run) promised(f *history.Fault, s chaos.Scope) string {
	p := r.plan
	if p.promise.None() {
		return ""
	}
	servers := p.namesOf(cluster.Server)
	reach := chaos.NewReach(nodeNames(s.On), nodeNames(s.Peers), servers, p.namesOf(cluster.Client))
	r.mu.Lock()
	defer r.mu.Unlock()
	var others []chaos.Reach
	for _, id := range slices.Sorted(maps.Keys(r.standing)) {
		others = append(others, r.standing[id])
	}
	why := p.promise.Broken(servers, others, reach)
	if why == "" {
		r.standing[f.ID] = reach
	}
	return why
}

// leaveOut records an injection whose turn did not come in time.
func (r *run) leaveOut(d due, why string) {
	f := r.newFault(d.inj, r.startTime()+int64(d.at))
	r.mu.Lock()
	f.Receipt = history.Receipt{Status: history.NotMade, Evidence: why, Time: clock.Now()}
	r.mu.Unlock()
	r.writeFaults()
}

func nodeNames(nodes []chaos.Node) []string {
	var out []string
	for _, n := range nodes {
		out = append(out, n.Name())
	}
	return out
}
