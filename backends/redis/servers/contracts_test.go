package servers

import (
	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/chaos"
)

// Optional interfaces of the topologies and their services.
var (
	_ topology.Keeper            = (*clusterService)(nil)
	_ topology.Guest             = (*clusterService)(nil)
	_ topology.Resetter          = (*clusterService)(nil)
	_ topology.Store             = (*clusterService)(nil)
	_ topology.RequestCounter    = (*clusterService)(nil)
	_ topology.ConnectionCounter = (*clusterService)(nil)
	_ topology.Announcer         = (*clusterService)(nil)
	_ chaos.Promoter             = clusterHandover{}
	_ chaos.WriteRefuser         = writeRefuser{}
	_ chaos.Evictor              = evictor{}
	_ chaos.Sharder              = (*clusterService)(nil)
	_ chaos.Leaderless           = (*clusterService)(nil)
	_ topology.Keeper            = (*fiveService)(nil)
	_ topology.Guest             = (*fiveService)(nil)
	_ topology.Resetter          = (*fiveService)(nil)
	_ topology.Store             = (*fiveService)(nil)
	_ topology.RequestCounter    = (*fiveService)(nil)
	_ topology.ConnectionCounter = (*fiveService)(nil)
	_ chaos.Leaderless           = (*fiveService)(nil)
	_ topology.Keeper            = (*sentinelService)(nil)
	_ topology.Guest             = (*sentinelService)(nil)
	_ topology.Resetter          = (*sentinelService)(nil)
	_ topology.Store             = (*sentinelService)(nil)
	_ topology.RequestCounter    = (*sentinelService)(nil)
	_ topology.ConnectionCounter = (*sentinelService)(nil)
	_ chaos.Promoter             = (*sentinelService)(nil)
	_ topology.Keeper            = (*service)(nil)
	_ topology.Guest             = (*service)(nil)
	_ topology.Resetter          = (*service)(nil)
	_ topology.Store             = (*service)(nil)
	_ topology.RequestCounter    = (*service)(nil)
	_ topology.ConnectionCounter = (*service)(nil)
	_ topology.Explainer         = five{}
	_ topology.Identified        = five{}
	_ topology.Explainer         = sentinel{}
	_ topology.Identified        = sentinel{}
	_ topology.Explainer         = sharded{}
	_ topology.Identified        = sharded{}
	_ topology.Explainer         = single{}
	_ topology.Identified        = single{}
)
