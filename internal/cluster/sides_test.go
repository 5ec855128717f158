package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/chaos/links"
	"github.com/lockquake/lockquake/internal/agent"
	"github.com/lockquake/lockquake/internal/agent/agenttest"
	"github.com/lockquake/lockquake/internal/node"
)

// told is a mechanism that only records its orders.
type told struct {
	mu     sync.Mutex
	orders []string
	open   links.OpenArgs
	ends   []links.OpenEnd // destinations of its send order
	fails  string          // this order
}

func (n *told) mechanism() agent.Mechanism {
	handler := func(do string, answer func(c agent.Call) (any, error)) agent.Handler {
		return agent.Handler{Do: func(_ context.Context, c agent.Call) (any, error) {
			n.mu.Lock()
			defer n.mu.Unlock()
			n.orders = append(n.orders, do)
			if do == links.DoSideOpen {
				c.Stand(func(context.Context) (any, error) {
					n.mu.Lock()
					defer n.mu.Unlock()
					n.orders = append(n.orders, "undo")
					return nil, nil //nolint:nilnil // there is nothing to say
				})
			}
			if n.fails == do {
				return nil, errors.New("the agent is out of order")
			}
			return answer(c)
		}}
	}
	return agent.Mechanism{Orders: map[string]agent.Handler{
		links.DoMeasure: handler(links.DoMeasure, func(c agent.Call) (any, error) {
			return links.Measured{Peers: make([]links.MeasuredLink, len(c.With))}, nil
		}),
		links.DoProbe: handler(links.DoProbe, func(c agent.Call) (any, error) {
			return links.ProbeResult{Self: true, Peers: make([]links.Seen, len(c.With))}, nil
		}),
		links.DoSideOpen: handler(links.DoSideOpen, func(c agent.Call) (any, error) {
			err := json.Unmarshal(c.Args, &n.open)
			var ends []links.OpenEnd
			for _, i := range n.open.Own {
				ends = append(ends, links.OpenEnd{Socket: n.open.Plan.Ends[i].Address + ":1"})
			}
			if len(ends) != 1+len(c.With) {
				err = errors.New("each end has a process")
			}
			return ends, err
		}),
		links.DoSideSend: handler(links.DoSideSend, func(c agent.Call) (any, error) { return nil, json.Unmarshal(c.Args, &n.ends) }),
		links.DoSideSeen: handler(links.DoSideSeen, func(agent.Call) (any, error) {
			var s links.Sight
			for i, f := range n.open.Plan.Flows {
				to := slices.Contains(n.open.Own, f.To)
				switch {
				case n.open.Plan.Probe:
					s.Arrivals = append(s.Arrivals, links.Arrival{Arrived: to, Sent: 1})
				case to:
					s.Flows = append(s.Flows, links.Flow{Arrived: 10 + i})
				default:
					s.Flows = append(s.Flows, links.Flow{Sent: 20 + i})
				}
			}
			return s, nil
		}),
	}}
}

// took returns the orders, and forgets them.
func (n *told) took() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	defer func() { n.orders = nil }()
	return strings.Join(n.orders, " ")
}

// through is a driver whose node runs, and is reached by an agent.
type through struct{ throughAgent }

func (through) start(context.Context) (Stdio, *ending, error) { return Stdio{}, newEnding(), nil }

func (through) dial(context.Context, string, string) (net.Conn, error) {
	return nil, errors.New("no port")
}

func (d through) signaller(context.Context) (signaller, error) { return d.throughAgent, nil }

// hosts returns a node a with one agent, and b to d with the agents at these indexes.
func hosts(t *testing.T, of ...int) (agents []*told, clients []*agent.Client, a *Node, peers []chaos.Node) {
	t.Helper()
	agents = []*told{{}, {}}
	for _, n := range agents {
		c, _ := agenttest.Serve(t, n.mechanism())
		clients = append(clients, c)
	}
	place := node.NewPlace()
	for i, of := range append([]int{0}, of...) {
		name := string(rune('a' + i))
		place.Put(name, "10.0.0."+string(rune('1'+i)))
		n := newNode(node.Spec{Name: name}, place.Of(name, ""))
		p, err := clients[of].Own(t.Context(), agenttest.Sleeper(t).Process.Pid, true)
		if err != nil {
			t.Fatal(err)
		}
		n.driver = through{throughAgent{agent: clients[of], process: p}}
		if err := n.Process.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if a == nil {
			a = n
		} else {
			peers = append(peers, n)
		}
	}
	return agents, clients, a, peers
}

func measuring(peers int) links.MeasureArgs {
	return links.MeasureArgs{Peers: make([]links.ProbeEnd, peers), Count: 1, Out: true, In: true, Patience: time.Second}
}

func TestLinksWithinOneAgentAreMeasuredByIt(t *testing.T) {
	agents, _, a, peers := hosts(t, 0, 0)
	if _, err := a.Links.MeasureLinks(t.Context(), peers, measuring(2)); err != nil {
		t.Error(err)
	}
	if _, err := a.Links.ProbeLinks(t.Context(), peers, links.ProbeArgs{Peers: make([]links.ProbeEnd, 2)}); err != nil {
		t.Error(err)
	}
	if got := agents[0].took() + "," + agents[1].took(); got != "measure probe," {
		t.Errorf("the agents are told: %s", got)
	}
}

func TestLinksBetweenAgentsAreMeasuredByAll(t *testing.T) {
	agents, _, a, peers := hosts(t, 1, 0, 1)
	peers = append(peers, newNode(node.Spec{Name: "e"}, node.NewPlace())) // which never ran
	seen, err := a.Links.MeasureLinks(t.Context(), peers, measuring(4))
	if err != nil {
		t.Fatal(err)
	}
	want := []links.MeasuredLink{
		{Out: links.Flow{Sent: 20, Arrived: 10, TwoClocks: true}, In: links.Flow{Sent: 21, Arrived: 11, TwoClocks: true}},
		{Out: links.Flow{Arrived: 12}, In: links.Flow{Arrived: 13}},
		{Out: links.Flow{Sent: 24, Arrived: 14, TwoClocks: true}, In: links.Flow{Sent: 25, Arrived: 15, TwoClocks: true}},
		{Missing: true},
	}
	if !reflect.DeepEqual(seen, want) {
		t.Errorf("measured: %+v", seen)
	}
	ends := []links.OpenEnd{{Socket: "10.0.0.1:1"}, {Socket: "10.0.0.2:1"}, {Socket: "10.0.0.3:1"}, {Socket: "10.0.0.4:1"}}
	for i, own := range [][]int{{0, 2}, {1, 3}} {
		if n := agents[i]; !slices.Equal(n.open.Own, own) || !slices.Equal(n.ends, ends) || n.open.Plan.Number != agents[0].open.Plan.Number {
			t.Errorf("agent %d has the ends %v and sends to %v: %+v", i, n.open.Own, n.ends, n.open.Plan)
		}
		if got := agents[i].took(); got != "side-open side-send side-seen undo" {
			t.Errorf("agent %d is told: %s", i, got)
		}
	}
	r, err := a.Links.ProbeLinks(t.Context(), peers, links.ProbeArgs{Peers: make([]links.ProbeEnd, 4), Patience: time.Millisecond})
	if err != nil || !r.Self || len(r.Peers) != 4 || !r.Peers[0].Out.Arrived || !r.Peers[2].In.Arrived || !r.Peers[3].Missing || !agents[1].open.Plan.Echo {
		t.Errorf("probed: %+v, %v", r, err)
	}
}

func TestAnAgentThatCannotDoItsSide(t *testing.T) {
	for do, want := range map[string]string{
		links.DoSideOpen: "side-open undo", links.DoSideSend: "side-open side-send undo", links.DoSideSeen: "side-open side-send side-seen undo",
	} {
		agents, clients, a, peers := hosts(t, 1)
		agents[1].fails = do
		_, err := a.Links.MeasureLinks(t.Context(), peers, measuring(1))
		if err == nil || !strings.Contains(err.Error(), do+" by the agent of b: the agent is out of order") {
			t.Errorf("%s: %v", do, err)
		}
		for i, n := range agents {
			got := n.took()
			// The other one gives up, perhaps before it gets the same order, or during it.
			gaveUp := i == 0 && do != links.DoSideOpen && strings.HasPrefix(got, "side-open ") && strings.Contains(got, "undo") && len(got) <= len(want)
			if got != want && !gaveUp {
				t.Errorf("%s: agent %d is told: %s", do, i, got)
			}
			if keys, err := clients[i].Standing(t.Context()); err != nil || len(keys) > 0 {
				t.Errorf("%s: with agent %d stands %v, %v", do, i, keys, err)
			}
		}
	}
}

func TestAnAgentThatEnds(t *testing.T) {
	agents, clients, a, peers := hosts(t, 1)
	if err := clients[1].Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := a.Links.MeasureLinks(t.Context(), peers, measuring(1)); !errors.Is(err, agent.ErrEnded) {
		t.Errorf("with an agent that has ended: %v", err)
	}
	if got := agents[0].took(); got != "side-open undo" {
		t.Errorf("the other is told: %s", got)
	}
}
