package cluster

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
)

// reachedEnd is a node at one end of a link, and its agent's access to it.
type reachedEnd struct {
	node string
	throughAgent
}

// side is one agent's part of a plan.
type side struct {
	agent  *agent.Client
	nodes  []string // names of the nodes whose ends it has
	open   agent.Order
	ends   []links.OpenEnd // of these nodes
	seen   links.Sight
	opened bool
}

// probeGrace is the time that a probe has besides its patience, to open its sockets and to dial.
const probeGrace = 5 * time.Second

// sidesDone numbers the plans of several agents, so that their keys differ.
var sidesDone atomic.Uint64

// bySides carries out a plan through several agents, each for the ends that it owns. ends are in the plan's order.
func bySides(ctx context.Context, plan links.Plan, ends []reachedEnd) (links.Sight, error) {
	plan.Echo = plan.Echo || plan.Probe // without an echo, a sender cannot know what arrived
	sides, by := divide(plan, ends)
	seen, err := links.Sight{}, openSides(ctx, sides)
	if err == nil {
		if err = runSides(ctx, sides, by); err == nil {
			sights := make([]links.Sight, len(sides))
			for i, s := range sides {
				sights[i] = s.seen
			}
			seen, err = plan.Join(sights, by)
		}
	}
	return seen, errors.Join(err, closeSides(ctx, sides))
}

// divide makes the sides of a plan, one for each agent. by has the side of each end.
func divide(plan links.Plan, ends []reachedEnd) (sides []*side, by []int) {
	key := "side-" + strconv.FormatUint(sidesDone.Add(1), 10)
	own := make(map[*side][]int)
	for place, e := range ends {
		i := slices.IndexFunc(sides, func(s *side) bool { return s.agent == e.agent })
		if i < 0 {
			i = len(sides)
			sides = append(sides, &side{
				agent: e.agent,
				open:  agent.Order{Do: links.DoSideOpen, Key: key, Process: e.process},
			})
		} else {
			sides[i].open.With = append(sides[i].open.With, e.process)
		}
		s := sides[i]
		s.nodes, own[s], by = append(s.nodes, e.node), append(own[s], place), append(by, i)
	}
	for s, places := range own {
		s.open.Args = links.OpenArgs{Plan: plan, Own: places}
	}
	return sides, by
}

// order sends an agent an order about its side.
func (s *side) order(ctx context.Context, o agent.Order, result any) error {
	if err := s.agent.Order(ctx, o, result); err != nil {
		return fmt.Errorf("%s by the agent of %s: %w", o.Do, strings.Join(s.nodes, ", "), err)
	}
	return nil
}

// openSides opens all ends. It waits for the answer of every agent, even if the run is over: an undo must not come
// first.
func openSides(ctx context.Context, sides []*side) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeGrace)
	defer cancel()
	return chaos.AtAll(sides, func(s *side) error {
		err := s.order(ctx, s.open, &s.ends)
		if s.opened = err == nil; s.opened && len(s.ends) != len(s.nodes) {
			return fmt.Errorf("the agent of %s opened %d ends", strings.Join(s.nodes, ", "), len(s.ends))
		}
		return err
	})
}

// runSides makes all agents send, and then asks them what they saw. If one fails, the others give up.
func runSides(ctx context.Context, sides []*side, by []int) error {
	ends, next := make([]links.OpenEnd, len(by)), make([]int, len(sides))
	for place, i := range by {
		ends[place] = sides[i].ends[next[i]]
		next[i]++
	}
	for _, do := range []string{links.DoSideSend, links.DoSideSeen} {
		g, ctx := errgroup.WithContext(ctx)
		for _, s := range sides {
			o, result := agent.Order{Do: do, Key: s.open.Key, Process: s.open.Process, Args: ends}, any(nil)
			if do == links.DoSideSeen {
				o.Args, result = nil, &s.seen
			}
			g.Go(func() error { return s.order(ctx, o, result) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	return nil
}

// closeSides closes the ends, whether or not the orders succeeded. The sockets of a dead agent are gone with it.
func closeSides(ctx context.Context, sides []*side) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), probeGrace)
	defer cancel()
	return chaos.AtAll(sides, func(s *side) error {
		err := s.agent.Undo(ctx, s.open.Key, nil)
		if err == nil || !s.opened || errors.Is(err, agent.ErrEnded) {
			return nil
		}
		return fmt.Errorf("close the ends of %s: %w", strings.Join(s.nodes, ", "), err)
	})
}
