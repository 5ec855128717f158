package etcd

import (
	"context"
	"strconv"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Explainer = setup{}

// Explain returns the revision up to which the members have compacted their history. Members report neither the mode
// nor the retention.
func (t setup) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	ctx, done := context.WithTimeout(ctx, t.params.Timeout)
	defer done()
	var out []topology.Setting
	for _, p := range places(servers) {
		m, err := newMember(p)
		if err != nil {
			continue
		}
		if n, err := m.metric(ctx, "etcd_debugging_mvcc_compact_revision"); err == nil {
			value := none // -1: nothing was ever compacted
			if n > 0 {
				value = strconv.FormatInt(int64(n), 10)
			}
			out = append(out, topology.Setting{Server: m.name, Name: "compacted revision", Value: value})
		}
		m.web.CloseIdleConnections()
		_ = m.client.Close()
	}
	return out
}
