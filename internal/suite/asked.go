package suite

import (
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/backends"
	"github.com/lockquake/lockquake/backends/listed"
	"github.com/lockquake/lockquake/internal/stories"
	"github.com/lockquake/lockquake/internal/stories/ask"
)

// Asked returns the stories of a lock that only its own program knows, as scenarios whose names begin with the
// prefix. The service's behaviour with its servers is known here.
func Asked(l ask.Lock, prefix string, list []listed.Backend) ([]ask.Story, error) {
	m := maker{set: slices.Clone(l.Set)}
	for i, set := range m.set {
		m.set[i] = "backend." + set
	}
	rows, err := expand(Row{Backend: l.Backend, Lock: l.StandIn}, list)
	switch {
	case err != nil:
		return nil, err
	case len(rows) != 1:
		return nil, fmt.Errorf("%w: %s/%s is more than one", ErrNoLock, l.Backend, l.StandIn)
	}
	m.row = rows[0]
	if err := m.meet(Config{TTL: l.TTL, Clients: l.Clients, Users: l.Users, Quick: l.Quick}, nil); err != nil {
		return nil, err
	}
	s, standIn := m.subject, m.subject.Lock
	s.TTL = l.TTL // Parse rejects one that is too short
	s.Lock = backends.Lock{
		Name: standIn.Name, Offers: l.Offers, Points: l.Points, Recovery: backends.RecoversIn(l.Recovery.Bound),
	}
	s.Lock.Offers.WallClock = l.Offers.WallClock || l.Offers.Expires && standIn.Offers.WallClock
	if l.Hung > 0 {
		s.Keeps = true
		s.Lock.Hung = backends.RecoversIn(func(time.Duration) time.Duration { return l.Hung })
	}
	s.NoTokens = standIn.Offers.Token != backends.TokenNone && l.Offers.Token == backends.TokenNone
	s.Elsewhere = l.Elsewhere
	var out []ask.Story
	for _, t := range stories.Of(s) {
		x := ask.Story{Name: t.Name, Quick: t.Quick, Grants: t.Grants, Why: t.Why(s)}
		if x.Why == "" {
			var err error
			if x.Scenario, err = t.Scenario(prefix, s); err != nil {
				x.Error = err.Error()
			}
		}
		out = append(out, x)
	}
	return out, nil
}
