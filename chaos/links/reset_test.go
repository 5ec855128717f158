package links

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/history"
)

// peered is an end of connections. Its fields make it a saboteur.
type peered struct {
	*wired
	up   []Connection // by the kernel at this end
	far  *peered      // whose connections end when this one's do; nil: they do not
	busy bool         // something is sent over each connection
	// aborts: this end's kernel aborts connections instead of resetting them
	aborts bool
}

func (p *peered) Connections(context.Context, []chaos.Node, uint16, []uint16) ([]Connection, error) {
	if p.dead {
		return nil, errors.New("no process")
	}
	return slices.Clone(p.up), nil
}

func (p *peered) Reset(_ context.Context, those []Connection) (Ended, error) {
	out := Ended{Reset: len(those)}
	if p.aborts {
		out = Ended{Aborted: len(those), Why: "no raw sockets"}
	}
	if p.deaf {
		return out, nil
	}
	gone := func(all []Connection, those []Connection) []Connection {
		return slices.DeleteFunc(all, func(c Connection) bool { return len(among([]Connection{c}, those)) > 0 })
	}
	p.up = gone(p.up, those)
	if p.far != nil {
		p.far.up = nil
	}
	return out, p.broken
}

func (p *peered) Filter(ctx context.Context, key string, rules []Rule) error {
	if p.busy && !p.deaf {
		p.met += uint64(len(rules))
	}
	return p.wired.Filter(ctx, key, rules)
}

// connected is a server with two connections of a client.
func connected() (server, client *peered) {
	c := wire("redis-1", "client-1")
	client = &peered{wired: c.nodes[1], up: []Connection{
		{Node: "redis-1", Peer: "10.0.0.1", Own: "10.0.0.2", Port: 40001, PeerPort: 6379, Cookie: 11},
		{Node: "redis-1", Peer: "10.0.0.1", Own: "10.0.0.2", Port: 40002, PeerPort: 6379, Cookie: 12},
	}}
	server = &peered{wired: c.nodes[0], far: client, up: []Connection{
		{Node: "client-1", Peer: "10.0.0.2", Own: "10.0.0.1", Port: 6379, PeerPort: 40001, Cookie: 1},
		{Node: "client-1", Peer: "10.0.0.2", Own: "10.0.0.1", Port: 6379, PeerPort: 40002, Cookie: 2},
	}}
	return server, client
}

func TestReset(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		params, evidence string
		sabotage         func(server, client *peered)
		want             history.ReceiptStatus
	}{
		"rst":                            {"", "2 connections with client-1 (2), none of them still established; nor at the ends of 1 others", nil, history.Installed},
		"rst, but aborted at this end":   {"", "; 2 of them were aborted, so calls at this end fail with ECONNABORTED: no raw sockets", func(s, _ *peered) { s.aborts = true }, history.Installed},
		"rst of none":                    {"", "no connection is established", func(s, _ *peered) { s.up = nil }, history.NotInstalled},
		"rst that the kernel ignored":    {"", "2 of them still established", func(s, _ *peered) { s.deaf = true }, history.NotInstalled},
		"rst that did not arrive":        {"", "at the end of client-1 2 are still established", func(s, _ *peered) { s.far = nil }, history.NotInstalled},
		"rst, and the client has gone":   {"", "the other ends are not accessible", func(_, c *peered) { c.dead = true }, history.Installed},
		"rst that failed":                {"", "out of order", func(s, _ *peered) { s.broken = errors.New("out of order") }, history.NotInstalled},
		"forget":                         {"{how: forget}", "2 connections with client-1 (2) are forgotten, 2 of them still established in its kernel; 4 of their packets", func(s, _ *peered) { s.busy = true }, history.Installed},
		"forget of what nobody uses":     {"{how: forget}", "0 of their packets were dropped within 2s", nil, history.Indeterminate},
		"forget that the kernel ignored": {"{how: forget}", "0 of their packets were dropped within 2s", func(s, _ *peered) { s.busy, s.deaf = true, true }, history.Indeterminate},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, client := connected()
			if c.sabotage != nil {
				c.sabotage(server, client)
			}
			heal, receipt, err := newFault(t, "reset", c.params).Inject(t.Context(), chaos.Scope{On: []chaos.Node{server}, Peers: []chaos.Node{client}})
			if receipt.Status != c.want || !strings.Contains(receipt.Evidence, c.evidence) {
				t.Errorf("%s: %s, %v", receipt.Status, receipt.Evidence, err)
			}
			healed, err := heal(t.Context())
			if err != nil || healed.Status != history.Installed {
				t.Errorf("healed: %s: %s, %v", healed.Status, healed.Evidence, err)
			}
			if len(server.rules) > 0 {
				t.Errorf("%v are left", server.rules)
			}
			if c.want == history.Installed && (len(server.up) > 0 || client.up != nil && !client.dead) {
				t.Errorf("%v and %v came back to life", server.up, client.up)
			}
		})
	}
}

func TestResetIsMomentaryOrLasts(t *testing.T) {
	t.Parallel()
	k := resetKind()
	for params, lasts := range map[string]bool{"": false, "{how: rst}": false, "{how: forget}": true} {
		f := newFault(t, "reset", params)
		if k.Lasts(f) != lasts {
			t.Errorf("%q lasts: %t", params, k.Lasts(f))
		}
		if err := k.Fits(f, chaos.Entry{For: 1}); (err == nil) != lasts {
			t.Errorf("%q for some time: %v", params, err)
		}
	}
}
