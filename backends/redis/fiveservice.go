package redis

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// majorityFact asks for the value that a majority of servers have at the key of a lock.
const majorityFact = "majority:"

// observeTimeout bounds one command of the harness's own to a server. The clients' node_timeout is theirs: the harness is not in
// a hurry.
const observeTimeout = time.Second

// fiveService answers for independent servers.
type fiveService struct {
	five    five
	members members
}

// Facts lists what can be asked, of one server but for the majority.
func (s *fiveService) Facts() map[string]string {
	facts := serverFacts()
	facts[majorityFact+"LOCK"] = `the value that a majority of all servers have at the key of lock LOCK, or "none"; of whichever node it is asked`
	return facts
}

// Ask asks one server for one fact, or all for what a majority has.
func (s *fiveService) Ask(ctx context.Context, node, fact string) (string, error) {
	if name, ok := strings.CutPrefix(fact, majorityFact); ok {
		return s.majority(ctx, name)
	}
	m, err := s.members.find(node)
	if err != nil {
		return "", err
	}
	return m.ask(ctx, fact)
}

// majority asks all servers side by side. While too many do not answer to tell, the answer is an error.
func (s *fiveService) majority(ctx context.Context, name string) (string, error) {
	values := make([]string, len(s.members))
	errs := make([]error, len(s.members))
	var group sync.WaitGroup
	for i, m := range s.members {
		group.Go(func() { values[i], errs[i] = m.holder(ctx, name) })
	}
	group.Wait()
	return majorityOf(values, errs)
}

// majorityOf returns the value that more than half have, where "none" stands for no key. Servers with an error may have any.
func majorityOf(values []string, errs []error) (string, error) {
	quorum := len(values)/2 + 1
	count := map[string]int{}
	silent, most := 0, 0
	var last error
	for i, v := range values {
		if errs[i] != nil {
			silent, last = silent+1, errs[i]
			continue
		}
		if count[v]++; v != "none" {
			most = max(most, count[v])
		}
		if count[v] >= quorum {
			return v, nil
		}
	}
	if most+silent >= quorum {
		return "", fmt.Errorf("%d of %d servers do not answer, too many to tell what a majority has: %w", silent, len(values), last)
	}
	return "none", nil
}

// Ready writes a value to every server and reads it back, on all side by side.
func (s *fiveService) Ready(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, m := range s.members {
		group.Go(func() error { return m.write(ctx, readyKey) })
	}
	return group.Wait()
}

// Describe returns the servers' versions and what decides about results.
func (s *fiveService) Describe(ctx context.Context) map[string]string {
	p := s.five.params
	out := map[string]string{
		"redis.topology":    strconv.Itoa(len(s.members)) + " independent",
		"redis.version":     s.members.version(ctx),
		"redis.persistence": p.Persistence,
		"redis.restart":     p.Restart,
		"lock.ttl":          s.five.common.TTL.String(),
		"lock.clock_drift":  fmt.Sprintf("%g of the ttl and 2ms: %s", p.ClockDrift, p.drift(s.five.common.TTL)),
		"lock.node_timeout": p.NodeTimeout.String(),
		"lock.order":        p.Order,
		"lock.retry":        p.Retry.String(),
	}
	return out
}

// Close frees the connections.
func (s *fiveService) Close() error { return s.members.close() }
