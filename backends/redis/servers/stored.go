package servers

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
)

// question reads the keys of a lock: a string's value, or the field names of a hash, which name the holders of a
// re-entrant lock.
type question struct {
	texts  *redis.SliceCmd
	hashes []*redis.StringSliceCmd
}

func ask(ctx context.Context, p redis.Pipeliner, keys []string) question {
	q := question{texts: p.MGet(ctx, keys...), hashes: make([]*redis.StringSliceCmd, len(keys))}
	for i, k := range keys {
		q.hashes[i] = p.HKeys(ctx, k)
	}
	return q
}

// values returns what was found at each key; nil: nothing.
func (q question) values() ([]any, error) {
	out, err := q.texts.Result()
	for i := range out {
		fields, wrong := q.hashes[i].Result()
		switch {
		case wrong != nil && !redis.HasErrorPrefix(wrong, "WRONGTYPE"):
			return nil, wrong
		case len(fields) > 0:
			slices.Sort(fields)
			out[i] = strings.Join(fields, ",")
		}
	}
	return out, err
}

// stored reads a lock's key and its remaining time together.
func (m member) stored(ctx context.Context, name string, keys []string) (topology.Stored, error) {
	var q question
	ends := make([]*redis.DurationCmd, len(keys))
	_, _ = m.client.TxPipelined(ctx, func(p redis.Pipeliner) error { // each reply has its own error
		q = ask(ctx, p, keys)
		for i, k := range keys {
			ends[i] = p.PTTL(ctx, k)
		}
		return nil
	})
	values, err := q.values()
	if err != nil {
		return topology.Stored{}, fmt.Errorf("the keys of %s on %s: %w", name, m.name, err)
	}
	out := topology.Stored{Holder: holderIn(values)}
	for i, v := range values {
		if v == nil {
			continue
		}
		left, err := ends[i].Result()
		if err != nil {
			return topology.Stored{}, fmt.Errorf("the end of %s on %s: %w", name, m.name, err)
		}
		if left >= 0 {
			out.EndsIn = &left
		}
		break
	}
	return out, nil
}

// storedByAll asks all servers in parallel.
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

// Stored asks the server that a majority of Sentinels names as the primary.
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

// Stored asks the server that considers itself the primary of the lock's slot; all others redirect to it. While there
// are two, the answer is unknown.
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
		return topology.Stored{}, fmt.Errorf("%d servers claim the slot of %s: %w", primaries, name,
			errors.Join(errs...))
	}
	return out, nil
}

// Stored asks all servers. The holder's key is on a majority. The hold lasts until so many keys have expired that no
// majority is left.
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
