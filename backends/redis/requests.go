package redis

import (
	"context"
	"strconv"

	"github.com/lockquake/lockquake/backends"
)

// requests counts the commands that each server has processed: those within scripts, those that a replica hears from its primary and
// those of Sentinels among them, and questions such as this.
func (ms members) requests(ctx context.Context) map[string]int64 {
	return backends.CountEach(ms, func(m member) string { return m.name }, func(m member) (int64, error) {
		section, err := m.info(ctx, "stats")
		if err != nil {
			return 0, err
		}
		return strconv.ParseInt(section["total_commands_processed"], 10, 64)
	})
}

// Requests counts the commands of the server.
func (s *service) Requests(ctx context.Context) map[string]int64 { return s.members.requests(ctx) }

// Requests counts the commands of the five servers.
func (s *fiveService) Requests(ctx context.Context) map[string]int64 { return s.members.requests(ctx) }

// Requests counts the commands of the primary and the replicas, not those of the Sentinels.
func (s *sentinelService) Requests(ctx context.Context) map[string]int64 {
	return s.servers.requests(ctx)
}

// Requests counts the commands of all nodes.
func (s *clusterService) Requests(ctx context.Context) map[string]int64 {
	return s.servers.requests(ctx)
}
