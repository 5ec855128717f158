package postgres

import (
	"context"

	"github.com/lockquake/lockquake/backends/topology"
	"github.com/lockquake/lockquake/internal/node"
)

var _ topology.Explainer = setup{}

// explaining are the settings that end a wait, a statement or a session of a lock user, or that let a restart lose
// promises.
var explaining = []string{
	"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout", "idle_session_timeout",
	"deadlock_timeout",
	"default_transaction_isolation", "synchronous_commit", "fsync", "full_page_writes",
}

// Explain asks for the settings as they apply to the harness's role.
func (t setup) Explain(ctx context.Context, servers []node.Handle) []topology.Setting {
	m := newMember(servers, t.common, t.params.LockParams)
	defer m.close()
	var out []topology.Setting
	for _, name := range explaining {
		if v, err := m.one(ctx, `SELECT current_setting($1)`, name); err == nil {
			out = append(out, topology.Setting{Server: m.name, Name: name, Value: v})
		}
	}
	return out
}
