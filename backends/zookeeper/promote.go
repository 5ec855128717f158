package zookeeper

import (
	"context"
	"crypto/sha1" //nolint:gosec // ZooKeeper's digests use it
	"encoding/base64"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockquake/lockquake/chaos"
	"github.com/lockquake/lockquake/internal/clock"
	"github.com/lockquake/lockquake/internal/node"
)

var _ chaos.Promoter = (*service)(nil)

// admin is the login that may change the ensemble: the servers accept reconfig from no other. Lock users do not use
// it.
const admin = "super:lockquake"

// adminDigest returns admin in the form of the servers' configuration.
func adminDigest() string {
	sum := sha1.Sum([]byte(admin)) //nolint:gosec // it protects nothing
	return "super:" + base64.StdEncoding.EncodeToString(sum[:])
}

// configNode is where the ensemble keeps its membership.
const configNode = "/zookeeper/config"

// Promotes always allows it: from version 3.5 on the servers know reconfig.
func (s *service) Promotes() error { return nil }

// Promote removes the leader from the ensemble (reconfig): ZooKeeper has no other way to make it step down
// gracefully. Before it goes it names a successor, and then follows it without a vote. Settle takes it back into the
// ensemble.
func (s *service) Promote(ctx context.Context, node string) (chaos.Promotion, error) {
	leader, number := leaderOf(ctx, s.members), 0
	for i, m := range s.members {
		if m.name == node {
			number = i + 1
		}
	}
	if leader != node || number == 0 {
		return chaos.Promotion{}, fmt.Errorf("%s does not lead (%s does), and the leader chooses its successor itself; target the leader", node, leader)
	}
	p := chaos.Promotion{From: node, How: "reconfig that removes " + node + ", asked of itself"}
	err := s.members[number-1].reconfig(ctx, func(c *zk.Conn) error {
		_, err := c.IncrementalReconfig(nil, []string{strconv.Itoa(number)}, -1)
		return err
	})
	// When it steps down it closes all connections, including the one that asked for it.
	if err != nil && !errors.Is(err, zk.ErrConnectionClosed) && !errors.Is(err, errHungUp) {
		return p, fmt.Errorf("%s: %w", p.How, err)
	}
	return p, nil
}

// Settle returns every server that a handover left outside to the ensemble, and waits until all of them are in it.
func (s *service) Settle(ctx context.Context, _ chaos.Promotion) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	for {
		err := s.settle(ctx)
		if err == nil {
			return nil
		}
		if clock.Sleep(ctx, 50*time.Millisecond) != nil {
			return fmt.Errorf("a server stays outside the ensemble: %w", err)
		}
	}
}

// settleTime bounds the return of a server into the ensemble.
const settleTime = 5 * time.Second

func (s *service) settle(ctx context.Context) error {
	name := leaderOf(ctx, s.members)
	m, err := s.member(name)
	if err != nil {
		return errors.New("nobody leads")
	}
	return m.reconfig(ctx, func(c *zk.Conn) error {
		config, _, err := c.Get(configNode)
		if err != nil {
			return err
		}
		var missing []string
		for i, m := range s.members {
			if key := fmt.Sprintf("server.%d=", i+1); !strings.Contains("\n"+string(config), "\n"+key) {
				missing = append(missing, key+m.seat)
			}
		}
		if len(missing) == 0 {
			return nil
		}
		_, err = c.IncrementalReconfig(missing, nil, -1)
		return err
	})
}

// reconfig opens a session through this server that may change the ensemble.
func (m member) reconfig(ctx context.Context, change func(*zk.Conn) error) error {
	return m.visit(ctx, func(s *session) error {
		_, err := ask(ctx, s, func(c *zk.Conn) (struct{}, error) {
			if err := c.AddAuth("digest", []byte(admin)); err != nil {
				return struct{}{}, err
			}
			return struct{}{}, change(c)
		})
		return err
	})
}

// ensembleSeat returns a server's addresses in the ensemble: for the other servers, and for clients.
func ensembleSeat(address func(port string) string) string {
	host, peer, _ := net.SplitHostPort(address(peerPort))
	_, election, _ := net.SplitHostPort(address(electionPort))
	_, client, _ := net.SplitHostPort(address(Port))
	return host + ":" + peer + ":" + election + ":participant;" + node.ListenOn(host) + ":" + client
}
