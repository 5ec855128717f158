package zookeeper

import (
	"context"
	"strconv"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Identified = setup{}

// Identify opens sessions through each endpoint. The server may differ each time: servers agree among themselves on
// the holder of a lock.
func (t setup) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	var out []topology.Met
	for _, m := range t.members(endpoints) {
		met, err := topology.Meet(ctx, m.address, false, m.serverID)
		if err != nil {
			return nil, err
		}
		out = append(out, met)
	}
	return out, nil
}

// serverID returns the server's number in the ensemble, which is the first byte of the ids of the sessions that it
// opens.
func (m member) serverID(ctx context.Context) (id string, err error) {
	err = m.visit(ctx, func(s *session) error {
		id = strconv.Itoa(int(uint64(s.terms().session) >> 56))
		return nil
	})
	return id, err
}
