package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
)

// stored reads a lock's key and how long it lasts, both at once.
func (m member) stored(ctx context.Context, name string, keys []string) (topology.Stored, error) {
	var values *redis.SliceCmd
	ends := make([]*redis.DurationCmd, len(keys))
	_, err := m.client.TxPipelined(ctx, func(p redis.Pipeliner) error {
		values = p.MGet(ctx, keys...)
		for i, k := range keys {
			ends[i] = p.PTTL(ctx, k)
		}
		return nil
	})
	if err != nil {
		return topology.Stored{}, fmt.Errorf("the keys of %s on %s: %w", name, m.name, err)
	}
	out := topology.Stored{Holder: holderIn(values.Val())}
	for i, v := range values.Val() {
		if v == nil {
			continue
		}
		if left := ends[i].Val(); left >= 0 {
			out.EndsIn = &left
		}
		break
	}
	return out, nil
}

// storedByAll asks all servers side by side.
func storedByAll(ctx context.Context, ms members, name string,
	keys func(access.Keyspace, string) []string,
) ([]topology.Stored, []error) {
	said, errs := make([]topology.Stored, len(ms)), make([]error, len(ms))
	var group sync.WaitGroup
	for i, m := range ms {
		group.Go(func() { said[i], errs[i] = m.stored(ctx, name, keys(m.keys, name)) })
	}
	group.Wait()
	return said, errs
}

// Stored asks the one server.
func (s *service) Stored(ctx context.Context, name string) (topology.Stored, error) {
	m := s.members[0]
	return m.stored(ctx, name, m.keys.Anywhere(name))
}

// Stored asks the server that most Sentinels take for the primary.
func (s *sentinelService) Stored(ctx context.Context, name string) (topology.Stored, error) {
	primary, err := s.nodes.elected(ctx)
	if err != nil {
		return topology.Stored{}, err
	}
	m, err := s.nodes.servers.find(primary)
	if err != nil {
		return topology.Stored{}, err
	}
	return m.stored(ctx, name, m.keys.Anywhere(name))
}

// Stored asks the server that takes itself for the primary of the lock's slot: all others send whoever asks to it.
// While there are two, nobody knows.
func (s *clusterService) Stored(ctx context.Context, name string) (out topology.Stored, err error) {
	said, errs := storedByAll(ctx, s.servers, name, access.Keyspace.Keys)
	primaries := 0
	for i := range said {
		if errs[i] == nil {
			out = said[i]
			primaries++
		}
	}
	if primaries != 1 {
		return topology.Stored{}, fmt.Errorf("%d servers say that they have the slot of %s: %w", primaries, name,
			errors.Join(errs...))
	}
	return out, nil
}

// Stored asks all servers. Who has the lock has its key on a majority, which stands until the last but one of a bare
// majority is gone.
func (s *fiveService) Stored(ctx context.Context, name string) (topology.Stored, error) {
	said, errs := storedByAll(ctx, s.members, name, access.Keyspace.Anywhere)
	values := make([]string, len(said))
	for i := range said {
		values[i] = said[i].Holder
	}
	holder, err := majorityOf(values, errs)
	if err != nil {
		return topology.Stored{}, err
	}
	out := topology.Stored{Holder: holder, Keys: []string{}}
	var ends []time.Duration
	for i, x := range said {
		if errs[i] != nil || x.Holder == "none" {
			continue
		}
		if !slices.Contains(out.Keys, x.Holder) {
			out.Keys = append(out.Keys, x.Holder)
		}
		if x.Holder == holder && x.EndsIn != nil {
			ends = append(ends, *x.EndsIn)
		}
	}
	if quorum := len(said)/2 + 1; len(ends) >= quorum {
		slices.Sort(ends)
		out.EndsIn = &ends[len(ends)-quorum]
	}
	return out, nil
}
