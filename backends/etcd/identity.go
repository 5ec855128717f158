package etcd

import (
	"context"
	"fmt"
	"time"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Identified = setup{}

// Identify asks for the id of the member behind each endpoint. The id may differ each time: members agree among
// themselves on the holder of a lock.
func (t setup) Identify(ctx context.Context, endpoints []node.Handle) ([]topology.Met, error) {
	var out []topology.Met
	for _, p := range places(endpoints) {
		met, err := topology.Meet(ctx, p.addr, false, func(ctx context.Context) (string, error) {
			return p.memberID(ctx, max(t.params.Timeout, loginPatience))
		})
		if err != nil {
			return nil, err
		}
		out = append(out, met)
	}
	return out, nil
}

// memberID asks for the id over a new connection.
func (p place) memberID(ctx context.Context, within time.Duration) (string, error) {
	m, err := newMember(p)
	if err != nil {
		return "", err
	}
	defer func() { _ = m.client.Close() }()
	ctx, done := context.WithTimeout(ctx, within)
	defer done()
	st, err := m.client.Status(ctx, m.addr)
	if err != nil {
		return "", err
	}
	return fmt.Sprintf("%x", st.Header.MemberId), nil
}
