// Package processes marks the processes of local runs, and finds by their marks those that outlived a node or a
// supervisor.
package processes

import (
	"context"
	"errors"
	"regexp"
	"time"

	"github.com/lockquake/lockquake/internal/agent/proc"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/cluster/owner"
)

// OwnerVariable is the beginning of the environment setting that marks a child.
const OwnerVariable = "LOCKQUAKE_OWNER="

// NodeName matches names of nodes.
var NodeName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,40}$`)

// Marked is a process of a local run.
type Marked struct {
	proc.Process
	Owner owner.Mark
	Node  string
}

// Kill kills a process, stopped or not, and waits until it is gone.
func Kill(ctx context.Context, p proc.Process) error {
	if err := p.Signal("KILL"); err != nil && !errors.Is(err, proc.ErrNoProcess) {
		return err
	}
	for range 200 {
		s, err := p.Inspect()
		if err != nil {
			return err
		}
		if s.Gone() {
			return nil
		}
		if clock.Sleep(ctx, 10*time.Millisecond) != nil {
			return ctx.Err()
		}
	}
	return errors.New("it does not die")
}
