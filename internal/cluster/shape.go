package cluster

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/agent"
)

var _ chaos.Shaper = (*Node)(nil)

// shapings are the capabilities of a chaos.Shaper.
var shapings = []chaos.Capability{chaos.CanShape, chaos.CanNetem, chaos.CanQueue, chaos.CanThrottle}

// offersShaping tells whether links can be shaped where these engines were tried.
func offersShaping(c chaos.Capability, e agent.Engines) error {
	why := map[chaos.Capability]string{chaos.CanNetem: e.Netem, chaos.CanQueue: e.Queue, chaos.CanThrottle: e.TBF}[c]
	if c == chaos.CanShape && e.Netem != "" && e.Queue != "" {
		why = fmt.Sprintf("netem: %s; queue: %s", e.Netem, e.Queue)
	}
	if why == "" {
		return nil
	}
	if c == chaos.CanNetem {
		why = "the kernel's sch_netem cannot be had (" + why + "): load the module, or take another kernel"
	}
	return chaos.Unavailable{What: string(c), Reason: why}
}

// Engines has the agent try which engines shape links here.
func (n *Node) Engines(ctx context.Context) (map[chaos.Engine]string, error) {
	a, err := n.reach(ctx)
	if err != nil {
		return nil, err
	}
	var e agent.Engines
	if err := a.agent.Order(ctx, agent.Order{Do: agent.DoEngines}, &e); err != nil {
		return nil, err
	}
	return map[chaos.Engine]string{chaos.Netem: e.Netem, chaos.Queue: e.Queue, chaos.TBF: e.TBF}, nil
}

// Shape has the agent shape packets between the node and others.
func (n *Node) Shape(ctx context.Context, key string, rules []chaos.LinkRule, s chaos.Shaping) error {
	args, err := agentRules(rules)
	if err != nil {
		return err
	}
	args.Shaping = &agent.Shaping{
		Engine: string(s.Engine), Delay: s.Delay, Jitter: s.Jitter, Loss: s.Loss, Duplicate: s.Duplicate, Reorder: s.Reorder,
		Corrupt: s.Corrupt, Rate: s.Rate, Correlation: s.Correlation, Seed: s.Seed,
	}
	return n.stand(ctx, agent.Order{Do: agent.DoFilter, Key: n.linkKey(key), Args: args}, nil)
}

// MeasureLinks has the agent send numbered datagrams over the node's links.
func (n *Node) MeasureLinks(ctx context.Context, m chaos.LinkMeasure) ([]chaos.LinkMeasured, error) {
	host, err := n.host()
	if err != nil {
		return nil, err
	}
	if !n.Running() {
		return nil, fmt.Errorf("%s: %w", n.Name(), agent.ErrNoProcess)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(m.Count)*m.Every+m.Patience+probeGrace)
	defer cancel()
	args := agent.MeasureArgs{
		ProbeEnd: agent.ProbeEnd{Address: host, Port: uint16(m.Port)}, Count: m.Count, Every: m.Every, Size: m.Size,
		Out: m.Out, In: m.In, Echo: m.Echo, Patience: m.Patience,
	}
	order := agent.Order{Do: agent.DoMeasure}
	var out []chaos.LinkMeasured
	last := lasting(n, m.Peers)
	for _, peer := range m.Peers {
		process, end, err := probedEnd(ctx, peer)
		out = append(out, chaos.LinkMeasured{Peer: peer, Missing: err != nil})
		if err == nil {
			end.Port = uint16(m.PeerPort[peer])
			order.With, args.Peers = append(order.With, process), append(args.Peers, end)
		}
	}
	order.Args = args
	var answer agent.Measured
	if err := n.order(ctx, order, &answer); err != nil {
		return nil, err
	}
	if here := slices.DeleteFunc(slices.Clone(out), func(l chaos.LinkMeasured) bool { return l.Missing }); len(here) != len(answer.Peers) {
		return nil, fmt.Errorf("%d links were to be measured, and %d were", len(here), len(answer.Peers))
	}
	next := 0
	for i := range out {
		if !out[i].Missing {
			out[i].Out, out[i].In = flow(answer.Peers[next].Out), flow(answer.Peers[next].In)
			next++
		}
		out[i].Missing = out[i].Missing || !last[i+1]()
	}
	if !last[0]() {
		return nil, endedMeanwhile(n)
	}
	return out, nil
}

func flow(f agent.Flow) chaos.Flow {
	return chaos.Flow{
		Sent: f.Sent, Arrived: f.Arrived, Copies: f.Copies, Leapt: f.Leapt, OneWay: chaos.Spread(f.OneWay), Round: chaos.Spread(f.Round),
		Bits: f.Bits, Damaged: f.Damaged,
	}
}

func shapedBy(s *agent.Shaped) *chaos.Shaped {
	if s == nil {
		return nil
	}
	return &chaos.Shaped{
		Engine: chaos.Engine(s.Engine), Waiting: s.Waiting, Passed: s.Passed, Lost: s.Lost, Corrupted: s.Corrupted, Dropped: s.Dropped,
		LateMid: s.LateMid, LateP99: s.LateP99, LateMax: s.LateMax,
	}
}
