package servers

import (
	"context"
	"fmt"

	"github.com/lockquake/lockquake/backends/redis/access"
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

// Explain asks the server.
func (single) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	return explain(ctx, servers)
}

// Explain asks the servers.
func (five) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	return explain(ctx, servers)
}

// Explain asks the servers, not the Sentinels.
func (sentinel) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	return explain(ctx, servers)
}

// Explain asks the servers.
func (sharded) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	return explain(ctx, servers)
}

// told are the fields of INFO that may explain a finding, by section. CONFIG has more, but is often forbidden.
var told = []struct{ section, field string }{
	{"memory", "maxmemory"},
	{"memory", "maxmemory_policy"},
	{"stats", "evicted_keys"},
	{"persistence", "aof_enabled"},
	{"persistence", "rdb_last_bgsave_status"},
	{"replication", "min_slaves_good_slaves"}, // only present with min-replicas-to-write
}

func explain(ctx context.Context, nodes []node.Handle) []topology.Setting {
	servers := membersOf(nodes, seen{port: access.Port, timeout: observeTimeout})
	defer func() { _ = servers.Close() }()
	var out []topology.Setting
	for _, m := range servers {
		sections := map[string]map[string]string{}
		for _, f := range told {
			if _, asked := sections[f.section]; !asked {
				sections[f.section], _ = m.info(ctx, f.section) // sections that a server does not report are left out
			}
			value, ok := sections[f.section][f.field]
			if !ok {
				continue
			}
			s := topology.Setting{Server: m.name, Name: f.field, Value: value}
			if f.field == "evicted_keys" {
				s.Blames = fmt.Sprintf("keys were evicted (maxmemory %s, %s): the key of a held lock may be one of them",
					sections["memory"]["maxmemory"], sections["memory"]["maxmemory_policy"])
			}
			out = append(out, s)
		}
	}
	return out
}
