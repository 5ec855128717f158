package control

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/engine/deployment"
)

// Clocks is the service's Observer, and also reads clocks that the service does not report. Clients and resources are
// asked over their control streams. For a server, one of its own threads is made to read its clocks.
type Clocks struct {
	Nodes     *deployment.Nodes
	Processes *Processes
}

// Unwrap returns the service's own Observer, which may support more than questions.
func (c Clocks) Unwrap() chaos.Observer { return c.Nodes.Service }

// Facts lists the facts that can be asked for.
func (c Clocks) Facts() map[string]string {
	out := maps.Clone(c.Nodes.Service.Facts())
	for _, fact := range []string{chaos.FactClock, chaos.FactMonotonic} {
		if _, ok := out[fact]; !ok {
			out[fact] = "a clock of the node, over its control stream or read by its own thread"
		}
	}
	return out
}

// Ask asks a client or resource itself for its clocks, and the service for everything else.
func (c Clocks) Ask(ctx context.Context, node, fact string) (string, error) {
	if fact != chaos.FactClock && fact != chaos.FactMonotonic && fact != chaos.FactStamps {
		return c.Nodes.Service.Ask(ctx, node, fact)
	}
	for _, s := range c.Processes.All {
		if s.Node.Name() == node {
			p, err := s.Clock.Read(ctx)
			if fact == chaos.FactStamps {
				return strconv.FormatInt(s.Clock.Run(p.Now), 10), err
			}
			return clockText(fact, p.Wall, s.Clock.Run(p.Mono), ""), err
		}
	}
	if fact == chaos.FactStamps {
		return "", fmt.Errorf("%s stamps no events", node)
	}
	_, known := c.Nodes.Service.Facts()[fact]
	if known {
		answer, err := c.Nodes.Service.Ask(ctx, node, fact)
		// a server that does not answer is not read by a thread: it may be paused
		if err == nil || fact == chaos.FactClock {
			return answer, err
		}
	}
	return c.readByThread(ctx, node, fact)
}

// readByThread makes a thread of the node read its clocks.
func (c Clocks) readByThread(ctx context.Context, node, fact string) (string, error) {
	n := c.Nodes.Cluster.Node(node)
	if n == nil {
		return "", fmt.Errorf("there is no node %q", node)
	}
	wall, mono, err := n.Clock.ReadClocks(ctx)
	return clockText(fact, wall, mono, " read by one of its threads"), err
}

// clockText formats the answer for one of the two facts.
func clockText(fact string, wall, mono int64, how string) string {
	if fact == chaos.FactMonotonic {
		return strconv.FormatInt(mono, 10) + how
	}
	return time.Unix(0, wall).UTC().Format("2006-01-02T15:04:05.000000000Z07:00") + how
}
